"""The tables of options in docs/consumers.md, written from what consumers declare: no option is described twice.

The page is written by hand, but for what stands between `<!-- options of X -->` and `<!-- end -->`; X is a type of consumer,
or `every consumer`. `python -m tools.consumers_page` writes those parts; with `--check` it writes nothing and exits 1 if they
differ from the code.
"""

from __future__ import annotations

import dataclasses
import re
import sys
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from headgate.consumers.process.config import TYPES, TableOptions, load_type
from headgate.consumers.work.spec import RunnerOptions

from .generated import row, write_or_check
from .settings_page import describe_options

PAGE = Path(__file__).resolve().parent.parent / "docs" / "consumers.md"
EVERY = "every consumer"
BLOCK = re.compile(r"(<!-- options of (.+?) -->\n).*?(<!-- end -->)", re.DOTALL)
LONGEST_DEFAULT = 40
HEAD = "| option | default | expected | description |\n|---|---|---|---|\n"


def filled(page: str) -> str:
    """Return the page with its tables as they must be.

    Raises:
        ValueError: a table is missing, or of no known type.
    """
    asked = [found[2] for found in BLOCK.finditer(page)]
    if sorted(asked) != sorted([EVERY, *TYPES]):
        raise ValueError(f"docs/consumers.md has tables of {', '.join(asked)}; expected {', '.join([EVERY, *TYPES])}")
    return BLOCK.sub(lambda found: f"{found[1]}\n{_tables(found[2])}\n{found[3]}", page)


def _tables(name: str) -> str:
    if name == EVERY:
        return HEAD + "".join([*_rows(TableOptions), *_rows(RunnerOptions)])
    declared = load_type(name).Options
    parts = [HEAD + "".join(_rows(declared))]
    parts += [
        f"\nIn each `[[consumers.<name>.{option}]]`:\n\n{HEAD}{''.join(_rows(inner))}" for option, inner in _inner(declared)
    ]
    return "".join(parts)


def _rows(declared: type[Any]) -> Iterator[str]:
    for name, default, expected, doc in describe_options(declared):
        shown = "required" if default is None else "not set" if not default else f"`{default}`"
        yield row((f"`{name}`", shown if len(shown) <= LONGEST_DEFAULT else "built in", expected, doc))


def _inner(declared: type[Any]) -> Iterator[tuple[str, type[Any]]]:
    """Yield the options that take lists of tables, with the declarations of each table."""
    for name, kind in typing.get_type_hints(declared).items():
        for argument in typing.get_args(kind):
            if dataclasses.is_dataclass(argument) and isinstance(argument, type) and "expected" in _metadata(argument):
                yield name, argument


def _metadata(declared: type[Any]) -> dict[str, Any]:
    first = next(iter(dataclasses.fields(declared)), None)
    return dict(first.metadata) if first else {}


def main(arguments: list[str]) -> int:
    """Write the page, or with `--check` compare it. Return the exit status."""
    return write_or_check(arguments, PAGE, filled(PAGE.read_text(encoding="utf-8")), "the options of the consumers")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
