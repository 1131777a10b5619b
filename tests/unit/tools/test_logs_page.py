"""docs/logs.md: every event that the code writes is in its table, and every event that operators are asked to watch exists."""

import re
from pathlib import Path

import pytest

from tools import logs_page
from tools.log_events import Unresolved, log_events


@pytest.fixture(scope="module")
def names() -> set[str]:
    return {event.name for event in log_events()}


def test_an_event_is_named_in_words(names: set[str]) -> None:
    """In one style, so that a search for one finds it."""
    assert [name for name in names if not re.fullmatch(r"[A-Za-z][A-Za-z0-9' ,;:-]*", name)] == []


def test_events_that_people_are_told_to_watch_are_written(names: set[str]) -> None:
    """A misspelt one would never be seen."""
    by_hand = logs_page.PAGE.read_text(encoding="utf-8").partition("## What to watch")[2].partition(logs_page.BEGIN)[0]
    cells = [line.split("|")[1] for line in by_hand.splitlines() if line.startswith("| `")]
    named = {name for cell in cells for name in re.findall(r"`([^`]+)`", cell)} - {"rolled_back"}
    assert len(named) > 10
    assert named <= names


SOURCE = """
import structlog
log = structlog.get_logger("headgate.shop")
NAMES = {"a": "sold out", "b": "sold on"}

class Shop:
    def sell(self, good):
        log.info("sold", price=1, **good)
        log.warning("sold twice" if good else "not sold", exc_info=True)
        log.log(20, NAMES[good], count=2)
        self._told("shut", reason="night")
        self._log("a consumer's", waiting=1)
        print("no line")

    def _told(self, event, **fields):
        log.error(event, left_out=0, **fields)
"""


def test_events_are_found_however_a_line_is_written(tmp_path: Path) -> None:
    """As a text, one of two, one of a table, and through a function of the module; with levels and fields."""
    (tmp_path / "shop.py").write_text(SOURCE)
    found = {event.name: (event.loggers, event.levels, event.fields) for event in log_events((tmp_path,))}
    assert found == {
        "sold": ({"headgate.shop"}, {"info"}, ["`price`", "…"]),
        "sold twice": ({"headgate.shop"}, {"warning"}, []),
        "not sold": ({"headgate.shop"}, {"warning"}, []),
        "sold out": ({"headgate.shop"}, {"info", "error"}, ["`count`"]),
        "sold on": ({"headgate.shop"}, {"info", "error"}, ["`count`"]),
        "shut": ({"headgate.shop"}, {"error"}, ["`left_out`", "`reason`"]),
        "a consumer's": ({"headgate.consumers"}, {"warning"}, ["`waiting`"]),
    }


def test_an_event_that_other_modules_name_is_found_there(tmp_path: Path) -> None:
    """A function that they call writes the line; other messages of it are left out."""
    (tmp_path / "audit.py").write_text(
        'import structlog\nlog = structlog.get_logger("n")\n'
        "class Audit:\n    def acted(self, what, *, by):\n        log.info(what, by=by)\n"
    )
    (tmp_path / "keys.py").write_text('def make(audit):\n    audit.acted("key made", by="me", key=1)\n')
    (tmp_path / "pages.py").write_text("def act(access, action):\n    access.acted(object(), action)\n")
    [event] = log_events((tmp_path,))
    assert (event.name, event.fields) == ("key made", ["`by`", "`key`"])


@pytest.mark.parametrize("written", ['log.info(f"sold {good}")', "log.info(good)", 'log.info("sold " + good)'])
def test_an_event_with_values_in_its_name_is_refused(tmp_path: Path, written: str) -> None:
    """It would be another event each time."""
    (tmp_path / "shop.py").write_text(f'import structlog\nlog = structlog.get_logger("n")\ndef sell(good):\n    {written}\n')
    with pytest.raises(Unresolved, match=r"shop\.py:4"):
        log_events((tmp_path,))
