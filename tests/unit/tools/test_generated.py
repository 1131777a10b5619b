"""Pages that are written from the code: which ones are stale, what writing mends, and that they are whole."""

import re
from pathlib import Path
from types import ModuleType

import pytest

import headgate
from headgate.auth.scopes import PLAIN, WITH_PATTERN
from headgate.settings.settings import Settings
from headgate_server.api.v1.table import OPERATIONS
from tools import consumers_page, http_api_page, settings_page
from tools.reference_pages import python_page
from tools.settings_page import describe


@pytest.mark.parametrize(
    ("module", "now", "before"),
    [
        (consumers_page, "| `workers` |", "| `wrkers` |"),
        (http_api_page, "`GET /presence`", "`GET /present`"),
        (settings_page, "| `HEADGATE_PORT` |", "| `HEADGATE_PRT` |"),
    ],
)
def test_the_check_tells_a_stale_page_from_a_fresh_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, module: ModuleType, now: str, before: str
) -> None:
    """A part changed by hand is stale; writing mends it, and nothing beside it. A typing error in `--check` writes nothing."""
    page, path = module.PAGE.read_text(encoding="utf-8"), tmp_path / "page.md"
    monkeypatch.setattr(module, "PAGE", path)
    path.write_text(page)
    assert module.main(["--check"]) == 0
    path.write_text(page.replace(now, before))
    assert module.main(["--check"]) == 1
    assert module.main(["--chekc"]) == 2
    assert path.read_text() == page.replace(now, before) != page
    assert module.main([]) == 0
    assert path.read_text() == page


@pytest.mark.parametrize(
    ("module", "begins", "expected"),
    [
        (consumers_page, "<!-- options of email -->", "expected every consumer, apprise, email"),
        (http_api_page, "<!-- codes -->", "expected operations, types, codes"),
    ],
)
def test_a_part_that_is_missing_is_a_fault(module: ModuleType, begins: str, expected: str) -> None:
    """It cannot be taken out by mistake; so is a part of a name that there is not."""
    page = module.PAGE.read_text(encoding="utf-8")
    for other in ("", "<!-- options of mail -->"):
        with pytest.raises(ValueError, match=expected):
            module.filled(page.replace(begins, other))


PAGE = http_api_page.PAGE.read_text(encoding="utf-8")


def test_every_operation_and_every_scope_is_on_the_page() -> None:
    for operation in OPERATIONS:
        assert f"`{operation.method} {operation.path}`" in PAGE
    (table,) = re.findall(r"\| scope \| .*?\n\n", PAGE, re.DOTALL)
    named = set(re.findall(r"`([a-z:]+?)(?::PATTERN)?`", table))
    assert named == {*PLAIN, *WITH_PATTERN}


def test_every_setting_has_one_row_of_four_cells() -> None:
    """A `|` inside a cell would split it."""
    rows = [line for line in settings_page.page().splitlines() if line.startswith("| `HEADGATE_")]
    cells = [row.replace("\\|", "").strip("| ").split(" | ") for row in rows]
    names = [row[0].strip("`") for row in cells if len(row) == 4]
    assert names == [name for name, *_ in describe()]


@pytest.mark.parametrize("name", [name for name, *_ in settings_page.OTHERS])
def test_what_the_page_lists_for_other_tools_stops_no_gateway(name: str) -> None:
    """A user with the bench's variable in the environment starts gateways in it, too."""
    assert Settings.read({name: "something"}) == Settings.read({})


# Of the Flask extension: for the servers that serve its application, and for decorators that return their function.
INTERNAL = {"AnswererT", "Authenticator", "Authorizer", "Routes"}
# Python's own. MissingExtra is caught as an ImportError.
PYTHON = {"Any", "Callable", "Mapping", "MissingExtra", "None", "RuntimeError", "TypeError", "ValueError"}


def test_a_caller_can_import_what_a_public_function_returns_or_raises() -> None:
    """Otherwise it could not annotate a variable, compare a fate or catch an error, as what is not on the page may change."""
    page = python_page()
    returned = re.findall(r"\) -> (.+)$", page, re.MULTILINE)
    raises = re.findall(r"\*\*Raises\*\*\n\n(.+?)\n\n", page, re.DOTALL)
    raised = re.findall(r"^- ((?:`\w+`(?:, )?)+): ", "\n".join(raises), re.MULTILINE)

    named = set(re.findall(r"[A-Z]\w+", " ".join(returned + raised)))

    assert named - set(headgate.__all__) == INTERNAL | PYTHON
