"""Shapes as Python: a msgspec Struct, or a dataclass, for each object with named members, and a map from pattern to type. No
I/O.

The text is the same for the same schemas and imports msgspec only. A value that a schema lets through can be decoded with its
type, and encoded again it is the same value, but for members that the schema does not name. A member that need not be there
is UNSET where it is missing. An integer may be written `27.0`, which msgspec reads as one with `strict=False` only; in an
`enum` or a `const` it may not. `Any` stands for unions that msgspec cannot tell apart, and `dict` for objects whose other
members have a schema, or whose names msgspec cannot have.

A union of objects that each require one member with a text of its own is told apart by that member: a tagged union, Structs
only.
"""

from __future__ import annotations

import json
import keyword
import re
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from enum import StrEnum

from headgate.errors import InvalidSchema

from .catalogue import Catalogue
from .shapes import (
    AllOf,
    Anything,
    ArrayOf,
    Definition,
    Exactly,
    Member,
    Model,
    Named,
    Nothing,
    ObjectOf,
    OneOf,
    Plain,
    Shape,
    one_of,
    read_model,
)

HEAD = """\
# Written by `headgate types --python` from the schemas of topics. Do not edit.
# JSON Schema counts 27.0 as an integer: decode with msgspec.json.decode(…, strict=False), which does too."""
MAP = "TOPICS"
ANY = "typing.Any"
_OBJECT = f"dict[str, {ANY}]"
_PLAIN = {"null": "None", "boolean": "bool", "integer": "int", "number": "float", "string": "str"}
# An attribute of such a name would hide what the annotations beside it mean.
_TAKEN = {"msgspec", "typing", "dataclasses", "bool", "dict", "float", "int", "list", "str", "tuple", *keyword.kwlist}
_HIDDEN = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]+")
# msgspec takes no names of members with these, and no such tags.
_NOT_RENAMED = re.compile(r'[\x00-\x1f\\"]')
_INT64 = 2**63
# Definitions in definitions; deeper down, everything is `Any`.
_DEEPEST = 32


class Kind(StrEnum):
    """The kind of class that an object becomes."""

    STRUCT = "struct"
    DATACLASS = "dataclass"


@dataclass(frozen=True, slots=True)
class _Tag:
    """The member that tells the objects of a union apart, and this one's text."""

    member: str
    text: str


def python_types(catalogue: Catalogue, kind: Kind = Kind.STRUCT) -> str:
    """Return the module of a catalogue's types.

    Raises:
        InvalidSchema: as `read_model`; or a dataclass would need a member whose name is no identifier.
    """
    return _Writer(read_model(catalogue, reserved=(MAP, "True", "False", "None")), kind).module()


class _Writer:
    def __init__(self, model: Model, kind: Kind) -> None:
        self._model, self._kind = model, kind
        self._objects = {name: found for name in model.definitions if (found := self._object(Named(name))) is not None}
        self._tags: dict[str, _Tag] = {}
        self._met: set[str] = set()  # classes that stand in some annotation
        if kind is Kind.STRUCT:
            for definition in model.definitions.values():
                self._find_tags(definition.shape)

    def module(self) -> str:
        """Return the text."""
        lines = [HEAD, "from __future__ import annotations", ""]
        lines += ["import dataclasses", "import typing"] if self._kind is Kind.DATACLASS else ["import typing"]
        lines += ["", "import msgspec"]
        for text in self._classes().values():
            lines += ["", "", *text]
        others = [shape.name for shape in self._model.topics.values() if shape.name not in self._objects]
        if others:
            lines += ["", ""]
        for name in dict.fromkeys(others):
            definition = self._model.definitions[name]
            lines += [*_comment(definition.words, ""), f"{name} = {self._type(Named(name))}"]
        lines += [*([""] if others else ["", ""]), f"{MAP}: dict[str, {ANY}] = {{"]
        lines += [f"    {_literal(pattern)}: {shape.name}," for pattern, shape in self._model.topics.items()]
        return "\n".join([*lines, "}"]) + "\n"

    # -- classes --------------------------------------------------------------------------------------------------

    def _classes(self) -> dict[str, list[str]]:
        """Return the text of each class that a topic's data may have, in the order of their names."""
        found: dict[str, list[str]] = {}
        self._met = {shape.name for shape in self._model.topics.values() if shape.name in self._objects}
        for shape in self._model.topics.values():
            self._type(shape)  # meets the classes inside
        while left := sorted(self._met - found.keys()):
            for name in left:
                found[name] = list(self._class(self._model.definitions[name], self._objects[name]))
        return dict(sorted(found.items()))

    def _class(self, definition: Definition, shape: ObjectOf) -> Iterator[str]:
        tag = self._tags.get(definition.name)
        members = [member for member in shape.members if tag is None or member.name != tag.member]
        members = [member for member in members if member.required or member.shape != Nothing()]
        names = _attributes([member.name for member in members], _TAKEN | self._objects.keys())
        renamed = {ours: member.name for ours, member in zip(names, members, strict=True) if ours != member.name}
        if self._kind is Kind.DATACLASS:
            if renamed:
                name = next(iter(renamed.values()))
                raise InvalidSchema(
                    definition.place.name,
                    f"a dataclass has no member {name!r}, which is no name in Python; a Struct has: leave out --dataclasses",
                    definition.place.pointer,
                )
            yield "@dataclasses.dataclass(kw_only=True)"
            yield f"class {definition.name}:"
        else:
            options = ["kw_only=True"]
            if shape.rest == Nothing():
                options.append("forbid_unknown_fields=True")
            if tag is not None:
                options.append(f"tag_field={_literal(tag.member)}, tag={_literal(tag.text)}")
            if renamed:
                options.append(f"rename={{{', '.join(f'{_literal(ours)}: {_literal(name)}' for ours, name in renamed.items())}}}")
            yield f"class {definition.name}(msgspec.Struct, {', '.join(options)}):"
        yield from _docstring(definition.words or (f"{definition.name}.",))
        if names:
            yield ""
        for name, member in zip(names, members, strict=True):
            yield from _comment(member.words, "    ")
            found = self._type(member.shape)
            if not member.required:
                some, none = found.removesuffix(" | None"), " | None" if found.endswith(" | None") else ""
                found = f"{some} | msgspec.UnsetType{none} = msgspec.UNSET"
            yield f"    {name}: {found}"

    def _find_tags(self, shape: Shape) -> None:
        """Give the objects of each union their tags, where there is a member that tells them apart."""
        for union in _unions(shape):
            names = [option.name for option in union.options if isinstance(option, Named) and option.name in self._objects]
            if len(names) < 2:
                continue
            tags = [
                {_Tag(member.name, text) for member in self._objects[name].members if (text := _text(member))} for name in names
            ]
            for member in sorted({tag.member for tag in tags[0]}):
                chosen = [next((tag for tag in each if tag.member == member), None) for each in tags]
                if None not in chosen and len(set(chosen)) == len(names):
                    found = {name: tag for name, tag in zip(names, chosen, strict=True) if tag is not None}
                    if all(self._tags.get(name, tag) == tag for name, tag in found.items()):
                        self._tags |= found
                        break

    # -- the members of an object -----------------------------------------------------------------------------------

    def _object(self, shape: Shape, depth: int = 0) -> ObjectOf | None:
        """Return a shape as one object with named members; None where it is no such object."""
        if depth > _DEEPEST:
            return None
        match shape:
            case ObjectOf():
                named = shape.members and not any(_NOT_RENAMED.search(member.name) for member in shape.members)
                return shape if named and shape.rest in (None, Nothing()) else None
            case Named():
                return self._object(self._model.definitions[shape.name].shape, depth + 1)
            case AllOf():
                return self._joined(shape, depth)
            case _:
                return None

    def _joined(self, shape: AllOf, depth: int) -> ObjectOf | None:
        """Return the object of all parts, with the members of all; None where a part is something else."""
        members: dict[str, Member] = {}
        closed = False
        for part in shape.parts:
            found = [option if _is_bare(option) else self._object(option, depth + 1) for option in self._options(part)]
            options = [option for option in found if isinstance(option, ObjectOf)]
            if len(options) < len(found):
                return None
            for member in _members_of_any(options):
                known = members.get(member.name)
                members[member.name] = member if known is None else _of_both(known, member)
            closed |= all(option.rest == Nothing() for option in options)
        return ObjectOf(tuple(members.values()), Nothing() if closed else None) if members else None

    def _options(self, shape: Shape, depth: int = 0) -> Sequence[Shape]:
        if isinstance(shape, Named) and depth < _DEEPEST:
            inner = self._model.definitions[shape.name].shape
            return self._options(inner, depth + 1) if isinstance(inner, OneOf | Named) else (inner,)
        return shape.options if isinstance(shape, OneOf) else (shape,)

    # -- annotations ------------------------------------------------------------------------------------------------

    def _type(self, shape: Shape, above: frozenset[str] = frozenset()) -> str:
        """Return an annotation; definitions that are no classes stand in it themselves (`above`: those that it is in)."""
        match shape:
            case Plain():
                return _PLAIN[shape.type]
            case Exactly():
                return _exactly(shape)
            case Named() if shape.name in self._objects:
                self._met.add(shape.name)
                return shape.name
            case Named():
                if shape.name in above or len(above) > _DEEPEST:
                    return ANY  # a type that is in itself and has no name
                return self._type(self._model.definitions[shape.name].shape, above | {shape.name})
            case OneOf():
                return self._union(shape, above)
            case AllOf():
                return self._all(shape, above)
            case ArrayOf():
                return self._array(shape, above)
            case ObjectOf(members=()) if shape.rest not in (None, Nothing()):
                return f"dict[str, {self._type(shape.rest or Anything(), above)}]"
            case ObjectOf():
                return _OBJECT
            case _:
                return ANY

    def _array(self, shape: ArrayOf, above: frozenset[str]) -> str:
        if shape.prefix and shape.rest is None and shape.needed == len(shape.prefix):
            return f"tuple[{', '.join(self._type(place, above) for place in shape.prefix)}]"
        if shape.prefix:
            return f"list[{self._type(one_of([*shape.prefix, shape.rest or Nothing()]), above)}]"
        return f"list[{self._type(shape.rest or Anything(), above)}]"

    def _all(self, shape: AllOf, above: frozenset[str]) -> str:
        """Return the annotation of the one part that is not `Any`, unless it is an object, of which the others may say more."""
        found = {self._type(part, above) for part in shape.parts} - {ANY}
        return found.pop() if len(found) == 1 and found.isdisjoint(self._objects) else ANY

    def _union(self, shape: OneOf, above: frozenset[str]) -> str:
        found: dict[str, None] = {}
        for option, inside in self._flat(shape, above):
            text = self._type(option, inside)
            if text == ANY:
                return ANY
            found[text] = None
        kept = _without_literals_of_wider(list(found))
        objects = [text for text in kept if text.startswith("dict[") or text in self._objects]
        arrays = [text for text in kept if text.startswith(("list[", "tuple["))]
        tagged = {self._tags[text].member for text in objects if text in self._tags}
        together = (
            all(text in self._tags for text in objects)
            and len(tagged) == 1
            and len({self._tags[t] for t in objects}) == len(objects)
        )
        if len(arrays) > 1 or (len(objects) > 1 and not together):
            return ANY
        return " | ".join(sorted(kept, key="None".__eq__))

    def _flat(self, shape: Shape, above: frozenset[str]) -> Iterator[tuple[Shape, frozenset[str]]]:
        """Yield the options of unions in unions, with the definitions that each is in."""
        if isinstance(shape, OneOf):
            for option in shape.options:
                yield from self._flat(option, above)
        elif isinstance(shape, Named) and shape.name not in self._objects and shape.name not in above:
            yield from self._flat(self._model.definitions[shape.name].shape, above | {shape.name})
        else:
            yield shape, above


def _unions(shape: Shape) -> Iterator[OneOf]:
    match shape:
        case OneOf():
            yield shape
            for option in shape.options:
                yield from _unions(option)
        case AllOf():
            for part in shape.parts:
                yield from _unions(part)
        case ArrayOf():
            for place in (*shape.prefix, *([shape.rest] if shape.rest else [])):
                yield from _unions(place)
        case ObjectOf():
            for part in (*(member.shape for member in shape.members), *([shape.rest] if shape.rest else [])):
                yield from _unions(part)


def _is_bare(shape: Shape) -> bool:
    """Return whether a shape is an object of which nothing is said, or not much: in a join it adds nothing."""
    return isinstance(shape, ObjectOf) and not shape.members and shape.rest in (None, Nothing())


def _members_of_any(options: Sequence[ObjectOf]) -> Iterator[Member]:
    """Yield the members of objects of which a value is one, each with the shapes that it can have."""
    for member in {member.name: member for option in reversed(options) for member in option.members}.values():
        shapes: list[Shape] = []
        required = True
        for option in options:
            own = next((each for each in option.members if each.name == member.name), None)
            required &= own is not None and own.required
            shapes.append(own.shape if own else option.rest or Anything())
        yield Member(member.name, one_of(shapes), required, member.words if len(options) == 1 else ())


def _of_both(known: Member, other: Member) -> Member:
    """Return a member that two parts speak of: as either says, unless what they say may be about parts of it."""
    shape = other.shape if isinstance(known.shape, Anything) else known.shape
    if other.shape not in (shape, Anything()) and not _is_plain(shape):
        shape = Anything()
    return Member(known.name, shape, known.required or other.required, known.words or other.words)


def _is_plain(shape: Shape) -> bool:
    return isinstance(shape, Plain | Exactly) or (isinstance(shape, OneOf) and all(map(_is_plain, shape.options)))


def _text(member: Member) -> str | None:
    """Return the one text that a required member can have."""
    value = member.shape.value if member.required and isinstance(member.shape, Exactly) else None
    return value if isinstance(value, str) and not _NOT_RENAMED.search(value) else None


def _exactly(shape: Exactly) -> str:
    value = shape.value
    if value is None:
        return "None"
    if isinstance(value, str):
        return f"typing.Literal[{_literal(value)}]"
    if type(value) is int and -_INT64 <= value < _INT64:  # msgspec has no larger ones as literals
        return f"typing.Literal[{value}]"
    return {bool: "bool", int: "int", float: "float", list: f"list[{ANY}]", dict: _OBJECT}[type(value)]


def _without_literals_of_wider(texts: Sequence[str]) -> list[str]:
    """Return the options of a union, its literals together; those that a wider option holds are left out."""
    literals = [text.removeprefix("typing.Literal[")[:-1] for text in texts if text.startswith("typing.Literal[")]
    kept = [text for text in literals if ("str" if text.startswith('"') else "int") not in texts]
    if "float" in texts and any(not text.startswith('"') for text in kept):
        kept = [text for text in kept if text.startswith('"')]
    others = [text for text in texts if not text.startswith("typing.Literal[") and not (text == "int" and "float" in texts)]
    return [*([f"typing.Literal[{', '.join(kept)}]"] if kept else []), *others]


def _attributes(names: Sequence[str], taken: Set[str]) -> list[str]:
    """Return names of attributes for names of members: the same where that is possible."""
    found: dict[str, None] = {}
    for name in names:
        ours = re.sub(r"[^A-Za-z0-9_]", "_", name).lstrip("_") or "member"
        ours = f"member_{ours}" if ours[0].isdigit() else f"{ours}_" if ours in taken else ours
        while ours in found or (ours != name and ours in names):
            ours += "_"
        found[ours] = None
    return list(found)


def _literal(text: str) -> str:
    """Return text as a Python literal, with double quotes, and with no character that an editor would hide."""
    shown = json.dumps(text, ensure_ascii=False)
    return "".join(character if character.isprintable() else f"\\U{ord(character):08x}" for character in shown)


def _docstring(words: Sequence[str]) -> Iterator[str]:
    lines = [line for text in words for line in text.splitlines() if line.strip()]
    shown = [_safe(line).replace("\\", "\\\\").replace('"', '\\"') for line in lines]
    if len(shown) == 1:
        yield f'    """{shown[0]}"""'
    else:
        yield f'    """{shown[0]}'
        yield from ("", *(f"    {line}" for line in shown[1:]), '    """')


def _comment(words: Sequence[str], indent: str) -> Iterator[str]:
    yield from (f"{indent}# {_safe(line)}" for text in words for line in text.splitlines() if line.strip())


def _safe(line: str) -> str:
    """Return a line that stays one."""
    return _HIDDEN.sub(" ", line).strip()
