"""The shapes of data: the part of a schema that types can express, from which TypeScript is written. No I/O.

In: a catalogue. Out: `Model`, with definitions by name and the shape of each pattern's data. A shape allows whatever the schema
allows, and possibly more; the rest (`pattern`, `minimum`, `if`) goes into comments.

A schema becomes a definition if a topic has it, if something refers to it, or if it is an object with members inside another
schema. Its name comes from its `title`, else from its name in `$defs`, else from the words of its pattern or file, else from
its place: `Order` and `lines` make `OrderLines`. The file's name separates equal names.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from headgate.errors import InvalidSchema

from .catalogue import Catalogue, Place
from .documents import SUFFIX
from .keywords import NAMED_IN_WORDS, SAID_IN_WORDS

_TYPES = ("boolean", "integer", "number", "string", "array", "object", "null")
# Keywords that constrain values of one type only.
_OF_ARRAYS = {"items", "prefixItems", "contains", "minItems", "maxItems", "uniqueItems"}
_OF_OBJECTS = {"properties", "required", "additionalProperties", "patternProperties", "propertyNames", "minProperties"}
_MAX_SAID = 200
# A longer title is a sentence, not a name.
_MAX_TITLE = 60


@dataclass(frozen=True, slots=True)
class Anything:
    """Any JSON value."""


@dataclass(frozen=True, slots=True)
class Nothing:
    """No value at all."""


@dataclass(frozen=True, slots=True)
class Plain:
    """A value of one of the types without parts: null, boolean, integer, number or string."""

    type: str


@dataclass(frozen=True, slots=True)
class Exactly:
    """One value, as JSON text."""

    text: str


@dataclass(frozen=True, slots=True)
class ArrayOf:
    """An array: the items of `prefix`, some of them required, then any number of `rest` (None: no more)."""

    prefix: tuple[Shape, ...]
    needed: int
    rest: Shape | None


@dataclass(frozen=True, slots=True)
class Member:
    """A member of an object."""

    name: str
    shape: Shape
    required: bool
    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ObjectOf:
    """An object: its members, and the shape of all others (None: unspecified; Nothing: not allowed)."""

    members: tuple[Member, ...]
    rest: Shape | None


@dataclass(frozen=True, slots=True)
class OneOf:
    """A value of any of these shapes."""

    options: tuple[Shape, ...]


@dataclass(frozen=True, slots=True)
class AllOf:
    """A value of all of these shapes."""

    parts: tuple[Shape, ...]


@dataclass(frozen=True, slots=True)
class Named:
    """A reference to a definition."""

    name: str


Shape: TypeAlias = Anything | Nothing | Plain | Exactly | ArrayOf | ObjectOf | OneOf | AllOf | Named


@dataclass(frozen=True, slots=True)
class Definition:
    """A named shape with comments."""

    name: str
    shape: Shape
    words: tuple[str, ...]
    place: Place


@dataclass(slots=True)
class Model:
    """See the module. `topics`: pattern → shape, in the order of the patterns."""

    definitions: dict[str, Definition] = field(default_factory=dict)
    topics: dict[str, Named] = field(default_factory=dict)


def read_model(catalogue: Catalogue, reserved: Iterable[str] = ()) -> Model:
    """Return the shapes of all topics.

    Args:
        catalogue: the schemas.
        reserved: names that no definition may have.

    Raises:
        InvalidSchema: two definitions share a name, or a schema's keywords apply to none of its types.
    """
    return _Reader(catalogue, frozenset(reserved)).model


def words_of(schema: Any, name: str = "") -> tuple[str, ...]:
    """Return the comment of a schema: its title unless its name says it, its description, and what a type cannot express."""
    if not isinstance(schema, dict):
        return ()
    title, description = schema.get("title", "").strip(), schema.get("description", "").strip()
    lines = [text for text in ("" if title == name else title, description) if text]
    said = [f"{keyword}: {_short(schema[keyword])}" for keyword in SAID_IN_WORDS if keyword in schema]
    named = [keyword for keyword in NAMED_IN_WORDS if keyword in schema]
    if said:
        lines.append("; ".join(said))
    if named:
        lines.append(f"also checked: {', '.join(named)}")
    if schema.get("deprecated") is True:
        lines.append("@deprecated")
    return tuple(lines)


class _Reader:
    def __init__(self, catalogue: Catalogue, reserved: frozenset[str]) -> None:
        self._catalogue, self._reserved = catalogue, reserved
        self.model = Model()
        self._origins: dict[str, Place] = {}
        self._names = self._named_places()
        for place, name in self._names.items():
            self._claim(name, place)
        for place, name in sorted(self._names.items(), key=lambda each: each[1]):
            schema = catalogue.places[place]
            self.model.definitions[name] = Definition(name, self._read(place, name, None), words_of(schema, name), place)
        self.model.definitions = dict(sorted(self.model.definitions.items()))
        for pattern, file in catalogue.topics.items():
            self.model.topics[pattern] = Named(self._names[Place(file, "")])

    # -- names ----------------------------------------------------------------------------------------------------

    def _named_places(self) -> dict[Place, str]:
        """Return the names of places that have a fixed one: the topics' schemas, and whatever they refer to."""
        roots = [Place(file, "") for file in self._catalogue.topics.values()]
        found = dict.fromkeys([*roots, *self._reached(roots)])
        proposed = {place: self._proposed(place) for place in found}
        count: dict[str, int] = {}
        for name in proposed.values():
            count[name] = count.get(name, 0) + 1
        return {place: name if count[name] == 1 else self._file_name(place) + name for place, name in proposed.items()}

    def _reached(self, roots: Sequence[Place]) -> Iterator[Place]:
        """Yield what the roots refer to, transitively."""
        under: dict[str, list[Place]] = {}
        for place in self._catalogue.references:
            under.setdefault(place.name, []).append(place)
        seen, left = set(roots), list(roots)
        while left:
            root = left.pop()
            for place in under.get(root.name, ()):
                target = self._catalogue.references[place]
                if f"{place.pointer}/".startswith(f"{root.pointer}/") and not _is_aside(place, root) and target not in seen:
                    seen.add(target)
                    left.append(target)
                    yield target

    def _proposed(self, place: Place) -> str:
        schema = self._catalogue.places[place]
        title = schema.get("title", "") if isinstance(schema, dict) else ""
        last = place.pointer.rpartition("/")[2] if place.pointer else ""
        name = (
            (_pascal(title) if len(title) <= _MAX_TITLE else "")
            or (_pascal(last) if last and not last.isdigit() else "")
            or self._file_name(place)
        )
        return f"{name}Data" if name in self._reserved else name

    def _file_name(self, place: Place) -> str:
        """Return the name derived from a file: of its first pattern, else its own."""
        patterns = [pattern for pattern, file in self._catalogue.topics.items() if file == place.name]
        return _pascal(patterns[0] if patterns else "") or _pascal(place.name.removesuffix(SUFFIX)) or "Topic"

    def _claim(self, name: str, place: Place) -> None:
        if self._origins.setdefault(name, place) != place:
            other = self._origins[name]
            raise InvalidSchema(
                place.name, f"its type would be named {name}, as that of {other}; give one a title", place.pointer
            )

    # -- shapes ---------------------------------------------------------------------------------------------------

    def _shape(self, place: Place, name: str, inherited: frozenset[str] | None = None) -> Shape:
        """Return the shape of a subschema, as a definition called `name` if it has members."""
        if place in self._names:
            return Named(self._names[place])
        shape = self._read(place, name, inherited)
        if isinstance(shape, AllOf) or (isinstance(shape, ObjectOf) and shape.members):
            return self._hoisted(place, name, shape)
        return shape

    def _hoisted(self, place: Place, name: str, shape: Shape) -> Named:
        """Return a definition for a subshape, called `name`, with a number if that is taken."""
        number, free = 1, name
        while free in self._reserved or self._origins.setdefault(free, place) != place:
            number += 1
            free = f"{name}{number}"
        self.model.definitions[free] = Definition(free, shape, words_of(self._catalogue.places[place]), place)
        return Named(free)

    def _read(self, place: Place, name: str, inherited: frozenset[str] | None) -> Shape:
        """Return the shape of a schema. `inherited` holds the types that the enclosing schema allows for the same value."""
        schema = self._catalogue.places[place]
        if isinstance(schema, bool):
            return Anything() if schema else Nothing()
        types = self._types(place, schema, inherited)
        parts: list[Shape] = []
        if place in self._catalogue.references:
            parts.append(Named(self._names[self._catalogue.references[place]]))
        if (own := self._own(place, schema, name, types)) != Anything():
            parts.append(own)
        below = types if len(types) < len(_TYPES) else None
        for index in range(len(schema.get("allOf", ()))):
            part = place.below("allOf", index)
            parts.append(Named(self._names[part]) if part in self._names else self._read(part, name, below))
        for keyword in ("anyOf", "oneOf"):
            if keyword in schema:
                parts.append(self._either(place, keyword, schema[keyword], name, below))
        return _all_of(parts)

    def _either(self, place: Place, keyword: str, options: Sequence[Any], name: str, inherited: frozenset[str] | None) -> Shape:
        shapes: list[Shape] = []
        for index, option in enumerate(options):
            title = _pascal(option.get("title", "")) if isinstance(option, dict) else ""
            shapes.append(self._shape(place.below(keyword, index), name + (title or f"Option{index + 1}"), inherited))
        return one_of(shapes)

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
                raise InvalidSchema(
                    place.name, f'{odd[0]} without a type lets every other value through; write "type": "{wanted}"', place.pointer
                )
        return frozenset(_TYPES)

    def _own(self, place: Place, schema: Mapping[str, Any], name: str, types: frozenset[str]) -> Shape:
        """Return what a schema itself states, without its `allOf` and references."""
        if "const" in schema:
            return Exactly(json.dumps(schema["const"]))
        if "enum" in schema:
            return one_of(Exactly(json.dumps(value)) for value in schema["enum"] if _is_of(value, types))
        speaks = (_OF_OBJECTS | _OF_ARRAYS) & schema.keys()
        if len(types) == len(_TYPES) or ("type" not in schema and not speaks):
            if not speaks:
                return Anything()
            types = frozenset({"object"} if _OF_OBJECTS & speaks else {"array"})  # next to a $ref or an allOf that has the type
        shapes: list[Shape] = []
        for kind in _TYPES:
            if kind not in types or (kind == "integer" and "number" in types):
                continue
            if kind == "array":
                shapes.append(self._array(place, schema, name))
            elif kind == "object":
                shapes.append(self._object(place, schema, name, alone=len(types) == 1))
            else:
                shapes.append(Plain(kind))
        return one_of(shapes)

    def _array(self, place: Place, schema: Mapping[str, Any], name: str) -> Shape:
        prefix = tuple(
            self._shape(place.below("prefixItems", index), f"{name}{index + 1}")
            for index in range(len(schema.get("prefixItems", ())))
        )
        rest: Shape | None = Anything()
        if "items" in schema:
            rest = self._shape(place.below("items"), f"{name}Item")
        if rest == Nothing() or (isinstance(most := schema.get("maxItems"), int | float) and most <= len(prefix)):
            rest = None
        return ArrayOf(prefix, min(len(prefix), int(schema.get("minItems", 0))), rest)

    def _object(self, place: Place, schema: Mapping[str, Any], name: str, *, alone: bool) -> Shape:
        required = schema.get("required", ())
        properties = schema.get("properties", {})
        members = [
            Member(
                key,
                self._shape(place.below("properties", key), name + (_pascal(key) or "Member")),
                key in required,
                words_of(part),
            )
            for key, part in properties.items()
        ]
        members += [Member(key, Anything(), True, ()) for key in dict.fromkeys(required) if key not in properties]
        rest: Shape | None = None
        if "additionalProperties" in schema:
            rest = self._shape(place.below("additionalProperties"), f"{name}Value")
        if "patternProperties" in schema:
            rest = Anything()
        shape = ObjectOf(tuple(members), rest)
        if alone or not members:
            return shape
        # One of several types, null mostly: unions are of names.
        return self._hoisted(place, f"{name}Object" if place in self._names else name, shape)


def one_of(shapes: Iterable[Shape]) -> Shape:
    """Return the union of shapes in its simplest form."""
    found: dict[Shape, None] = {}
    for shape in shapes:
        found |= dict.fromkeys(shape.options if isinstance(shape, OneOf) else (shape,))
    if Anything() in found:
        return Anything()
    found.pop(Nothing(), None)
    options = tuple(found)
    return Nothing() if not options else options[0] if len(options) == 1 else OneOf(options)


def _all_of(shapes: Iterable[Shape]) -> Shape:
    found = dict.fromkeys(shapes)
    found.pop(Anything(), None)
    if Nothing() in found:
        return Nothing()
    parts = tuple(found)
    return Anything() if not parts else parts[0] if len(parts) == 1 else AllOf(parts)


def _is_aside(place: Place, root: Place) -> bool:
    """Return whether a place is in a root's definitions, and so reached only by reference."""
    steps = place.pointer[len(root.pointer) :].split("/")[1:]
    return bool(steps) and steps[0] in ("$defs", "definitions")


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
    return text if len(text) <= _MAX_SAID else f"{text[:_MAX_SAID]}…"
