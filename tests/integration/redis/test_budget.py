"""A Redis that stands still costs a publisher one budget; after that calls fail at once, and one at a time tries."""

import asyncio
import contextvars
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path

import pytest

from headgate import AsyncPublisher, BusUnavailable, Publisher
from headgate.errors import HeadgateError, NotDurable
from headgate.redis import api_keys
from headgate.redis.budget import Budget, Counted, count_with, left_s
from headgate.redis.client import has_answered, open_client
from headgate.redis.embedded import EmbeddedRedis
from headgate.redis.keys import log_key
from headgate.services.publisher import Receipt
from tests.support.event_loop import run
from tests.support.redis_server import DEADLINE_S, wait_until

BUDGET_S = 0.4
SILENT, AT_ONCE = "did not answer in time", "nothing was sent"


@pytest.fixture
def stopped(start_redis: Callable[..., EmbeddedRedis]) -> Iterator[EmbeddedRedis]:
    """A Redis that has answered a publisher, and then stands still."""
    server = start_redis("stopped")
    with Publisher(server.url, timeout_s=DEADLINE_S) as publisher:
        publisher.publish("a", 0)
    os.kill(server.pid, signal.SIGSTOP)
    yield server
    with suppress(ProcessLookupError):
        os.kill(server.pid, signal.SIGCONT)


def outcome(call: Callable[[], object]) -> str:
    """Return the error of a call, or "" without one."""
    try:
        call()
    except HeadgateError as error:
        return error.message
    return ""


def test_after_one_call_without_an_answer_every_call_fails_at_once(stopped: EmbeddedRedis) -> None:
    """Whatever it asks for, and of every publisher of the process with that address and budget."""
    with Publisher(stopped.url, timeout_s=BUDGET_S) as publisher, Publisher(stopped.url, timeout_s=BUDGET_S) as other:
        assert SILENT in outcome(lambda: publisher.publish("a", 1))
        calls: list[Callable[[], object]] = [
            lambda: publisher.publish("a", 2),
            lambda: other.publish("a", 2, durable="disk"),
            lambda: other.publish_many([("a", 2), ("a", 3)]),
            lambda: other.publish_prepared([other.prepare("a", 2)]),
            lambda: other.check(Receipt("e" * 16, 1, False, "i")),
            lambda: other.presence("a"),
            lambda: other.presence_page("a"),
            lambda: other.revoke(user="ana"),
        ]
        assert [AT_ONCE in outcome(call) for call in calls] == [True] * len(calls)


def test_an_error_of_unknown_outcome_has_the_id_for_the_next_attempt(stopped: EmbeddedRedis) -> None:
    """That of its own event, also where events of an AsyncPublisher share a round trip and its error."""

    async def publish_two() -> list[BaseException | Receipt]:
        async with AsyncPublisher(stopped.url, timeout_s=BUDGET_S) as publisher:
            return await asyncio.gather(*(publisher.publish("a", 2, each) for each in (None, "mine")), return_exceptions=True)

    with Publisher(stopped.url, timeout_s=BUDGET_S) as publisher, pytest.raises(BusUnavailable) as caught:
        publisher.publish("a", 1)
    new, mine = [error.event_id for error in run(publish_two()) if isinstance(error, BusUnavailable)]
    assert len({"", caught.value.event_id, new, mine}) == 4
    assert mine == "mine"


def test_an_api_key_is_not_asked_for_while_publishes_fail_at_once(stopped: EmbeddedRedis) -> None:
    """Each publish over HTTP with a key would wait for it otherwise, as a gateway knows a key for a second only."""
    with open_client(stopped.url) as client, Publisher(stopped.url, timeout_s=BUDGET_S) as publisher:
        assert SILENT in outcome(lambda: publisher.publish("a", 1))
        assert AT_ONCE in outcome(lambda: api_keys.find_within(client, BUDGET_S, "0123456789"))


def test_a_check_of_schemas_that_asks_nothing_is_no_answer(stopped: EmbeddedRedis, tmp_path: Path) -> None:
    """The event after the pause probes. Until it has an answer, other calls fail at once."""
    folder = tmp_path / "schemas"
    folder.mkdir()
    (folder / "a.json").write_text('{"type": "integer"}')
    counted: list[Counted] = []
    with Publisher(stopped.url, timeout_s=BUDGET_S, schemas=str(folder), schema_check="refuse") as publisher:
        assert SILENT in outcome(lambda: publisher.publish("a", 1))
        count_with(counted.append)
        try:
            wait_until(lambda: AT_ONCE not in outcome(lambda: publisher.publish("a", 1)), "a probe")
        finally:
            count_with(lambda _: None)
        assert "closed" not in counted
        assert AT_ONCE in outcome(lambda: publisher.publish("a", 1))


def test_an_event_in_the_log_has_its_receipt_though_redis_waits_longer_than_the_call(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a pause, and after a retry, whose wait begins late. Redis has answered, so later calls are sent."""
    monkeypatch.setattr("headgate.services.log_writer._SHARE_OF_WAITING", 100.0)
    with Publisher(redis_url, timeout_s=BUDGET_S) as publisher:
        with pytest.raises(NotDurable, match="Redis has not confirmed it within the time of the call") as raised:
            publisher.publish("a", 1, durable="replica")
        assert raised.value.receipt.offset == 1
        assert publisher.publish("a", 2).offset == 2


def test_each_call_keeps_its_budget_whatever_it_asks_for(stopped: EmbeddedRedis) -> None:
    """Several round trips, a large batch, and a strict publisher's question count as one call."""
    calls: list[Callable[[Publisher], object]] = [
        lambda publisher: publisher.publish_many([("a", "x" * 1000) for _ in range(5000)]),
        lambda publisher: publisher.presence("a"),
        lambda publisher: publisher.check(Receipt("e" * 16, 1, False, "i")),
        lambda publisher: publisher.revoke(user="ana"),
        lambda publisher: publisher.publish("a", 1),
    ]
    for number, call in enumerate(calls):
        # A separate budget, and so a breaker.
        with Publisher(stopped.url, timeout_s=BUDGET_S + number / 100, strict_namespace=True) as publisher:
            assert SILENT in outcome(partial(call, publisher))
            assert AT_ONCE in outcome(partial(publisher.publish, "a", 1))


def test_of_many_threads_one_probes_and_the_answer_lets_all_publish(stopped: EmbeddedRedis) -> None:
    """Threads that go on publishing. After the first timeouts one waits for its budget, and all others fail at once."""
    with Publisher(stopped.url, timeout_s=BUDGET_S) as publisher, ThreadPoolExecutor(20) as pool:
        first = list(pool.map(lambda number: outcome(lambda: publisher.publish("a", number)), range(20)))
        # There are fewer connections than threads, and some may end their wait for one at the same moment.
        assert all(SILENT in each or AT_ONCE in each or "connections of this process are in use" in each for each in first)
        probed = threading.Event()
        waited: list[str] = []

        def publish_until_one_has_probed(number: int) -> None:
            while not probed.wait(0.005):
                message = outcome(lambda: publisher.publish("a", number))
                if AT_ONCE not in message:
                    waited.append(message)
                    probed.set()

        list(pool.map(publish_until_one_has_probed, range(20)))
        assert [SILENT in each for each in waited] == [True]

        os.kill(stopped.pid, signal.SIGCONT)
        wait_until(lambda: not outcome(lambda: publisher.publish("a", 1)), "a probe is answered")
        assert set(pool.map(lambda number: outcome(lambda: publisher.publish("a", number)), range(20))) == {""}


@pytest.mark.parametrize(
    "form",
    [
        "redis://{0}",
        "redis://u:p@{0}/1",
        "rediss://{0}",
        "redis+sentinel://{0},{1},{2}/main",
        "rediss+sentinel://{0},{1},{2}/main?sentinel_password=p",
        "redis+cluster://:p@{0},{1},{2}",
    ],
)
def test_connecting_counts_however_many_servers_are_silent(form: str) -> None:
    """A password, TLS, Sentinels or nodes of a Cluster. Each accepts and says nothing, and all of it is one budget."""
    with ExitStack() as listening:
        listeners = [listening.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(3)]
        url = form.format(*(f"127.0.0.1:{listener.getsockname()[1]}" for listener in listeners))
        with Publisher(url, timeout_s=BUDGET_S) as publisher:
            began_s = time.monotonic()
            with pytest.raises(BusUnavailable):
                publisher.publish("a", 1)
            took_s = time.monotonic() - began_s
            assert AT_ONCE in outcome(lambda: publisher.publish("a", 1))
    assert took_s < 1.0  # one attempt at each of three servers took 1.5 s, and there were two


def test_a_reply_that_comes_byte_by_byte_ends_with_the_budget() -> None:
    """Though something comes within each wait."""

    def drip(connection: socket.socket) -> None:
        with connection, suppress(OSError):
            connection.sendall(b"$1000000\r\n")
            while True:
                connection.sendall(b"x")
                time.sleep(0.01)

    def accept() -> None:
        with suppress(OSError):
            while True:
                connection = listener.accept()[0]
                connection.recv(1)  # Redis never speaks first
                threading.Thread(target=drip, args=(connection,), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=accept, daemon=True).start()
        with Publisher(f"redis://127.0.0.1:{listener.getsockname()[1]}", timeout_s=BUDGET_S) as publisher:
            assert SILENT in outcome(lambda: publisher.publish("a", 1))
        listener.shutdown(socket.SHUT_RDWR)


def test_an_answer_to_another_part_of_the_process_lets_publishers_try(stopped: EmbeddedRedis) -> None:
    """As a gateway's bus, which is up again before a probe is due. Openings, refusals and closings are counted for its metric."""
    counted: list[Counted] = []
    count_with(counted.append)
    try:
        with Publisher(stopped.url, timeout_s=BUDGET_S) as publisher:
            assert SILENT in outcome(lambda: publisher.publish("a", 1))
            assert AT_ONCE in outcome(lambda: publisher.publish("a", 1))
            os.kill(stopped.pid, signal.SIGCONT)
            wait_until(lambda: Publisher(stopped.url, timeout_s=DEADLINE_S).publish("a", 2), "Redis answers")
            has_answered(stopped.url, log_key("notifications"))
            assert publisher.publish("a", 3).offset
    finally:
        count_with(lambda _: None)
    assert counted == ["opened", "refused", "closed"]


def test_what_outlives_a_call_does_not_keep_its_budget(redis_url: str) -> None:
    """A task begun inside a call, with a copy of its context as asyncio makes them, has its own calls later."""
    with Publisher(redis_url, timeout_s=DEADLINE_S) as publisher:
        with Budget("elsewhere", 0.01):
            copied = contextvars.copy_context()
        wait_until(lambda: copied.run(left_s) is None, "the end of the budget")
        assert copied.run(publisher.publish, "a", 1).offset


def test_a_forked_child_does_not_wait_for_a_probe_of_its_parent(stopped: EmbeddedRedis) -> None:
    """The thread that probes is not in the child, and the child's calls begin afresh."""
    with Publisher(stopped.url, timeout_s=BUDGET_S) as publisher:
        assert SILENT in outcome(lambda: publisher.publish("a", 1))
        child = os.fork()
        if child == 0:
            with suppress(BaseException):
                os._exit(0 if SILENT in outcome(lambda: publisher.publish("a", 1)) else 1)
            os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
