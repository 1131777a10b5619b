"""Draw the Mermaid diagrams of docs/ as SVG files for the documentation site: `make diagrams`.

In: the ```mermaid blocks of the pages, which GitHub draws by itself. Out: `docs/diagrams/<page>-<number>.svg`, drawn by Mermaid
in the tests' own browser. Colours are the site's CSS variables, so that a diagram is right in light and dark. Each file names the
SHA-256 of its block: with `--check` nothing is drawn, and a file whose block has changed is named.
"""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from .generated import DOCS

MERMAID = DOCS.parent / "build" / "mermaid" / "node_modules" / "mermaid" / "dist" / "mermaid.min.js"
BLOCK = re.compile(r"^```mermaid\n(.*?)^```$", re.MULTILINE | re.DOTALL)
WIDTH = re.compile(r' width="([0-9.]+)"')
TITLE = re.compile(r"^\s*accTitle: (.+)$", re.MULTILINE)
# Mermaid computes with colours, so it gets these, and the file has the variables of site/site.css in their places.
COLOURS = {"#010203": "--d-ink", "#010204": "--d-soft", "#010205": "--d-box", "#010206": "--d-line", "#010207": "--d-accent-wash"}
INK, SOFT, BOX, LINE, WASH = COLOURS
CONFIG = {
    "startOnLoad": False,
    "theme": "base",
    "fontFamily": "system-ui, sans-serif",
    "htmlLabels": False,
    "flowchart": {"useMaxWidth": False, "nodeSpacing": 22, "rankSpacing": 34, "wrappingWidth": 150, "padding": 8},
    "sequence": {"useMaxWidth": False, "mirrorActors": False, "wrap": True, "width": 150, "actorMargin": 30, "messageMargin": 26},
    "state": {"useMaxWidth": False},
    "themeVariables": {
        "fontSize": "15px", "background": BOX, "primaryColor": BOX, "primaryTextColor": INK, "primaryBorderColor": LINE,
        "secondaryColor": BOX, "tertiaryColor": BOX, "lineColor": SOFT, "textColor": INK, "mainBkg": BOX, "nodeBorder": LINE,
        "nodeTextColor": INK, "edgeLabelBackground": BOX, "actorBkg": BOX, "actorBorder": LINE, "actorTextColor": INK,
        "actorLineColor": LINE, "signalColor": SOFT, "signalTextColor": INK, "noteBkgColor": WASH, "noteBorderColor": LINE,
        "noteTextColor": INK, "labelBoxBkgColor": BOX, "labelBoxBorderColor": LINE, "labelTextColor": INK, "loopTextColor": INK,
        "transitionColor": SOFT, "transitionLabelColor": INK, "stateLabelColor": INK, "stateBkg": BOX,
        "labelBackgroundColor": BOX, "specialStateColor": SOFT, "innerEndBackground": BOX, "compositeBackground": BOX,
        "altBackground": BOX,
    },
}  # fmt: skip


class Diagram(NamedTuple):
    """A block of a page."""

    name: str
    source: str

    @property
    def title(self) -> str:
        """What it shows, in words.

        Raises:
            ValueError: the block does not name it.
        """
        title = TITLE.search(self.source)
        if title is None or "accDescr" not in self.source:
            raise ValueError(f"{self.name}: expected lines accTitle and accDescr, for those who cannot see it")
        return title[1]

    @property
    def digest(self) -> str:
        """What its file must name."""
        return hashlib.sha256(self.source.encode()).hexdigest()

    @property
    def path(self) -> Path:
        """Its file."""
        return DOCS / "diagrams" / f"{self.name}.svg"

    def is_drawn(self) -> bool:
        """Return whether the file is that of this block."""
        return self.path.exists() and f'data-source="{self.digest}"' in self.path.read_text("utf-8")


def diagrams() -> Iterator[Diagram]:
    """Yield all diagrams of docs/."""
    for page in sorted(DOCS.glob("**/*.md")):
        for number, block in enumerate(BLOCK.finditer(page.read_text("utf-8")), 1):
            yield Diagram(f"{page.stem}-{number}", block[1])


def as_file(svg: str, diagram: Diagram) -> str:
    """Return what Mermaid has drawn, as the site shows it: in its colours, and as large as its letters need."""
    for colour, variable in COLOURS.items():
        value = int(colour[1:], 16)
        rgb = f"rgb({value >> 16}, {value >> 8 & 255}, {value & 255})"
        svg = svg.replace(colour, f"var({variable})").replace(rgb, f"var({variable})")
    svg = re.sub(r' data-[\w-]+="[^"]*"', "", svg)  # Mermaid's own notes on places
    head, end, rest = svg.partition(">")
    head = re.sub(r' (role|class|aria-roledescription|aria-labelledby|style|height)="[^"]*"', "", head)
    # Letters of 15 px are not to become smaller than 9.
    head = WIDTH.sub(lambda found: f' style="max-width:{float(found[1]):.0f}px;min-width:{0.6 * float(found[1]):.0f}px"', head)
    return f'{head} data-source="{diagram.digest}"{end}{rest}\n'


def draw() -> None:
    """Draw every diagram with a changed block."""
    from playwright.sync_api import sync_playwright

    from tests.support.chromium import BROWSER_SWITCHES

    from . import chromium

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium.find(), args=list(BROWSER_SWITCHES))
        page = browser.new_page()
        page.add_script_tag(path=MERMAID)
        page.evaluate("config => mermaid.initialize(config)", CONFIG)
        for diagram in diagrams():
            if not diagram.is_drawn():
                drawn = page.evaluate("([id, text]) => mermaid.render(id, text)", [f"d-{diagram.name}", diagram.source])
                diagram.path.write_text(as_file(drawn["svg"], diagram), "utf-8")
                print(f"wrote {diagram.path.relative_to(DOCS.parent)}: {diagram.title}")
        browser.close()


def main(arguments: list[str]) -> int:
    """Draw, or with `--check` name the outdated diagrams. Return the exit status."""
    if arguments != ["--check"]:
        draw()
        return 0
    stale = [diagram.name for diagram in diagrams() if not diagram.is_drawn()]
    drawn = {path.stem for path in (DOCS / "diagrams").glob("*-[0-9].svg")} - {diagram.name for diagram in diagrams()}
    for name in stale:
        print(f"docs/diagrams/{name}.svg is not what its page says: run `make diagrams`.", file=sys.stderr)
    for name in sorted(drawn):
        print(f"docs/diagrams/{name}.svg is of no page: remove it.", file=sys.stderr)
    return 1 if stale or drawn else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
