"""`headgate presence`: what it prints."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from headgate.cli.main import main
from headgate.redis import registry
from headgate.services import publisher
from headgate.services.publisher import PresentUser


class Publisher:
    """One that knows who is in `rooms.7`."""

    def __init__(self, redis_url: str | None, namespace: str) -> None:
        self.namespace = namespace

    def presence(self, topic: str) -> list[PresentUser]:
        if topic != "rooms.7":
            return []
        return [PresentUser("ana", 1, 1000, None), PresentUser("e\x1b[31mve", 2, 1000, {"at": "door"})]

    def __enter__(self) -> Publisher:
        return self

    def __exit__(self, *_: object) -> None:
        """There is nothing to close."""


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publisher, "Publisher", Publisher)
    monkeypatch.setattr(registry, "need_known", lambda client, namespace: None)


def test_each_user_is_one_line_that_is_safe_on_a_terminal() -> None:
    """With connections, since when, and meta."""
    lines = CliRunner().invoke(main, ["presence", "rooms.7"]).output.splitlines()
    assert lines[0].startswith("ana  1 connection since ")
    assert lines[1].startswith("e\\u001b[31mve  2 connections since ")
    assert lines[1].endswith('{"at":"door"}')


def test_as_json_each_user_is_an_object() -> None:
    """For programs."""
    lines = CliRunner().invoke(main, ["presence", "rooms.7", "--json"]).output.splitlines()
    assert json.loads(lines[0]) == {"user": "ana", "connections": 1, "since": 1000, "meta": None}


def test_an_empty_topic_says_so_to_people_only() -> None:
    """On standard error."""
    redis = ("--redis", "redis://127.0.0.1:1")
    run = CliRunner().invoke(main, ["presence", "rooms.8", *redis])
    assert (run.stdout, run.stderr) == ("", "nobody is in rooms.8\n")
    assert CliRunner().invoke(main, ["presence", "rooms.8", "--json", *redis]).output == ""
