"""Mermaid diagrams of the pages are drawn for the site, as their pages have them now."""

import re
import xml.etree.ElementTree as ET

import pytest

from tools.diagrams import Diagram, as_file, diagrams, main

DRAWN = list(diagrams())


def test_there_are_diagrams_and_all_are_drawn() -> None:
    assert len(DRAWN) == 6
    assert main(["--check"]) == 0


@pytest.mark.parametrize("diagram", DRAWN, ids=lambda diagram: diagram.name)
def test_a_drawing_has_words_and_the_colours_of_the_site(diagram: Diagram) -> None:
    """For blind readers, and in light and dark. Letters are text, so that they can be found."""
    root = ET.fromstring(diagram.path.read_text("utf-8"))
    name = "{http://www.w3.org/2000/svg}"
    assert root.findtext(f"{name}title") == diagram.title
    assert root.find(f"{name}desc") is not None
    assert root.findall(f".//{name}text")
    assert not root.findall(f".//{name}foreignObject")
    text = diagram.path.read_text("utf-8")
    assert "var(--d-ink)" in text
    assert "#0102" not in text


def test_a_diagram_whose_block_has_changed_is_not_drawn() -> None:
    """Its file names the block that it was drawn from."""
    diagram = DRAWN[0]
    assert not diagram._replace(source=diagram.source + " ").is_drawn()


def test_a_diagram_without_words_is_refused() -> None:
    with pytest.raises(ValueError, match="expected lines accTitle and accDescr"):
        assert Diagram("x-1", "flowchart TB\n    accTitle: A\n").title


def test_a_drawing_is_scaled_and_names_its_block() -> None:
    """Mermaid's size and roles go; its colours become variables."""
    diagram = Diagram("x-1", "flowchart TB\n")
    svg = '<svg id="a" width="100.5" height="9" role="x" class="y" data-look="z"><g fill="#010203" stroke="rgb(1, 2, 5)"/></svg>'
    assert re.sub(' data-source="[0-9a-f]{64}"', "", as_file(svg, diagram)) == (
        '<svg id="a" style="max-width:100px;min-width:60px"><g fill="var(--d-ink)" stroke="var(--d-box)"/></svg>\n'
    )
