"""The promises of examples/: each is small, and its page is short, names its commands and shows a picture."""

import re
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
NAMES = sorted(path.parent.name for path in EXAMPLES.glob("*/README.md"))
WITH_PICTURE = ("bell", "chat", "django", "fastapi", "progress", "push", "react", "stream")
MOST_LINES, MOST_LINES_OF_README, MOST_BYTES = 80, 25, 60 * 1024
CODE = {".py", ".js", ".ts", ".tsx", ".vue", ".svelte", ".html", ".css"}
# Tests, the configuration of tools, and Django's own file are not counted; nor are comments, docstrings and empty lines.
NOT_COUNTED = re.compile(r"^(test_.*|conftest|.*\.config|.*\.d|manage)$")
NO_CODE = re.compile(r'\s*($|//|/?\*|<!--|"""[^"]*"""$)')
PYTHON_COMMENT = re.compile(r"\s*#")


def lines_of_code(folder: Path) -> int:
    """Return how many lines of code an example has itself."""
    files = [
        path
        for path in folder.rglob("*")
        if path.suffix in CODE
        and not NOT_COUNTED.match(path.stem)
        and not {".next", "node_modules", "dist"} & set(path.relative_to(EXAMPLES).parts)
    ]
    return sum(
        not NO_CODE.match(line) and not (path.suffix == ".py" and PYTHON_COMMENT.match(line))
        for path in files
        for line in path.read_text().splitlines()
    )


def test_every_folder_has_a_page() -> None:
    """The table of examples/README.md names each of them, and nothing else."""
    folders = sorted(path.name for path in EXAMPLES.iterdir() if path.is_dir())
    named = re.findall(r"\]\((\w+)/README\.md\)", (EXAMPLES / "README.md").read_text())
    assert sorted(named) == NAMES == folders


@pytest.mark.parametrize("name", NAMES)
def test_an_example_is_at_most_80_lines(name: str) -> None:
    """So that a reader has read all of it before copying it."""
    assert lines_of_code(EXAMPLES / name) <= MOST_LINES


def test_no_requirements_name_headgate() -> None:
    """It is on no index, where the name may be another's: each page installs the wheel."""
    files = [*EXAMPLES.glob("*/requirements.txt")]
    assert files
    assert not [file for file in files if re.search(r"^headgate\b", file.read_text(), re.MULTILINE)]


def test_lines_are_counted() -> None:
    """Code counts; comments, docstrings, empty lines and tests do not."""
    folder = EXAMPLES / "stream"
    assert lines_of_code(folder) > 60
    assert [bool(NO_CODE.match(line)) for line in ("", "  // why", '    """One."""', "x = 1", '"""Two', "#app {}")] == [
        *(True, True, True, False, False, False)
    ]


@pytest.mark.parametrize("name", NAMES)
def test_a_page_of_an_example_is_short_and_has_commands(name: str) -> None:
    """A reader sees at once how to start it."""
    text = (EXAMPLES / name / "README.md").read_text()
    assert len(text.splitlines()) <= MOST_LINES_OF_README
    assert "```sh" in text or name == "monitoring"


@pytest.mark.parametrize("name", WITH_PICTURE)
def test_an_example_with_a_page_shows_its_picture(name: str) -> None:
    """Tests take the pictures: `make example-pictures`."""
    path = EXAMPLES / name / f"{name}.png"
    assert path.stat().st_size <= MOST_BYTES
    assert f"({name}.png)" in (EXAMPLES / name / "README.md").read_text()
