"""Check that each claim of docs/guarantees.md names its tests: `python -m tools.claims`, a part of `make docs-check`.

A claim is a sentence, or a row of a table, that says always, never, ever, every or exactly, or has a number. It carries one or
more footnotes, `[^key]`. A definition, `[^key]: …`, names at least one test as `path::name`: a function of a Python file, or the
title of a JavaScript test. Prints a line for each fault, and exits 1 if there is one.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "guarantees.md"

_KEY = re.compile(r"\[\^([\w-]+)\]")
_DEFINITION = re.compile(r"^\[\^([\w-]+)\]: (.*(?:\n    .*)*)", re.MULTILINE)
_TEST = re.compile(r"`([\w./-]+)::([^`]+)`")
# Parts of a sentence whose numbers are names: code, links, faults (F25), sections and promises.
_NAMES = re.compile(r"`[^`]*`|\[[^\]]*\]\([^)]*\)|\[\^[\w-]+\]|\b(?:section|promise)s? \d+(?:(?:,| and| to) \d+)*")
# "One" and "two" are rarely figures; a digit of SHA-256 or F25 is a part of a name.
_CLAIM = re.compile(
    r"\b(?:always|never|ever|every|exactly|three|four|five|six|seven|eight|nine|ten)\b|(?<![\w.-])\d", re.IGNORECASE
)
# The end of a sentence, with the footnotes and the emphasis that follow it.
_SENTENCE = re.compile(r"(?<=[.!?])(\*?(?:\[\^[\w-]+\])*) +(?=[A-Z`*\[])")


def claims(text: str) -> Iterator[str]:
    """Yield the sentences and rows of a page that claim something, each on one line."""
    for part in _parts(text):
        for sentence in _sentences(part):
            if _CLAIM.search(_NAMES.sub("", sentence)):
                yield sentence


def faults(text: str) -> Iterator[str]:
    """Yield a line for each fault of a page.

    Args:
        text: the page. The files that it names are those of the checkout.
    """
    definitions = _DEFINITION.findall(text)
    defined = {key for key, _ in definitions}
    used = set(_KEY.findall(_DEFINITION.sub("", text)))
    for sentence in claims(text):
        if not _KEY.search(sentence):
            yield f"no test is named: {sentence}"
    yield from (f"[^{key}] is used and not defined" for key in sorted(used - defined))
    yield from (f"[^{key}] is defined and not used" for key in sorted(defined - used))
    yield from (f"[^{key}] is defined twice" for key in sorted(defined) if sum(key == each for each, _ in definitions) > 1)
    for key, definition in definitions:
        tests = _TEST.findall(definition)
        if not tests:
            yield f"[^{key}] names no test as `path::name`"
        yield from (f"[^{key}]: there is no {path}::{name}" for path, name in tests if not _exists(path, name))


def _parts(text: str) -> Iterator[str]:
    """Yield the paragraphs, items of lists and rows of tables, each on one line; no headings and no definitions."""
    text = re.sub(r"^```.*?^```$", "", _DEFINITION.sub("", text), flags=re.MULTILINE | re.DOTALL)
    for block in re.split(r"\n{2,}", text):
        if block.lstrip().startswith("#"):
            continue
        if block.lstrip().startswith("|"):
            yield from block.strip().splitlines()[2:]  # below the names of the columns
        else:
            for item in re.split(r"^ *(?:[-*]|\d+\.) ", block, flags=re.MULTILINE):
                yield " ".join(item.split())


def _sentences(part: str) -> Iterator[str]:
    """Yield the sentences of a part. A row of a table is one."""
    if part.startswith("|"):
        yield part
    else:
        yield from _SENTENCE.sub(r"\1\n", part).split("\n")


def _exists(path: str, name: str) -> bool:
    source = _source(path)
    if path.endswith(".py"):
        return name.startswith("test_") and re.search(rf"^ *def {re.escape(name)}\(", source, re.MULTILINE) is not None
    return re.search(rf"\b(?:it|test|describe)\(\s*(?P<quote>[\"'`]){re.escape(name)}(?P=quote)", source) is not None


@cache
def _source(path: str) -> str:
    file = ROOT / path
    return file.read_text("utf-8") if file.is_file() else ""


def main() -> int:
    """Check the page. Return the exit status."""
    found = list(faults(PAGE.read_text("utf-8")))
    for fault in found:
        print(f"docs/guarantees.md: {fault}", file=sys.stderr)
    if not found:
        print("docs/guarantees.md: each claim names a test that exists.")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
