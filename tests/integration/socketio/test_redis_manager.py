"""python-socketio's RedisManager on our rooms: two server processes and an emitter outside of them, on a real Redis."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import socketio

from tests.support.redis_process import RedisProcess
from tests.support.redis_server import wait_until
from tests.support.served_chat import WEBSOCKET, Guest, Served, serving

LOBBY = "lobby"


def told(guest: Guest, event: str) -> list[tuple[Any, ...]]:
    return [arguments for name, arguments in guest.told if name == event]


@pytest.fixture
def evening_of_two(redis_url: str) -> Iterator[tuple[Guest, Guest]]:
    """Two guests, of two servers on one Redis, the first on our server, the second on python-socketio's own."""
    with ExitStack() as stack:
        env = {"CHAT_REDIS": redis_url}
        here, there = stack.enter_context(serving("headgate", env=env)), stack.enter_context(serving("stock", env=env))
        yield guests_of(stack, here, there)


def guests_of(stack: ExitStack, here: Served, there: Served) -> tuple[Guest, Guest]:
    """Return a guest of each, which hear each other."""
    guests = Guest(here.url, WEBSOCKET, {"name": "ana"}), Guest(there.url, WEBSOCKET, {"name": "ben"})
    for guest in guests:
        stack.callback(guest.leave)
        guest.until("welcome")
    for speaker, listener in (guests, guests[::-1]):
        hear_each_other(speaker, listener)
    return guests


def hear_each_other(speaker: Guest, listener: Guest) -> None:
    """Wait until the listener's server hears the speaker's messages, as python-socketio does not report its subscription."""

    def heard() -> bool:
        before = len(told(listener, "said"))
        speaker.ask("say", "are you there?")
        return len(told(listener, "said")) > before

    wait_until(heard, "the other server listening")


def test_rooms_span_processes_of_both_servers_and_an_emitter_outside(evening_of_two: tuple[Guest, Guest], redis_url: str) -> None:
    """Events to a room, to all and to one client, with attachments, in the order of their emits; rooms that others manage."""
    ana, ben = evening_of_two
    outside = socketio.RedisManager(redis_url, write_only=True)
    sids = ana.client.get_sid("/chat"), ben.client.get_sid("/chat")
    for number in range(50):
        outside.emit("numbered", (number, bytes([number])), namespace="/chat", room=LOBBY)
    for sid, name in zip(sids, ("ana", "ben"), strict=True):
        outside.emit("to you", name, namespace="/chat", room=sid)
        outside.enter_room(sid, "/chat", "kitchen")
    outside.emit("dinner", None, namespace="/chat", room=["kitchen", LOBBY])
    outside.leave_room(sids[1], "/chat", "kitchen")
    outside.emit("to the kitchen", None, namespace="/chat", room="kitchen")
    outside.emit("not you", None, namespace="/chat", skip_sid=sids[0])
    outside.close_room("kitchen", "/chat")
    outside.emit("to the kitchen", "again", namespace="/chat", room="kitchen")
    outside.emit("last", None, namespace="/chat")
    for guest in (ana, ben):
        guest.until("last")

    for guest, name in ((ana, "ana"), (ben, "ben")):
        assert told(guest, "numbered") == [(number, bytes([number])) for number in range(50)]
        assert told(guest, "to you") == [(name,)]
        assert len(told(guest, "dinner")) == 1
        names = [event for event, _ in guest.told]
        assert names.index("to you") > len(names) - names[::-1].index("numbered") - 1
    assert told(ana, "to the kitchen") == [()]
    assert told(ben, "to the kitchen") == []
    assert (len(told(ana, "not you")), len(told(ben, "not you"))) == (0, 1)
    ana.client.disconnect()
    ben.until("left")


@pytest.mark.nightly
def test_a_redis_that_restarts_costs_no_client_its_connection(tmp_path: Path) -> None:
    """During that time a server's own clients hear each other; afterwards all of them hear all again, and the emitter outside."""
    with RedisProcess(tmp_path / "redis") as redis, ExitStack() as stack:
        env = {"CHAT_REDIS": redis.url}
        ana, ben = guests_of(stack, *(stack.enter_context(serving("headgate", env=env)) for _ in range(2)))
        outside = socketio.RedisManager(redis.url, write_only=True)
        redis.kill()
        assert ana.ask("say", "alone")["said"]
        assert told(ana, "said")[-1] == ("ana", "alone")
        redis.start()
        for speaker, listener in ((ana, ben), (ben, ana)):
            hear_each_other(speaker, listener)
        outside.emit("last", None, namespace="/chat")
        for guest in (ana, ben):
            guest.until("last")
            assert not told(guest, "gone")
