"""The rules of imports, and the sizes of the house."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tools import house

ROOMS = "abcde"


@pytest.fixture
def small_house(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    package = tmp_path / "smallhouse"
    package.mkdir()
    (package / "__init__.py").write_text('"""A house."""\n')
    (package / "pure.py").write_text('"""Sums. No\nI/O."""\nfrom . import helper\n')
    (package / "helper.py").write_text('"""Words."""\n')
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(house, "SOURCES", {"smallhouse": tmp_path})
    return package


def test_a_house_that_keeps_the_rules_has_no_fault(small_house: Path) -> None:
    assert list(house.faults()) == []


@pytest.mark.parametrize(
    ("lines", "fault"),
    [
        (
            "import socket",
            "smallhouse.pure says that it does no I/O, and imports some: smallhouse.pure > smallhouse.helper > socket",
        ),
        ("from . import pure", "these modules import each other: smallhouse.helper, smallhouse.pure"),
        (
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from . import pure",
            "these rooms import each other, types included: smallhouse.helper, smallhouse.pure",
        ),
    ],
    ids=["I/O through another module", "a circle", "a circle of rooms by a type"],
)
def test_a_broken_rule_is_named_with_the_way_to_it(small_house: Path, lines: str, fault: str) -> None:
    (small_house / "helper.py").write_text(f'"""Words."""\n{lines}\n')
    assert next(house.faults()) == fault


def test_a_name_that_says_nothing_is_named(small_house: Path) -> None:
    """Variables, arguments, attributes, functions and classes; terms such as "not found" are fine."""
    lines = (
        *("class NotFound(Exception): ...", "found = 1", "def _tell(told, wanted): ...", "NotFound.heard_s = found"),
        *("def look_up(): ...", "background = profound = 1"),
    )
    (small_house / "helper.py").write_text("\n".join(['"""Words."""', *lines, ""]))
    names = ("_tell", "found", "heard_s", "told")
    assert list(house.faults()) == [f"smallhouse.helper has the name {name}: say what it is" for name in names]


def test_a_demo_beyond_its_budget_is_named(small_house: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every text file below its folders counts, and no other."""
    (small_house / "page.css").write_text("a\n" * 6)
    (small_house / "page.css.gz").write_text("a\n" * 99)
    monkeypatch.setattr(house, "DEMO", (str(small_house),))
    monkeypatch.setattr(house, "MAX_DEMO_LINES", 11)  # and 5 of Python
    assert list(house.faults()) == []
    monkeypatch.setattr(house, "MAX_DEMO_LINES", 10)
    assert list(house.faults()) == [f"the demo has 11 lines, and its budget is 10: {small_house}"]


def test_a_constructor_of_too_many_parts_is_named(small_house: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings, plain values and clocks are no parts."""
    monkeypatch.setattr(house, "_BUILT_BY_PARTS", "smallhouse.")
    parts = ", ".join(f"{letter}: Part" for letter in "abcdef")
    values = "settings: Settings, name: str, now_s: Callable[[], float] = clock"
    text = f'"""Words."""\nclass House:\n    def __init__(self, {parts}, {values}): ...\n'
    (small_house / "helper.py").write_text(text)
    assert list(house.faults()) == []
    (small_house / "helper.py").write_text(text.replace("name: str", "name: Name"))
    [fault] = house.faults()
    assert fault == "smallhouse.helper.House takes more than 6 collaborators: a, b, c, d, e, f, name"


def test_an_import_for_types_alone_does_no_io(small_house: Path) -> None:
    """It is not there at run time."""
    (small_house / "helper.py").write_text(
        '"""Words."""\nfrom typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import socket\n'
    )
    assert list(house.faults()) == []


@given(st.dictionaries(st.sampled_from(ROOMS), st.sets(st.sampled_from(ROOMS)), min_size=len(ROOMS)))
def test_circles_are_the_sets_in_which_each_room_reaches_each(imports: Mapping[str, set[str]]) -> None:
    """Compared with reachability by repeated steps."""
    reach = {room: set(imports[room]) for room in ROOMS}
    for _ in ROOMS:
        for room in ROOMS:
            reach[room] |= {far for near in reach[room] for far in imports[near]}
    expected = {frozenset(b for b in ROOMS if a == b or (b in reach[a] and a in reach[b])) for a in ROOMS}
    assert house.circles(imports) == sorted(sorted(circle) for circle in expected if len(circle) > 1)


def test_floors_are_the_longest_way_down() -> None:
    assert house.floors({"a": {"b", "c"}, "b": {"c"}, "c": set(), "d": set()}) == 3


def test_every_library_with_a_place_is_imported_there() -> None:
    """A place that no longer imports its library is taken out of the table."""
    for library, places in house.MET_IN.items():
        for place in places:
            path = house.ROOT.joinpath("gateway", "headgate", *place.split("."))
            sources = sorted(path.rglob("*.py")) if path.is_dir() else [path.with_suffix(".py")]
            imported = {
                name.partition(".")[0]
                for source in sources
                for node in ast.walk(ast.parse(source.read_text("utf-8")))
                if isinstance(node, ast.Import | ast.ImportFrom)
                for name in ([node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names])
            }
            assert library in imported, f"{place} does not import {library}"


@pytest.mark.nightly
def test_the_table_counts_what_there_is() -> None:
    rows = {row.what: row for row in house.table()}
    assert int(rows["classes"].now) > 100
    assert all(row.now and row.wanted for row in rows.values())
