"""Checks values against schemas, and schemas against the dialect. Only this file uses jsonschema-rs.

In: a catalogue. Out: one `Validator` for each of its documents, and the faults of an invalid document. Nothing is fetched,
because catalogue.py refuses references that lead out of the catalogue. `pattern` is matched in linear time for any event, so
look-around and back-references are refused. `format` is checked.

The keywords of JSON Schema 2020-12 either contain schemas, are read, or are refused. An unknown keyword is refused with the
nearest known one, because `requierd` would otherwise allow everything. An application's own keywords begin with `x-`.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn

import jsonschema_rs

from headgate.errors import InvalidSchema

# Replaces an event's values in a reason, because errors are sent to clients and logged.
MASK = "the value"

# The library searches the place of a fault in values of at most this many levels. It tries every combination of the options of
# each level. Under a schema that refers to itself in two options, 12 levels take 0.1 s of CPU, and each two more five times as
# long. `is_valid` does not.
_MAX_LEVELS = 6
_TOO_DEEP = f"{MASK} does not hold; no place is named in one of more than {_MAX_LEVELS} levels"
_TYPES = "expected array, boolean, integer, null, number, object or string, or a list of these"
_PATTERNS = jsonschema_rs.RegexOptions()


DIALECT = "https://json-schema.org/draft/2020-12/schema"
TOPIC = "x-topic"

_ONE = {
    "additionalProperties", "contains", "contentSchema", "else", "if", "items", "not", "propertyNames", "then",
    "unevaluatedItems", "unevaluatedProperties",
}  # fmt: skip
_LIST = {"allOf", "anyOf", "oneOf", "prefixItems"}
_BY_NAME = {"$defs", "definitions", "dependentSchemas", "patternProperties", "properties"}
# These constrain the same value, so a circular reference through them is meaningless.
_IN_PLACE = {"allOf", "anyOf", "dependentSchemas", "else", "if", "not", "oneOf", "then"}
# Shown as comments, because types cannot express them.
DESCRIBED_IN_WORDS = (
    "format", "pattern", "minLength", "maxLength", "minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum", "multipleOf",
    "minItems", "maxItems", "uniqueItems", "minContains", "maxContains", "minProperties", "maxProperties", "contentEncoding",
    "contentMediaType", "default",
)  # fmt: skip
# Named in a comment, without the value.
NAMED_IN_WORDS = (
    "contains", "contentSchema", "dependentRequired", "dependentSchemas", "if", "not", "patternProperties", "propertyNames",
    "unevaluatedItems", "unevaluatedProperties",
)  # fmt: skip
_OTHERS = {
    "$anchor", "$comment", "$id", "$ref", "$schema", "const", "dependentRequired", "deprecated", "description", "enum",
    "examples", "readOnly", "required", "title", "type", "writeOnly",
}  # fmt: skip
_KNOWN = _ONE | _LIST | _BY_NAME | set(DESCRIBED_IN_WORDS) | _OTHERS
_REFUSED = {
    "$dynamicRef": "$ref",
    "$dynamicAnchor": "$anchor",
    "$recursiveRef": "$ref",
    "$recursiveAnchor": "$anchor",
    "$vocabulary": "keywords that begin with x-",
    "additionalItems": "items beside prefixItems",
    "dependencies": "dependentRequired or dependentSchemas",
    "id": "$id",
}


def parts(schema: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], Any, bool]]:
    """Yield the path of each direct subschema, the schema, and whether it constrains the same value."""
    for keyword, value in schema.items():
        in_place = keyword in _IN_PLACE
        if keyword in _ONE:
            yield (keyword,), value, in_place
        elif keyword in _LIST:
            yield from (((keyword, str(index)), part, in_place) for index, part in enumerate(value))
        elif keyword in _BY_NAME:
            yield from (((keyword, name), part, in_place) for name, part in value.items())


def keyword_fault(schema: Mapping[str, Any], *, root: bool) -> str | None:
    """Return the fault in the keywords of one schema with the allowed ones, or None."""
    for keyword in schema:
        if keyword in _REFUSED:
            return f"{keyword} is not supported; write {_REFUSED[keyword]}"
        if keyword in ("$id", "$schema", TOPIC) and not root:
            return f"{keyword} is allowed at the top of a file only"
        if keyword not in _KNOWN and not keyword.startswith("x-"):
            close = difflib.get_close_matches(keyword, _KNOWN, 1, 0.7)
            hint = f"did you mean {close[0]}?" if close else "keywords of your own begin with x-"
            return f"{keyword[:80]!r} is no keyword of JSON Schema; {hint}"
    return None


def dialect_fault(schema: Mapping[str, Any]) -> str | None:
    """Return the fault in `$schema`, or None. Checked first, because a library might fetch another dialect."""
    dialect = schema.get("$schema", DIALECT)
    if isinstance(dialect, str) and dialect.rstrip("#") == DIALECT:
        return None
    return f"$schema is {str(dialect)[:80]!r}; expected {DIALECT!r}, or no $schema"


# Checks values against one document.
Validator = jsonschema_rs.Draft202012Validator
_META = jsonschema_rs.Draft202012Validator({"$ref": DIALECT}, offline=True)


def fault_of(validator: Validator, value: object) -> tuple[Sequence[str | int], str] | None:
    """Return the path and reason of a value's first fault, or None. Takes a microsecond for a small value."""
    if validator.is_valid(value):
        return None
    if _is_deeper(value, _MAX_LEVELS):
        return (), _TOO_DEEP
    error = next(iter(validator.iter_errors(value)))
    return error.instance_path, error.message


def check_schema(name: str, schema: object) -> None:
    """Check that a document is a schema of JSON Schema 2020-12, by the dialect's own schema.

    Raises InvalidSchema with the place in the file and the reason.
    """
    error = next(iter(_META.iter_errors(schema)), None)
    if error is not None:
        reason = _TYPES if error.instance_path[-1:] == ["type"] else error.message
        raise InvalidSchema(name, reason, pointer(error.instance_path))


def validators(schemas: Mapping[str, tuple[str, Any]]) -> Mapping[str, Validator]:
    """Return a validator for each document, given as name → (address, schema).

    Raises InvalidSchema if a pattern cannot be matched in linear time, or if the library refuses something else.
    """
    registry = jsonschema_rs.Registry(list(schemas.values()), retriever=_refuse)
    by_name: dict[str, Validator] = {}
    for name, (address, schema) in schemas.items():
        try:
            by_name[name] = Validator(
                schema, registry=registry, base_uri=address, mask=MASK, validate_formats=True, pattern_options=_PATTERNS,
                offline=True,
            )  # fmt: skip
        except jsonschema_rs.ValidationError as error:
            hint = "; a pattern may have neither look-around nor back-references" if "regex" in error.message else ""
            raise InvalidSchema(name, error.message.replace(MASK, "this", 1) + hint, pointer(error.instance_path)) from error
    return by_name


def _is_deeper(value: object, levels: int) -> bool:
    """Return whether containers are nested more deeply than `levels`."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return inner is not None and (levels == 0 or any(_is_deeper(each, levels - 1) for each in inner))


def _refuse(address: str) -> NoReturn:
    """Fetch nothing."""
    raise LookupError(f"{address}: nothing is fetched")


def pointer(path: Sequence[str | int]) -> str:
    """Return a path as a JSON Pointer (RFC 6901)."""
    return "".join(f"/{str(step).replace('~', '~0').replace('/', '~1')}" for step in path)
