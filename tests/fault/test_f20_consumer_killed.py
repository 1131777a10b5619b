"""F20: a consumer is killed between receiving, doing and acknowledging, again and again; and is asked to stop, as often."""

import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headgate.consumers.work.dead_letters import DeadLetters
from headgate.consumers.work.task import OUTCOME_UNKNOWN, POISON
from headgate.consumers.work.worker import MAX_UNKNOWN, PAGE_TASKS
from headgate.redis.client import Client, call, open_client
from headgate.redis.keys import group_key, log_key
from headgate.services.publisher import Publisher
from tests.fault.consumer_process import NAME, NAMESPACE, keys_of
from tests.fault.figures import Figures
from tests.fault.site import Load
from tests.support.line_program import LineProgram
from tests.support.redis_process import RedisProcess
from tests.support.redis_server import wait_until

INSTANCES = 2
# Few enough that the retention keeps them all, because this tests the hand-over, not the log.
SOME_EVENTS = 20
DEADLINE_S = 40.0
# Short, so that abandoned work comes back soon. But a machine that stands still for a lease doubles up to a page each time, and
# the short form's few kills leave no room for that.
KILLED_LEASE_S = {"short": 4.0, "full": 1.0}
# Long, so that nothing is abandoned.
STOPPED_LEASE_S = 30.0


class Instances(LineProgram):
    """The process that starts consumers and says how they ended. They write their work to one file."""

    def __init__(self, url: str, file: Path, lease_s: float, mode: str) -> None:
        super().__init__(sys.executable, "-m", "tests.fault.consumer_process", url, str(file), str(lease_s), *[mode] * bool(mode))

    def start(self) -> int:
        """Start a consumer and return its process id; it consumes."""
        return self._number("start")

    def stop(self, pid: int, number: int) -> int:
        """Send a signal to one, wait, return the exit code."""
        os.kill(pid, number)
        return self._number(f"wait {pid}")

    def _number(self, line: str) -> int:
        self.say(line)
        while not (answer := self.line().strip()).lstrip("-").isdigit():
            pass  # a line of its log, as Redis may be unreachable
        return int(answer)


class Fleet:
    """Instances that come and go, events that are published at the same time, and the account at the end."""

    def __init__(self, url: str, folder: Path, seed: int, lease_s: float, mode: str) -> None:
        self._file, self._mode = folder / "done", mode
        self._file.touch()
        self.random = random.Random(seed)
        self.published = 0
        self._publisher = Publisher(url)
        self.client: Client = open_client(url)
        self._instances = Instances(url, self._file, lease_s, mode)
        self._running = [self._instances.start() for _ in range(INSTANCES)]

    def publish(self) -> None:
        """Publish some events; each holds its number, which is its offset."""
        self._publisher.publish_many([("a", self.published + number + 1) for number in range(SOME_EVENTS)])
        self.published += SOME_EVENTS

    def end_one(self, number: int) -> int:
        """End a random instance at a random moment, by a signal, and start another; return how it exited."""
        time.sleep(self.random.uniform(0, 0.05))
        index = self.random.randrange(INSTANCES)
        code = self._instances.stop(self._running[index], number)
        self._running[index] = self._instances.start()
        return code

    def done(self) -> Counter[tuple[int, str]]:
        """How often each part of each event was done."""
        lines = [line.split() for line in self._file.read_text().splitlines()]
        return Counter((int(offset), key.strip("-")) for offset, key, _ in lines)

    def owed(self) -> set[tuple[int, str]]:
        """Every part of every event that was published."""
        return {
            (number, key) for number in range(1, self.published + 1) for key in (keys_of(number) if not self._mode else ("",))
        }

    def wait_until_done(self) -> Counter[tuple[int, str]]:
        """Wait until nothing is leased or waiting, and return the finished work."""
        wait_until(self._at_rest, "everything to be answered", DEADLINE_S)
        return self.done()

    def close(self) -> None:
        """End the running processes."""
        self._instances.end()
        self._publisher.close()
        self.client.close()

    def _at_rest(self) -> bool:
        """Asked in one step, because work goes from hand to held and back."""
        lag, leased, held, *_ = call(self.client, "FCALL_RO", "headgate_group_look", 1, log_key(NAMESPACE), NAME)
        return (lag, leased, held) == (0, 0, 0)


@pytest.fixture
def start_fleet(redis: RedisProcess, tmp_path: Path, seed: int) -> Iterator[Callable[..., Fleet]]:
    """Start two instances. The seed repeats the moments of the kills, not the timing of the machine."""
    started: list[Fleet] = []

    def start(lease_s: float, mode: str = "") -> Fleet:
        started.append(Fleet(redis.url, tmp_path, seed, lease_s, mode))
        return started[-1]

    yield start
    for fleet in started:
        fleet.close()


def check_nothing_lost(fleet: Fleet, done: Counter[tuple[int, str]]) -> int:
    """Each part is done, or a dead letter because too many processes ended with it; return how many of these there are."""
    letters = DeadLetters(fleet.client, NAMESPACE, NAME).page()
    set_aside = {(letter.task.offset, letter.task.key or "") for letter in letters}
    lost = fleet.owed() - set(done) - set_aside
    unknown = set(done) - fleet.owed()
    assert not lost
    assert not unknown
    assert int(call(fleet.client, "HGET", group_key(NAMESPACE, NAME), "missed") or 0) == 0
    assert {letter.why for letter in letters} <= {POISON, OUTCOME_UNKNOWN}
    assert len(letters) == DeadLetters(fleet.client, NAMESPACE, NAME).count()
    return len(letters)


def test_a_killed_consumer_loses_nothing_and_doubles_one_piece_at_most(
    start_fleet: Callable[..., Fleet], load: Load, figures: Figures
) -> None:
    """SIGKILL at random moments, two instances with one worker each."""
    kills = 200 if load.name == "full" else 20
    lease_s = KILLED_LEASE_S[load.name]
    fleet = start_fleet(lease_s)
    for _ in range(kills):
        fleet.publish()
        fleet.end_one(signal.SIGKILL)
    killed_s = time.monotonic()
    done = fleet.wait_until_done()
    rest_s = time.monotonic() - killed_s

    poison = check_nothing_lost(fleet, done)
    doubled = sum(times - 1 for times in done.values())
    figures("F20", f"consumer killed × {kills}: tasks lost", 0, "", "0")
    figures("F20", f"consumer killed × {kills}: tasks set aside after {MAX_UNKNOWN} deaths", poison, "", f"≤ {kills // 2}")
    figures("F20", f"consumer killed × {kills}: tasks done twice", doubled, "", f"≤ {kills}")
    figures("F20", f"until all was done after the last kill, leases of {lease_s:g} s", rest_s, "s", "leases + backlog")
    assert poison <= kills // 2  # the first death may be that of a page, each later one is of a task alone
    assert doubled <= kills


def test_a_killed_batch_consumer_loses_nothing(start_fleet: Callable[..., Fleet], load: Load, figures: Figures) -> None:
    """A page may come twice for each kill."""
    kills = 50 if load.name == "full" else 5
    fleet = start_fleet(KILLED_LEASE_S[load.name], "batch")
    for _ in range(kills):
        fleet.publish()
        fleet.end_one(signal.SIGKILL)
    done = fleet.wait_until_done()

    check_nothing_lost(fleet, done)
    doubled = sum(times - 1 for times in done.values())
    figures("F20", f"batch consumer killed × {kills}: events done twice", doubled, "", f"≤ {kills * PAGE_TASKS}")
    assert doubled <= kills * PAGE_TASKS


def test_a_consumer_that_is_asked_to_stop_loses_and_doubles_nothing(
    start_fleet: Callable[..., Fleet], load: Load, figures: Figures
) -> None:
    """At SIGTERM at random moments it finishes its present work, and gives the rest back."""
    stops = 50 if load.name == "full" else 5
    fleet = start_fleet(STOPPED_LEASE_S)
    codes = []
    for _ in range(stops):
        fleet.publish()
        codes.append(fleet.end_one(signal.SIGTERM))
    done = fleet.wait_until_done()

    assert check_nothing_lost(fleet, done) == 0
    assert codes == [0] * stops
    assert max(done.values()) == 1
    figures("F20", f"consumer asked to stop × {stops}: tasks lost or done twice", 0, "", "0")
