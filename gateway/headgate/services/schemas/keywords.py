"""The keywords of JSON Schema 2020-12: those that contain schemas, those that are read, and those refused. No I/O.

An unknown keyword is refused with the nearest known one, because `requierd` would otherwise allow everything. An application's
own keywords begin with `x-`.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from typing import Any

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
    """Yield each direct subschema: its path, the schema, and whether it constrains the same value."""
    for keyword, value in schema.items():
        in_place = keyword in _IN_PLACE
        if keyword in _ONE:
            yield (keyword,), value, in_place
        elif keyword in _LIST:
            yield from (((keyword, str(index)), part, in_place) for index, part in enumerate(value))
        elif keyword in _BY_NAME:
            yield from (((keyword, name), part, in_place) for name, part in value.items())


def keyword_fault(schema: Mapping[str, Any], *, root: bool) -> str | None:
    """Return the fault in the keywords of one schema and what is allowed, or None."""
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
