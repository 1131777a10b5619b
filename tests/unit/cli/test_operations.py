"""`headgate clients`, `disconnect`, `regrant`, `presence`, `rebalance` and `pause`: their output, and how they end."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner, Result

from headgate.cli.main import main
from headgate.redis import loads, registry
from headgate.redis.loads import Load
from headgate.services import clients as module
from headgate.services import publisher
from headgate.services.clients import ClientsPage, ConnectedClient, Reached
from headgate.services.publisher import PresentUser
from tests.support.api_client import connected
from tests.support.registered import write_row
from tests.support.small_redis import SmallRedis


class Clients:
    """Three clients, on pages of two; `silent` are the gateways that do not answer."""

    silent: tuple[str, ...] = ()
    wishes: list[dict[str, Any]] = []  # noqa: RUF012  # emptied before each test

    def __init__(self, redis_url: str | None) -> None:
        self.all = [
            connected("s1", trouble=("notified of 1 gap",)),
            connected("s2", "e\x1b[31mve", address=None),
            connected("s3"),
        ]

    def page(self, namespace: str | None, user: str | None, sort: str, limit: int, after: str | None) -> ClientsPage:
        rest = self.all[int(after or 0) :]
        page = rest[: min(limit, 2)]
        return ClientsPage(
            tuple(page), 3, str(len(self.all) - len(rest) + len(page)) if len(rest) > len(page) else None, self.silent
        )

    def client(self, session: str) -> ConnectedClient | None:
        return next((each for each in self.all if each.session == session), None)

    def disconnect(self, **wish: Any) -> Reached:
        self.wishes.append(wish)
        return Reached(2, self.silent)

    def regrant(self, user: str, **wish: Any) -> Reached:
        return self.disconnect(user=user, **wish)


class Publisher:
    """One that knows the members of `rooms.7`."""

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
    monkeypatch.setattr(module, "Clients", Clients)
    monkeypatch.setattr(Clients, "silent", ())
    Clients.wishes.clear()


def headgate(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments))


def test_each_client_is_one_line_that_is_safe_on_a_terminal() -> None:
    """With its trouble, or its state; over all pages. For programs each is an object, and nothing else is printed."""
    run = headgate("clients")
    first, second, third = run.stdout.splitlines()
    assert first.startswith("s1  ana  shop at web1/7 from 192.0.2.0/24 over websocket since ")
    assert first.endswith("  notified of 1 gap  [a b c and 2 more]")
    assert second.startswith("s2  e\\u001b[31mve  shop at web1/7 from an address not shown")
    assert "  live  " in third
    assert (run.stderr, run.exit_code) == ("3 clients\n", 0)
    run = headgate("clients", "--json")
    assert [json.loads(line)["session"] for line in run.stdout.splitlines()] == ["s1", "s2", "s3"]
    assert run.stderr == ""


def test_no_more_are_printed_than_asked_for() -> None:
    run = headgate("clients", "--limit", "1")
    assert len(run.stdout.splitlines()) == 1
    assert run.stderr == "3 clients, 1 shown\n"
    assert headgate("clients", "--limit", "0").exit_code == 2


def test_one_session_is_printed_with_all_its_patterns() -> None:
    assert "[a b c d and 1 more]" in headgate("clients", "--session", "s1").stdout
    run = headgate("clients", "--session", "none")
    assert (run.exit_code, run.stdout) == (1, "")
    assert run.stderr == "headgate: no gateway has the session 'none'\n"


@pytest.mark.parametrize("command", [("clients",), ("disconnect", "--user", "ana"), ("regrant", "ana")])
def test_a_gateway_that_did_not_answer_is_a_fault(monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]) -> None:
    monkeypatch.setattr(Clients, "silent", ("web2/9",))
    run = headgate(*command)
    assert run.exit_code == 1
    assert run.stdout
    assert run.stderr.endswith("headgate: web2/9 did not answer in time\n")


def test_a_gateway_that_did_not_answer_for_one_page_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its clients are missing, though it has answered for the next page."""
    silences = iter([("web2/9",), ()])
    monkeypatch.setattr(Clients, "silent", property(lambda self: next(silences)))
    run = headgate("clients")
    assert (run.exit_code, run.stderr) == (1, "3 clients\nheadgate: web2/9 did not answer in time\n")


def test_a_disconnect_says_how_many_and_who_wanted_it() -> None:
    assert headgate("disconnect", "--user", "ana", "--reason", "stuck").stdout == "disconnected 2 clients\n"
    (wish,) = Clients.wishes
    assert (wish["user"], wish["session"], wish["reason"]) == ("ana", None, "stuck")
    assert wish["by"].endswith("on the command line")
    assert json.loads(headgate("disconnect", "--session", "s1", "--json").stdout) == {"count": 2, "silent": []}


def test_each_user_is_one_line_that_is_safe_on_a_terminal() -> None:
    """With connections, since when, and meta; for programs an object."""
    lines = headgate("presence", "rooms.7").output.splitlines()
    assert lines[0].startswith("ana  1 connection since ")
    assert lines[1].startswith("e\\u001b[31mve  2 connections since ")
    assert lines[1].endswith('{"at":"door"}')
    first = headgate("presence", "rooms.7", "--json").output.splitlines()[0]
    assert json.loads(first) == {"user": "ana", "connections": 1, "since": 1000, "meta": None}


def test_an_empty_topic_says_so_to_people_only() -> None:
    redis = ("--redis", "redis://127.0.0.1:1")
    run = headgate("presence", "rooms.8", *redis)
    assert (run.stdout, run.stderr) == ("", "nobody is in rooms.8\n")
    assert headgate("presence", "rooms.8", "--json", *redis).output == ""


@pytest.mark.parametrize(
    ("words", "subscribe", "publish"),
    [
        ((), None, None),
        (("--nothing",), (), ()),
        (("--subscribe", "a.#", "--subscribe", "b"), ("a.#", "b"), ()),
        (("--publish", "c"), (), ("c",)),
    ],
)
def test_a_regrant_without_patterns_asks_the_source_and_one_with_patterns_sets_them(
    words: tuple[str, ...], subscribe: object, publish: object
) -> None:
    """No pattern is not the same as none at all."""
    run = headgate("regrant", "ana", "--for", "2h", *words)
    assert (run.stdout, run.exit_code) == ("checked the grants of 2 clients again\n", 0)
    (wish,) = Clients.wishes
    assert (wish["user"], wish["subscribe"], wish["publish"], wish["for_s"]) == ("ana", subscribe, publish, 7200)


def test_a_rebalance_asks_all_gateways_and_says_how_many_will_move(server: SmallRedis) -> None:
    """For each group of processes that serve the same; `--show` asks no gateway."""
    assert headgate("rebalance", "--show").stdout == "no gateway process is at work\n"
    for name, sessions, serves in (("a", 700, "shop"), ("b", 500, "shop"), ("c", 0, "shop"), ("d", 9, "chat,mail")):
        write_row(server.client(), name, Load(sessions, 900, serves))
    shown = "chat,mail: 1 process, sessions 9\nshop: 3 processes, sessions 700, 500, 0"
    assert headgate("rebalance", "--show").stdout == f"{shown}\n"
    assert loads.read(server.client()).request is None
    assert headgate("rebalance", "--per-s", "50").stdout == f"{shown}: up to 400 will move, in about 8 s\n"
    assert loads.read(server.client()).request == (1000, 50.0)


def test_a_namespace_that_nobody_serves_is_paused_and_told(server: SmallRedis, monkeypatch: pytest.MonkeyPatch) -> None:
    """A misspelt name would stop nothing, and look as if it had."""
    monkeypatch.setattr(registry, "has_been_served", lambda client, name: (name == "shop", ["shop"]))
    wrong, right = (headgate("pause", "namespace", name) for name in ("shpo", "shop"))
    assert (wrong.exit_code, wrong.stdout) == (0, "paused namespace shpo\n")
    assert wrong.stderr == "headgate: no gateway serves the namespace shpo now; gateways serve shop\n"
    assert (right.exit_code, right.stdout, right.stderr) == (0, "paused namespace shop\n", "")
