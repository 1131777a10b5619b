"""Shapes as TypeScript: the map of topics for `connect<Topics>()`, and a type per definition. No I/O.

The output is deterministic, compiles in strict mode with exactOptionalPropertyTypes, and imports nothing. `unknown` stands for
what types cannot express. Members that a schema does not name are in no type, unless its `additionalProperties` describes them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence

from .catalogue import Catalogue
from .shapes import AllOf, Anything, ArrayOf, Definition, Exactly, Named, Nothing, ObjectOf, OneOf, Plain, Shape, read_model

HEAD = "// Written by `headgate types` from the schemas of topics. Do not edit."
MAP = "Topics"
_PLAIN = {"null": "null", "boolean": "boolean", "integer": "number", "number": "number", "string": "string"}
_IDENTIFIER = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*", re.ASCII)
# Line terminators of JavaScript, and characters that editors hide.
_BREAKS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]+")


def typescript(catalogue: Catalogue) -> str:
    """Return the module of a catalogue's types.

    Raises:
        InvalidSchema: as `read_model`.
    """
    model = read_model(catalogue, reserved=(MAP,))
    lines = [HEAD, "", "/** Patterns of topics, and the data of their events. */", f"export interface {MAP} {{"]
    lines += [f"  {json.dumps(pattern)}: {shape.name};" for pattern, shape in model.topics.items()]
    lines.append("}")
    for definition in model.definitions.values():
        lines += ["", *_definition(definition)]
    return "\n".join(lines) + "\n"


def _definition(definition: Definition) -> Iterator[str]:
    yield from _comment(definition.words, "")
    if isinstance(definition.shape, ObjectOf) and definition.shape.members:
        yield f"export interface {definition.name} {{"
        comments = [*(list(_comment(member.words, "  ")) for member in definition.shape.members), []]
        for comment, line in zip(comments, _fields(definition.shape), strict=False):
            yield from comment
            yield f"  {line}"
        yield "}"
    else:
        yield f"export type {definition.name} = {_type(definition.shape)};"


def _fields(shape: ObjectOf) -> Iterator[str]:
    """Yield the members of an object and the index signature for others, which must include the named ones."""
    for member in shape.members:
        name = member.name if _IDENTIFIER.fullmatch(member.name) else json.dumps(member.name)
        yield f"{name}{'' if member.required else '?'}: {_type(member.shape)};"
    if shape.rest is not None and shape.rest != Nothing():
        yield "[name: string]: unknown;"


def _type(shape: Shape) -> str:
    match shape:
        case Anything():
            return "unknown"
        case Nothing():
            return "never"
        case Plain():
            return _PLAIN[shape.type]
        case Exactly():
            return shape.text
        case Named():
            return shape.name
        case OneOf():
            return " | ".join(_grouped(option, AllOf) for option in shape.options)
        case AllOf():
            return " & ".join(_grouped(part, OneOf) for part in shape.parts)
        case ArrayOf():
            return _array(shape)
        case ObjectOf(members=()):
            rest = shape.rest if shape.rest is not None else Anything()
            return f"{{ [name: string]: {_type(rest)} }}"
        case ObjectOf():
            return f"{{ {' '.join(_fields(shape))} }}"


def _array(shape: ArrayOf) -> str:
    if not shape.prefix:
        return "[]" if shape.rest is None else f"{_grouped(shape.rest, AllOf, OneOf)}[]"
    places = [
        _type(place) if index < shape.needed else f"({_type(place)})?" if isinstance(place, OneOf | AllOf) else f"{_type(place)}?"
        for index, place in enumerate(shape.prefix)
    ]
    if shape.rest is not None:
        places.append(f"...{_grouped(shape.rest, AllOf, OneOf)}[]")
    return f"[{', '.join(places)}]"


def _grouped(shape: Shape, *kinds: type) -> str:
    text = _type(shape)
    return f"({text})" if isinstance(shape, kinds) else text


def _comment(words: Sequence[str], indent: str) -> Iterator[str]:
    lines = [_safe(line) for text in words for line in text.splitlines() if line.strip()]
    if len(lines) == 1:
        yield f"{indent}/** {lines[0]} */"
    elif lines:
        yield f"{indent}/**"
        yield from (f"{indent} * {line}" for line in lines)
        yield f"{indent} */"


def _safe(line: str) -> str:
    """Return a line that neither ends a comment nor begins a line of code."""
    return _BREAKS.sub(" ", line).replace("*/", "*\u2215").strip()
