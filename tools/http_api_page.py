"""The reference in docs/http-api.md, written from the table of operations: nothing is described twice.

The page is written by hand, but for what stands between `<!-- operations -->`, `<!-- types -->` or `<!-- codes -->` and
`<!-- end -->`. `python -m tools.http_api_page` writes those parts; with `--check` it writes nothing and exits 1 if they
differ from the code.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from headgate_server.api.v1.openapi import cost_words, parameters, refusals, scope_words
from headgate_server.api.v1.operation import Operation
from headgate_server.api.v1.problems import descriptions
from headgate_server.api.v1.table import OPERATIONS, openapi

from .generated import row, write_or_check

PAGE = Path(__file__).resolve().parent.parent / "docs" / "http-api.md"
BLOCK = re.compile(r"(<!-- (operations|types|codes) -->\n).*?(<!-- end -->)", re.DOTALL)
# Answers that every operation may give, and that a table need not repeat.
EVERYWHERE = {400, 401, 403, 406, 408, 413, 415, 422, 429, 500, 502, 503}


def filled(page: str) -> str:
    """Return the page with its generated parts as they must be.

    Raises:
        ValueError: a part is missing, or there twice.
    """
    asked = [found[2] for found in BLOCK.finditer(page)]
    if sorted(asked) != ["codes", "operations", "types"]:
        raise ValueError(f"docs/http-api.md has the parts {', '.join(asked)}; expected operations, types, codes")
    parts = {"operations": _operations, "types": _types, "codes": _codes}
    return BLOCK.sub(lambda found: f"{found[1]}\n{parts[found[2]]()}\n{found[3]}", page)


def _operations() -> str:
    groups = list(dict.fromkeys(operation.group for operation in OPERATIONS))
    return "\n".join(_group(name, [each for each in OPERATIONS if each.group == name]) for name in groups)


def _group(name: str, operations: list[Operation]) -> str:
    shown = name.removesuffix(".json")
    return f"### {shown}\n\n| request | does | needs | answers |\n|---|---|---|---|\n" + "".join(
        row(
            (
                f"`{each.method} {each.path}`" + _asked(each),
                " ".join(part for part in (f"{each.summary}.", each.about, cost_words(each)) if part),
                scope_words(each),
                _answers(each),
            )
        )
        for each in operations
    )


def _asked(operation: Operation) -> str:
    named = [each for each in parameters(operation) if each["in"] != "path"]
    query = ", ".join(f"`{each['name']}`" + ("" if each["required"] else "?") for each in named)
    body = "" if operation.body is None else f"body {_name(operation.body)}"
    said = "; ".join(part for part in (body, query) if part)
    return f" {said}" if said else ""


def _answers(operation: Operation) -> str:
    good = {operation.status: operation.returns, **operation.also}
    shown = [f"{status} {_name(kind)}".strip() for status, kind in sorted(good.items())]
    return ", ".join([*shown, *(str(status) for status in refusals(operation) if status not in EVERYWHERE)])


def _name(kind: Any) -> str:
    """Return the name of a type, or the members of one without a name in the document."""
    if kind is None or kind == dict[str, Any]:
        return "" if kind is None else "an object"
    return f"`{kind.__name__}`" if kind.__doc__ else f"with {_members(msgspec.json.schema(kind)['$defs'][kind.__name__])}"


def _types() -> str:
    schemas: Mapping[str, Any] = openapi()["components"]["schemas"]
    lines = []
    for name, schema in schemas.items():
        lines.append(row((f"`{name}`", schema["description"].partition(" Attributes:")[0], _members(schema))))
    return "| type | is | members |\n|---|---|---|\n" + "".join(lines)


def _members(schema: Mapping[str, Any]) -> str:
    required = schema.get("required", ())
    members = schema.get("properties", {}).items()
    return ", ".join(f"`{name}`{'' if name in required else '?'} {_kind(each)}" for name, each in members)


def _kind(schema: Mapping[str, Any]) -> str:
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "anyOf" in schema:
        return " or ".join(_kind(each) for each in schema["anyOf"])
    if "enum" in schema:
        return " or ".join(f"`{msgspec.json.encode(each).decode()}`" for each in schema["enum"])
    if schema.get("type") == "array":
        return f"list of {_kind(schema.get('items', {}))}"
    if schema.get("type") == "object":
        return f"object of {_kind(schema['additionalProperties'])}" if schema.get("additionalProperties") else "object"
    return str(schema.get("type", "any JSON"))


def _codes() -> str:
    found = descriptions().items()
    return "| code | status | meaning |\n|---|---|---|\n" + "".join(
        row((f"`{code}`", str(status), meaning)) for code, (status, meaning) in found
    )


def main(arguments: list[str]) -> int:
    """Write the page, or with `--check` compare it. Return the exit status."""
    return write_or_check(arguments, PAGE, filled(PAGE.read_text(encoding="utf-8")), "the table of operations")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
