"""Generates TypeScript from the schemas of topics, with the map for `connect<Topics>()` and a type per definition. No I/O.

The output is deterministic, compiles in strict mode with exactOptionalPropertyTypes, and imports nothing. A type allows every
value that its schema allows, and possibly more, because types cannot express everything. `unknown` stands for such parts, and
comments describe others (`pattern`, `minimum`, `if`). Members that a schema does not name are not in the type, unless its
`additionalProperties` describes them.

A schema becomes a definition if a topic has it, if something refers to it, or if it is an object with members inside another
schema. Its name comes from its `title`, else from its name in `$defs`, else from the words of its pattern or file, else from
its place, as in `OrderLines` for `lines` of `Order`. The file's name separates equal names.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from headgate.errors import InvalidSchema

from .catalogue import Catalogue, Place
from .documents import SUFFIX
from .validation import DESCRIBED_IN_WORDS, NAMED_IN_WORDS

HEAD = "// Written by `headgate types` from the schemas of topics. Do not edit."
MAP = "Topics"
_TYPES = ("boolean", "integer", "number", "string", "array", "object", "null")
# Keywords that constrain values of one type only.
_OF_ARRAYS = {"items", "prefixItems", "contains", "minItems", "maxItems", "uniqueItems"}
_OF_OBJECTS = {"properties", "required", "additionalProperties", "patternProperties", "propertyNames", "minProperties"}
_MAX_SHOWN = 200
# A longer title is a sentence, not a name.
_MAX_TITLE = 60
_IDENTIFIER = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*", re.ASCII)
# Line terminators of JavaScript, and characters that editors hide.
_BREAKS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]+")


class _Object(NamedTuple):
    """An object, with a line for each member, and its comment."""

    fields: tuple[str, ...]
    comments: tuple[tuple[str, ...], ...]


# The options of a union. Without any it is `never`. An intersection is one option, in parentheses.
_Type: TypeAlias = tuple[str | _Object, ...]
_ANYTHING: _Type = ("unknown",)
_NOTHING: _Type = ()


def typescript(catalogue: Catalogue) -> str:
    """Return the module of a catalogue's types.

    Raises InvalidSchema if two definitions share a name, or if a schema's keywords apply to none of its types.
    """
    writer = _Writer(catalogue)
    lines = [HEAD, "", "/** Patterns of topics, and the data of their events. */", f"export interface {MAP} {{"]
    lines += [f"  {json.dumps(pattern)}: {writer.names[Place(file, '')]};" for pattern, file in catalogue.topics.items()]
    lines.append("}")
    for _, definition in sorted(writer.definitions.items()):
        lines += ["", *definition]
    return "\n".join(lines) + "\n"


class _Writer:
    """`names` has the places with a fixed name, which are the topics' schemas and those that they refer to."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._origins: dict[str, Place] = {}
        self.definitions: dict[str, list[str]] = {}
        self.names = self._named_places()
        for place, name in self.names.items():
            if (other := self._origins.setdefault(name, place)) != place:
                text = f"its type would be named {name}, as that of {other}; give one a title"
                raise InvalidSchema(place.name, text, place.pointer)
        for place, name in sorted(self.names.items(), key=lambda each: each[1]):
            words = _words_of(catalogue.places[place], name)
            self.definitions[name] = list(_definition(name, self._read(place, name, None), words))

    # -- names ----------------------------------------------------------------------------------------------------

    def _named_places(self) -> dict[Place, str]:
        roots = [Place(file, "") for file in self._catalogue.topics.values()]
        proposed = {place: self._proposed(place) for place in dict.fromkeys([*roots, *self._reached(roots)])}
        count = Counter(proposed.values())
        return {place: name if count[name] == 1 else self._file_name(place) + name for place, name in proposed.items()}

    def _reached(self, roots: Sequence[Place]) -> Iterator[Place]:
        """Yield the places that the roots refer to, transitively. Definitions of a root count only if referred to."""
        seen, left = set(roots), list(roots)
        while left:
            root = left.pop()
            for place, target in self._catalogue.references.items():
                below = f"{place.pointer}/".removeprefix(f"{root.pointer}/")
                is_inside = place.name == root.name and f"{place.pointer}/".startswith(f"{root.pointer}/")
                if is_inside and below.split("/")[0] not in ("$defs", "definitions") and target not in seen:
                    seen.add(target)
                    left.append(target)
                    yield target

    def _proposed(self, place: Place) -> str:
        schema = self._catalogue.places[place]
        title = schema.get("title", "") if isinstance(schema, dict) else ""
        last = place.pointer.rpartition("/")[2]
        name = (
            (_pascal(title) if len(title) <= _MAX_TITLE else "")
            or ("" if last.isdigit() else _pascal(last))
            or self._file_name(place)
        )
        return f"{name}Data" if name == MAP else name

    def _file_name(self, place: Place) -> str:
        """Return the name derived from a file's first pattern, else from the file's name."""
        patterns = [pattern for pattern, file in self._catalogue.topics.items() if file == place.name]
        return _pascal(patterns[0] if patterns else "") or _pascal(place.name.removesuffix(SUFFIX)) or "Topic"

    # -- types ----------------------------------------------------------------------------------------------------

    def _type(self, place: Place, name: str, inherited: frozenset[str] | None = None) -> _Type:
        """Return the type of a subschema, as a definition called `name` if it has members."""
        if place in self.names:
            return (self.names[place],)
        type_ = self._read(place, name, inherited)
        if len(type_) == 1 and (isinstance(type_[0], _Object) or _is_intersection(type_[0])):
            return self._hoisted(place, name, type_)
        return type_

    def _hoisted(self, place: Place, name: str, type_: _Type) -> _Type:
        """Return a definition for a type inside another, called `name`, with a number if that is taken."""
        number, free = 1, name
        while free == MAP or self._origins.setdefault(free, place) != place:
            number += 1
            free = f"{name}{number}"
        self.definitions[free] = list(_definition(free, type_, _words_of(self._catalogue.places[place])))
        return (free,)

    def _read(self, place: Place, name: str, inherited: frozenset[str] | None) -> _Type:
        """Return the type of a schema. `inherited` holds the types that the enclosing schema allows for the same value."""
        schema = self._catalogue.places[place]
        if isinstance(schema, bool):
            return _ANYTHING if schema else _NOTHING
        types = self._types(place, schema, inherited)
        below = types if len(types) < len(_TYPES) else None
        parts: list[_Type] = []
        if place in self._catalogue.references:
            parts.append((self.names[self._catalogue.references[place]],))
        parts.append(self._own(place, schema, name, types))
        for index in range(len(schema.get("allOf", ()))):
            part = place.below("allOf", index)
            parts.append((self.names[part],) if part in self.names else self._read(part, name, below))
        for keyword in ("anyOf", "oneOf"):
            if keyword in schema:
                parts.append(self._either(place, keyword, schema[keyword], name, below))
        return _all_of(parts)

    def _either(self, place: Place, keyword: str, options: Sequence[Any], name: str, inherited: frozenset[str] | None) -> _Type:
        types: list[_Type] = []
        for index, option in enumerate(options):
            title = _pascal(option.get("title", "")) if isinstance(option, dict) else ""
            types.append(self._type(place.below(keyword, index), name + (title or f"Option{index + 1}"), inherited))
        return _one_of(types)

    def _types(self, place: Place, schema: Mapping[str, Any], inherited: frozenset[str] | None) -> frozenset[str]:
        given = schema.get("type")
        if given is not None:
            types = frozenset([given] if isinstance(given, str) else given)
            if "number" in types:
                types |= {"integer"}
            return types if inherited is None else types & inherited or types
        if inherited is not None or "const" in schema or "enum" in schema:
            return inherited or frozenset(_TYPES)
        for keywords, wanted in ((_OF_OBJECTS, "object"), (_OF_ARRAYS, "array")):
            if (odd := sorted(keywords & schema.keys())) and not {"$ref", "allOf"} & schema.keys():
                text = f'{odd[0]} without a type lets every other value through; write "type": "{wanted}"'
                raise InvalidSchema(place.name, text, place.pointer)
        return frozenset(_TYPES)

    def _own(self, place: Place, schema: Mapping[str, Any], name: str, types: frozenset[str]) -> _Type:
        """Return the type by a schema's keywords, without its `allOf` and references."""
        if "const" in schema:
            return (json.dumps(schema["const"]),)
        if "enum" in schema:
            return _one_of((json.dumps(value),) for value in schema["enum"] if _is_of(value, types))
        speaks = (_OF_OBJECTS | _OF_ARRAYS) & schema.keys()
        if len(types) == len(_TYPES) or ("type" not in schema and not speaks):
            if not speaks:
                return _ANYTHING
            types = frozenset({"object"} if _OF_OBJECTS & speaks else {"array"})  # next to a $ref or an allOf that has the type
        alternatives: list[_Type] = []
        for kind in (kind for kind in _TYPES if kind in types):
            if kind == "array":
                alternatives.append((self._array(place, schema, name),))
            elif kind == "object":
                alternatives.append(self._object(place, schema, name, alone=len(types) == 1))
            else:
                alternatives.append(("number" if kind == "integer" else kind,))
        return _one_of(alternatives)

    def _array(self, place: Place, schema: Mapping[str, Any], name: str) -> str:
        prefix = [
            self._type(place.below("prefixItems", index), f"{name}{index + 1}")
            for index in range(len(schema.get("prefixItems", ())))
        ]
        rest = self._type(place.below("items"), f"{name}Item") if "items" in schema else _ANYTHING
        if isinstance(most := schema.get("maxItems"), int | float) and most <= len(prefix):
            rest = _NOTHING
        if not prefix:
            return f"{_grouped(rest)}[]" if rest else "[]"
        needed = min(len(prefix), int(schema.get("minItems", 0)))
        places = [_text(each) if index < needed else f"{_grouped(each)}?" for index, each in enumerate(prefix)]
        return f"[{', '.join([*places, f'...{_grouped(rest)}[]'] if rest else places)}]"

    def _object(self, place: Place, schema: Mapping[str, Any], name: str, *, alone: bool) -> _Type:
        required, properties = schema.get("required", ()), schema.get("properties", {})
        fields, comments = [], []
        for key in dict.fromkeys([*properties, *required]):
            member = _ANYTHING
            if key in properties:
                member = self._type(place.below("properties", key), name + (_pascal(key) or "Member"))
            shown = key if _IDENTIFIER.fullmatch(key) else json.dumps(key)
            fields.append(f"{shown}{'' if key in required else '?'}: {_text(member)};")
            comments.append(tuple(_comment(_words_of(properties.get(key)), "  ")))
        rest: _Type | None = None
        if "additionalProperties" in schema:
            rest = self._type(place.below("additionalProperties"), f"{name}Value")
        if "patternProperties" in schema:
            rest = _ANYTHING
        if not fields:
            return (f"{{ [name: string]: {_text(_ANYTHING if rest is None else rest)} }}",)
        if rest:  # an index signature must include the named members
            fields.append("[name: string]: unknown;")
            comments.append(())
        type_: _Type = (_Object(tuple(fields), tuple(comments)),)
        if alone:
            return type_
        # One of several types, mostly with null. Unions consist of names.
        return self._hoisted(place, f"{name}Object" if place in self.names else name, type_)


def _one_of(types: Iterable[_Type]) -> _Type:
    """Return the union of types in its simplest form."""
    options = dict.fromkeys(option for each in types for option in each)
    return _ANYTHING if "unknown" in options else tuple(options)


def _all_of(types: Iterable[_Type]) -> _Type:
    parts = [each for each in dict.fromkeys(types) if each != _ANYTHING]
    if len(parts) < 2 or _NOTHING in parts:
        return _ANYTHING if not parts else _NOTHING if _NOTHING in parts else parts[0]
    return (f"({' & '.join(_text(part) if len(part) == 1 else _grouped(part) for part in parts)})",)


def _text(type_: _Type) -> str:
    """Return a type where it stands alone."""
    options = [option if isinstance(option, str) else f"{{ {' '.join(option.fields)} }}" for option in type_]
    if len(options) == 1 and _is_intersection(options[0]):
        return options[0][1:-1]
    return " | ".join(options) or "never"


def _grouped(type_: _Type) -> str:
    """Return a type before `[]`, `?` or `&`."""
    text = _text(type_)
    return f"({text})" if len(type_) > 1 or (type_ and _is_intersection(type_[0])) else text


def _is_intersection(option: str | _Object) -> bool:
    return isinstance(option, str) and option.startswith("(") and option.endswith(")")


def _definition(name: str, type_: _Type, words: Sequence[str]) -> Iterator[str]:
    yield from _comment(words, "")
    if len(type_) == 1 and isinstance(type_[0], _Object):
        yield f"export interface {name} {{"
        for field, comment in zip(type_[0].fields, type_[0].comments, strict=True):
            yield from (*comment, f"  {field}")
        yield "}"
    else:
        yield f"export type {name} = {_text(type_)};"


def _words_of(schema: Any, name: str = "") -> list[str]:
    """Return the comment of a schema, with its title unless equal to its name, its description, and keywords beyond types."""
    if not isinstance(schema, dict):
        return []
    title, description = schema.get("title", "").strip(), schema.get("description", "").strip()
    lines = [text for text in ("" if title == name else title, description) if text]
    if phrases := [f"{keyword}: {_short(schema[keyword])}" for keyword in DESCRIBED_IN_WORDS if keyword in schema]:
        lines.append("; ".join(phrases))
    if named := [keyword for keyword in NAMED_IN_WORDS if keyword in schema]:
        lines.append(f"also checked: {', '.join(named)}")
    if schema.get("deprecated") is True:
        lines.append("@deprecated")
    return lines


def _comment(words: Sequence[str], indent: str) -> Iterator[str]:
    written = (line for text in words for line in text.splitlines() if line.strip())
    lines = [_BREAKS.sub(" ", line).replace("*/", "*\u2215").strip() for line in written]  # none can end the comment
    if len(lines) == 1:
        yield f"{indent}/** {lines[0]} */"
    elif lines:
        yield from (f"{indent}/**", *(f"{indent} * {line}" for line in lines), f"{indent} */")


def _is_of(value: object, types: frozenset[str]) -> bool:
    if value is None or isinstance(value, bool):
        return ("null" if value is None else "boolean") in types
    if isinstance(value, int | float):
        return "number" in types or ("integer" in types and value == int(value))
    return ("string" if isinstance(value, str) else "array" if isinstance(value, list) else "object") in types


def _pascal(text: str) -> str:
    """Return text as a name: `orders.*.shipped` becomes `OrdersShipped`. Empty without letters."""
    words = re.findall(r"[A-Za-z0-9]+", re.sub(r"([a-z0-9])([A-Z])", r"\1 \2", text))
    name = "".join(word[0].upper() + word[1:] for word in words).lstrip("0123456789")
    return name[:1].upper() + name[1:]


def _short(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}…"
