"""Options: tables inside tables, and places; test_settings.py has those of settings."""

from dataclasses import dataclass
from typing import Any

import pytest

from headgate.settings.options import HOST_AND_PORT, PATTERNS, integer, option, read_options, required, tables, text


@dataclass(frozen=True)
class Rule:
    """A table inside."""

    name: str = option(required(), text("a name"), "Its name.")
    pattern: tuple[str, ...] = option(("#",), PATTERNS, "What it matches.")
    most: int = option(1, integer(1, 9), "How many.")


@dataclass(frozen=True)
class Rules:
    """The table around them."""

    rules: tuple[Rule, ...] = option((), tables(Rule, 2), "Rules.")
    place: tuple[str, int] | None = option(None, HOST_AND_PORT, "Where.")


def faults_of(**given: Any) -> list[str]:
    read, faults = read_options(Rules, given)
    assert (read is None) == bool(faults)
    return [fault.line() for fault in faults]


def test_tables_are_read_into_what_they_declare() -> None:
    assert read_options(Rules, {"rules": [{"name": "a"}, {"name": "b", "pattern": "x.#", "most": 2}]}) == (
        Rules(rules=(Rule(name="a"), Rule(name="b", pattern=("x.#",), most=2))),
        [],
    )


def test_every_fault_of_every_table_is_told_with_the_name_of_its_table() -> None:
    """By its name, or by its number when it has none."""
    assert faults_of(rules=[{"name": "a", "pattern": "x..y", "mst": 3}, {"most": 10}]) == [
        "rules[a].pattern='x..y': expected patterns such as news.#, comma-separated; invalid pattern 'x..y': "
        "words are ASCII letters, digits, _ and -, or a lone * or #, joined by single dots",
        "rules[a].mst is not an option; did you mean most?",
        "rules[2].most=10: expected a whole number from 1 to 9",
        "rules[2].name is missing; expected a name",
    ]


@pytest.mark.parametrize("wrong", [{"name": "a"}, "a", 3, [3], [{"name": "a"}] * 3])
def test_a_value_that_is_no_list_of_few_tables_is_refused(wrong: object) -> None:
    """One line, with the allowed values."""
    (line,) = faults_of(rules=wrong)
    assert line.endswith("expected a list of at most 2 tables")


@pytest.mark.parametrize(
    ("given", "place"),
    [
        ("127.0.0.1:8125", ("127.0.0.1", 8125)),
        (" stats.example:1 ", ("stats.example", 1)),
        ("[::1]:65535", ("::1", 65535)),
        ("straße.example:1", ("xn--strae-oqa.example", 1)),
    ],
)
def test_a_place_is_a_host_and_a_port(given: str, place: tuple[str, int]) -> None:
    read, faults = read_options(Rules, {"place": given})
    assert read is not None, faults
    assert read.place == place


@pytest.mark.parametrize(
    "wrong",
    ["", "a", "a:", ":1", "a:0", "a:65536", "a:x", "u@a:1", "a:1/x", "a b:1", "http://a:1", "a..b:1", "0x7f.1:1", 8125, None],
)
def test_a_value_that_is_no_place_is_refused(wrong: object) -> None:
    """None counts as not given."""
    assert bool(faults_of(place=wrong)) == (wrong is not None)
