"""How the prose of the code reads: `python -m tools.words [FOLDER …]` counts constructions in comments and docstrings.

For each construction it prints how often it occurs in 1,000 sentences, with the same count in h11, websockets and Trio. Without
a folder it reads the product. `--lines NAME` prints the sentences with one construction, each with its file and line.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PRODUCT = ("gateway/headgate", "server/headgate_server")


class Construction(NamedTuple):
    """Something to count, and how often h11, websockets and Trio have it in 1,000 sentences."""

    name: str
    pattern: re.Pattern[str]
    anchors: tuple[int, int, int]


CONSTRUCTIONS = (
    Construction("colon", re.compile(r"\w: (?=[a-z])"), (106, 76, 98)),
    Construction("that-is", re.compile(r"\w+ that (?:is|are|has|have|was|were)\b"), (9, 1, 13)),
    Construction("nobody", re.compile(r"\b(?:nobody|somebody|anybody|everybody|whoever|whose|whosever)\b", re.I), (2, 1, 3)),
    Construction("tell", re.compile(r"\b(?:tell|tells|told|telling)\b", re.I), (4, 0, 1)),
    Construction("anew", re.compile(r"\b(?:anew|meanwhile|of (?:its|their|his) own)\b", re.I), (2, 1, 2)),
    Construction("behind", re.compile(r"\bbehind\b", re.I), (2, 0, 1)),
)
# Lines of a docstring without sentences: a heading such as "Args:", and a diagram.
_HEADING = re.compile(r"^\s*(?:Args|Attributes|Raises|Returns|Yields):\s*$")
# Labels that glue no clauses: the names in "Args" and "Raises", and the In and Out of a module.
_LABEL = re.compile(r"^ {4}[\w.*]+(?:, [\w.*]+)*: |\b(?:In|Out): ", re.MULTILINE)
_DRAWING = re.compile(r"[│┌└►▲▼─]|^ {4,}\S+.*──")
_CODE = re.compile(r"`[^`]*`")
_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z`\"'(])|\n\s*\n")


class Sentence(NamedTuple):
    """A sentence of the prose, and where its comment or docstring begins."""

    text: str
    line: int


def sentences(source: str) -> Iterator[Sentence]:
    """Yield the sentences of the comments and docstrings of a Python file. What is `code` in them reads as CODE."""
    for text, line in _prose(source):
        kept = "\n".join(each for each in text.split("\n") if not (_HEADING.match(each) or _DRAWING.search(each)))
        kept = _LABEL.sub("", kept)
        for sentence in _END.split(_CODE.sub("CODE", kept)):
            words = " ".join(sentence.split())
            if len(words.split()) > 2:
                yield Sentence(words, line)


def per_thousand(found: list[Sentence], construction: Construction) -> int:
    """Return how often a construction occurs in 1,000 sentences."""
    return round(1000 * sum(len(construction.pattern.findall(each.text)) for each in found) / max(len(found), 1))


def _prose(source: str) -> Iterator[tuple[str, int]]:
    for node in ast.walk(ast.parse(source)):  # docstrings, and the notes of attributes
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield inspect.cleandoc(node.value.value), node.lineno
    block: list[str] = []
    begins = last = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and not token.string.startswith(("#!", "# noqa", "# type:")):
            if block and (token.start[0] != last + 1 or token.line.strip() != token.string):
                yield " ".join(block), begins
                block = []
            begins, last = (begins if block else token.start[0]), token.start[0]
            block.append(token.string.lstrip("# "))
    if block:
        yield " ".join(block), begins


def main(arguments: list[str]) -> int:
    """Print the table, or the sentences with one construction."""
    by_name = {each.name: each for each in CONSTRUCTIONS}
    parser = argparse.ArgumentParser(prog="python -m tools.words", description=__doc__)
    parser.add_argument("--lines", metavar="NAME", choices=by_name, help=f"one of {', '.join(by_name)}")
    parser.add_argument("places", metavar="FOLDER", nargs="*", type=Path, default=[ROOT / place for place in PRODUCT])
    given = parser.parse_args(arguments)
    files = sorted(path for place in given.places for path in (place.rglob("*.py") if place.is_dir() else [place]))
    found = {path: list(sentences(path.read_text("utf-8"))) for path in files}
    if chosen := by_name.get(given.lines):
        for path, all_of_it in found.items():
            for sentence in all_of_it:
                if chosen.pattern.search(sentence.text):
                    print(f"{path}:{sentence.line}: {sentence.text}")
        return 0
    everything = [sentence for all_of_it in found.values() for sentence in all_of_it]
    print(f"{len(everything):,} sentences\n\n| in 1,000 sentences | here | h11, websockets, Trio |\n|---|---|---|")
    for construction in CONSTRUCTIONS:
        anchors = ", ".join(map(str, construction.anchors))
        print(f"| {construction.name} | {per_thousand(everything, construction)} | {anchors} |")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
