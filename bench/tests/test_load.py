"""The load generator against the C sink: it counts everything, and its latency counts from the planned time."""

from __future__ import annotations

import os
import re
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.server import ServerConnection
from websockets.sync.server import serve as serve_websockets

from bench import generator, publishing
from bench.bus import Bus
from bench.child import Failed
from bench.stage import Stage, stage, topics
from bench.variants import VARIANTS
from tests.support.redis_server import wait_until

CLIENTS = 20
DEADLINE_S = 30.0
DEADLINE_MS = 30_000


@pytest.fixture(scope="module", autouse=True)
def _built() -> None:
    generator.build()


@pytest.fixture
def on() -> Iterator[Stage]:
    """A sink with twenty clients."""
    with stage(VARIANTS["sink"], size_bytes=256, clients=CLIENTS) as found:
        yield found


def wait_until_published(on: Stage, count: int) -> None:
    """Wait until Redis has had so many events: what the generator has planned up to then was due by then."""
    with on.bus.client() as client:
        wait_until(lambda: client.info("commandstats").get("cmdstat_publish", {}).get("calls") == count, f"{count} events")


def answers_within(on: Stage, seconds: float) -> bool:
    """Whether the generator answers the command that it was given."""
    try:
        on.generator.answer(takes_s=seconds - generator.ANSWER_MARGIN_S)
    except Failed:
        return False
    return True


def test_open_schedule_counts_every_delivery_once(on: Stage) -> None:
    """Each client gets each event once, and each delivery is in the histogram."""
    answer = on.generator.ask("open", 200, 500, takes_s=1)
    assert answer["outcome"] == "ok"
    assert answer["published"] == 100
    assert answer["deliveries"] == answer["microseconds"]["count"] == 100 * CLIENTS
    assert (answer["missing"], answer["late"], answer["undelivered"]) == (0, 0, 0)


def test_latency_counts_from_the_planned_time_while_the_server_stands_still(on: Stage) -> None:
    """Events due while the server is stopped wait as long as it was: no coordinated omission."""
    os.kill(on.server.pid, signal.SIGSTOP)
    on.generator.tell("open", 100, 1000)
    wait_until_published(on, 100)
    assert not answers_within(on, 0)
    os.kill(on.server.pid, signal.SIGCONT)
    answer = on.generator.answer(takes_s=1)
    shares = dict(answer["microseconds"]["distribution"])
    assert answer["deliveries"] == 100 * CLIENTS
    # They were due over one second, evenly, and all of them before the server went on: the first waited 990 ms at least, and
    # half of them 490 ms. The histogram may be out by one per cent.
    assert answer["microseconds"]["max"] >= 980_000
    assert shares[50] >= 480_000


def test_a_pause_in_a_schedule_loses_nothing_and_ends_when_events_are_in_time_again(on: Stage) -> None:
    """The clients do not read for a while; what waited for them counts, but its latency does not."""
    answer = on.generator.ask("pause", 200, 3000, 300, takes_s=4)
    assert answer["outcome"] == "ok"
    assert answer["deliveries"] == 600 * CLIENTS
    assert (answer["missing"], answer["late"], answer["undelivered"]) == (0, 0, 0)
    assert answer["live_again_ms"] >= 0
    assert 0 < answer["microseconds"]["count"] < 600 * CLIENTS


def test_a_closed_loop_hides_the_second_that_the_open_schedule_shows(on: Stage) -> None:
    """The calibration: a server stands still for a second. On schedule a hundred events are due in it, and half of them wait for
    half a second; a closed loop has four events under way, and publishes no other that could be late."""
    os.kill(on.server.pid, signal.SIGSTOP)
    on.generator.tell("window", 4, 0, 1500)
    wait_until_published(on, 4)
    assert not answers_within(on, 1)
    os.kill(on.server.pid, signal.SIGCONT)
    closed = on.generator.answer(takes_s=2)
    os.kill(on.server.pid, signal.SIGSTOP)
    on.generator.tell("open", 100, 1000)
    wait_until_published(on, closed["published"] + 100)
    os.kill(on.server.pid, signal.SIGCONT)
    opened = on.generator.answer(takes_s=1)
    assert opened["deliveries"] == 100 * CLIENTS
    assert slower_than(opened, 480_000) >= 49 * CLIENTS
    # A machine that pauses a few times makes a few windows late, not a hundred events.
    assert slower_than(closed, 480_000) <= 5 * 4 * CLIENTS


def slower_than(answer: generator.Answer, microseconds: float) -> float:
    """Return how many values are certainly as large: those in the parts of the distribution that begin there or above."""
    points = answer["microseconds"]["distribution"]
    shares = [upper - lower for (lower, least), (upper, _) in pairwise(points) if least >= microseconds]
    return float(sum(shares) / 100 * answer["microseconds"]["count"])


def test_window_keeps_no_more_events_under_way_than_asked(on: Stage) -> None:
    """With the server stopped, exactly one window is published; after it goes on, all of it arrives."""
    os.kill(on.server.pid, signal.SIGSTOP)
    on.generator.tell("window", 8, 0, 300)
    wait_until_published(on, 8)
    assert not answers_within(on, 0.31)  # the time to publish in is over when the server goes on
    wait_until_published(on, 8)
    os.kill(on.server.pid, signal.SIGCONT)
    answer = on.generator.answer(takes_s=1)
    assert answer["published"] == 8
    assert answer["undelivered"] == 0


def test_events_with_addresses_reach_a_server_that_routes_and_each_counts_once() -> None:
    """Twelve clients at two of eight topics each: three listen to a topic, and they alone get its events."""
    with stage(VARIANTS["sink-addressed"], size_bytes=256, clients=topics(12, 2, 8)) as found:
        answer = found.generator.ask("open", 500, 200, takes_s=1)
    assert answer["outcome"] == "ok"
    assert answer["published"] == 100
    assert answer["deliveries"] == 300
    assert (answer["missing"], answer["late"], answer["undelivered"]) == (0, 0, 0)


def test_each_event_carries_an_id_of_its_own(on: Stage) -> None:
    """A publisher's ids never repeat; an event whose id the log knows would not be appended."""
    with on.bus.client() as client:
        on.generator.publishes(publishing.command("RPUSH", "seen", publishing.EVENT_ID + publishing.payload(100)))
        on.generator.tell("open", 500, 200)
        wait_until(lambda: client.llen("seen") == 100, "100 events")
        ids = [each.decode()[:32] for each in client.lrange("seen", 0, -1)]
    assert len(set(ids)) == 100
    assert all(re.fullmatch("[0-9a-f]{32}", each) for each in ids)


EMITTER = """
import sys, redis
client = redis.Redis(unix_socket_path=sys.argv[1])
put = client.register_script("return redis.call('SET', KEYS[1], ARGV[1])")
put(["a key"], [sys.stdin.buffer.read() + bytes([0, 34, 92, 255])])
"""


def test_a_command_is_captured_as_it_was_sent_and_not_what_its_script_did(tmp_path: Path) -> None:
    """Of a script it is the EVALSHA, which Redis knows by then; quotes and bytes outside UTF-8 stay."""
    text = publishing.payload(60)
    with Bus(tmp_path, 0) as bus, bus.client() as client:
        found = publishing.captured(bus.socket, [sys.executable, "-c", EMITTER, bus.socket], text)
        client.delete("a key")
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(bus.socket)
            connection.sendall(found)
            assert connection.recv(100) == b"+OK\r\n"
        assert found.split(b"\r\n")[2] == b"EVALSHA"
        assert client.get("a key") == text.encode() + bytes([0, 34, 92, 255])


def test_an_emitter_that_fails_is_named_with_what_it_said(tmp_path: Path) -> None:
    """A peer that cannot publish does not count as slow."""
    with Bus(tmp_path, 0) as bus, pytest.raises(Failed, match="no such thing"):
        publishing.captured(bus.socket, [sys.executable, "-c", "raise SystemExit('no such thing')"], publishing.payload(60))


def test_a_stopped_client_is_not_waited_for_and_catches_up(on: Stage) -> None:
    """The others' run ends well; what the stopped one was owed is counted apart once it reads again."""
    on.generator.ask("stall", 1)
    answer = on.generator.ask("open", 100, 200, takes_s=1)
    assert answer["outcome"] == "ok"
    assert answer["deliveries"] == 20 * (CLIENTS - 1)
    assert on.generator.ask("unstall", DEADLINE_MS, 20)["caught_up"] == 20


def test_a_server_that_dies_is_reported_not_waited_for(on: Stage) -> None:
    """Every client's end is counted, and the run ends."""
    on.server.process.kill()
    on.server.process.wait()
    answer = on.generator.ask("open", 50, 200, takes_s=1)
    assert answer["closed"] == CLIENTS
    assert answer["clients"] == 0


def test_clients_that_cannot_connect_fail_with_the_reason() -> None:
    """A refused connection names why."""
    with stage(VARIANTS["sink"], size_bytes=256, clients=10, joined=0) as found:
        found.server.process.kill()
        found.server.process.wait()
        with pytest.raises(Failed, match="refused"):
            found.generator.connects(3)


@contextmanager
def loading(
    folder: Path,
    serve: Callable[[ServerConnection], None],
    *connects: str,
    ready: str,
    audience: Sequence[Sequence[int]] = (),
) -> Iterator[tuple[Bus, generator.Generator]]:
    """A load generator whose clients speak first, and a server of the test."""
    with Bus(folder, 0) as bus, serve_websockets(serve, "127.0.0.1", 0, compression=None) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        port = server.socket.getsockname()[1]
        with generator.Generator(
            folder, port=port, bus=bus.socket, connects=connects, ready=ready, room=len(connects), path="/", audience=audience
        ) as load:
            yield bus, load
        server.shutdown()
        serving.join(DEADLINE_S)


def test_a_client_that_speaks_first_joins_answers_pings_and_counts_pushes_by_the_line(tmp_path: Path) -> None:
    """Centrifugo's kind of server: commands and pushes are lines of JSON, several to a frame."""
    heard: list[str] = []
    stopped, pushed = threading.Event(), threading.Event()

    def serve(connection: ServerConnection) -> None:
        heard.append(str(connection.recv()))
        connection.send('{"id":1,"connect":{}}\n{"id":2,"subscribe":{}}')
        connection.send("{}")
        heard.append(str(connection.recv()))
        stopped.wait(DEADLINE_S)
        pushes = [f'{{"push":{{"pub":{{"data":"~{number:010}:{0:020}~"}}}}}}' for number in (1, 2)]
        connection.send("\n".join(pushes))
        pushed.set()
        with suppress(ConnectionClosed):
            connection.recv()  # until the other end closes

    with loading(tmp_path, serve, '{"id":1}\x1e{"id":2}', ready='"id":2,"subscribe"') as (_, load):
        load.connects(1)
        while len(heard) < 2:  # until the ping is answered
            load.ask("idle", 10)
        load.ask("stall", 1)
        stopped.set()
        assert pushed.wait(DEADLINE_S)
        answer = load.ask("unstall", DEADLINE_MS, 2)
        assert answer["deliveries"] + answer["caught_up"] == 2
    assert heard == ['{"id":1}\n{"id":2}', "{}"]


def test_an_event_with_an_address_reaches_those_who_listen_there_and_no_other(tmp_path: Path) -> None:
    """Each client's account is its own: what it skipped is missing, what was not for it is late, what another got is neither."""
    published: list[tuple[str, str]] = []
    clients: dict[str, ServerConnection] = {}
    joined = threading.Semaphore(0)

    def serve(connection: ServerConnection) -> None:
        clients[str(connection.recv())] = connection
        connection.send("joined")
        joined.release()
        with suppress(ConnectionClosed):
            connection.recv()  # until the other end closes

    with (
        loading(tmp_path, serve, "first", "second", ready="joined", audience=[(0,), (1,)]) as (bus, load),
        bus.client() as client,
        client.pubsub(ignore_subscribe_messages=True) as listener,
    ):
        listener.psubscribe("addr*")
        listener.get_message(timeout=DEADLINE_S)
        load.publishes(publishing.command("PUBLISH", publishing.ADDRESS, publishing.payload(100)))
        load.connects(2)
        for _ in range(2):
            assert joined.acquire(timeout=DEADLINE_S)
        load.tell("open", 1000, 20)
        while len(published) < 20:
            message = listener.get_message(timeout=DEADLINE_S)
            assert message
            published.append((message["channel"].decode(), message["data"].decode()))
        first = [data for channel, data in published if channel == "addr000000"]
        second = [data for channel, data in published if channel == "addr000001"]
        assert len(first) + len(second) == 20
        assert min(len(first), len(second)) > 1
        clients["first"].send("\n".join(first))
        clients["second"].send("\n".join([first[-1], *second[1:], second[1]]))  # not its own, not its first, one twice
        answer = load.answer(takes_s=DEADLINE_S)
    assert answer["published"] == 20
    assert answer["undelivered"] == 0
    assert (answer["missing"], answer["late"], answer["deliveries"]) == (1, 2, 21)
