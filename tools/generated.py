"""Pages generated from the code: write one, or check that it matches the code."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path

DOCS = Path(__file__).resolve().parent.parent / "docs"


def row(cells: Sequence[str]) -> str:
    """Return one row of a Markdown table. Text that looks like HTML outside of code is shown as it is."""
    return "| " + " | ".join(re.sub(r"`[^`]*`|<", _shown, cell).replace("|", "\\|") for cell in cells) + " |\n"


def _shown(found: re.Match[str]) -> str:
    return "&lt;" if found[0] == "<" else found[0]


def write_or_check(arguments: Sequence[str], page: Path, wanted: str, source: str, module: str = "") -> int:
    """Write the page, or with `--check` compare it. Return the exit status.

    Args:
        arguments: of the command line.
        page, wanted: the file, and what is to be in it.
        source: its source, for the reader of a stale page.
        module: which writes it; by default the one of tools/ named after the page.
    """
    module = module or f"tools.{page.stem}_page"
    if list(arguments) not in ([], ["--check"]):
        print(f"usage: python -m {module} [--check]", file=sys.stderr)
        return 2
    name = page.relative_to(DOCS.parent) if page.is_relative_to(DOCS) else page.name
    if not arguments:
        page.write_text(wanted, encoding="utf-8")
        return 0
    if page.exists() and page.read_text(encoding="utf-8") == wanted:
        print(f"{name} is up to date.")
        return 0
    print(f"{name} is not what {source} says: run `python -m {module}`.", file=sys.stderr)
    return 1
