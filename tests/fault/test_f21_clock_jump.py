"""F21: somebody sets the wall clock, of the gateway's machine and of Redis', an hour on and an hour back."""

from __future__ import annotations

import contextlib
import email.utils
import mmap
import shutil
import struct
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.fault.figures import Figures
from tests.fault.many_clients import Swarm
from tests.fault.sightings import disconnects
from tests.fault.site import Load, Site, wait_for

HOUR_S = 3600
SOURCE = Path(__file__).with_name("clock_shift.c")


class WallClock:
    """The wall clock of the processes that were started inside `shared`."""

    def __init__(self, folder: Path, compiler: str) -> None:
        self._file, self._library = folder / "shift", folder / "clock_shift.so"
        self._file.write_bytes(struct.pack("l", 0))
        command = [compiler, "-O1", "-shared", "-fPIC", "-Wall", "-Werror", "-o", str(self._library), str(SOURCE), "-ldl"]
        subprocess.run(command, check=True, timeout=60)
        with self._file.open("r+b") as file:
            self._shift = mmap.mmap(file.fileno(), struct.calcsize("l"))

    @contextlib.contextmanager
    def shared(self) -> Iterator[None]:
        """Have it in every process that is started meanwhile."""
        with pytest.MonkeyPatch.context() as environment:
            environment.setenv("LD_PRELOAD", str(self._library))
            environment.setenv("CLOCK_SHIFT_FILE", str(self._file))
            yield

    def set(self, shift_s: int) -> None:
        """Jump: it is so much ahead of ours from now on."""
        self._shift[:] = struct.pack("l", shift_s)


@pytest.fixture
def clock(tmp_path: Path) -> WallClock:
    """A clock of its own, at 0."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler (cc) here: the wall clock of other processes cannot be shifted")
    return WallClock(tmp_path, compiler)


def test_a_wall_clock_that_jumps_disconnects_nobody(clock: WallClock, tmp_path: Path, load: Load, figures: Figures) -> None:
    """Pings go on as if nothing were, and every event arrives once, in order."""
    # Pings so close that several fall into each length of time below.
    with clock.shared():
        site = Site(tmp_path / "site", replace(load, gateways=1, clients=20), ping_interval_s=0.2, ping_timeout_s=20)
        site.__enter__()
    with contextlib.closing(site.swarm()) as swarm, contextlib.ExitStack() as ended:
        ended.push(site)
        swarm.open()
        with site.publishing() as publishing:
            for shift_s in (HOUR_S, -HOUR_S, 0):
                clock.set(shift_s)
                wait_for(lambda shift_s=shift_s: abs(shift_of_gateway(site) - shift_s) < 60, "the gateway's clock to have jumped")
                wait_for_pings(swarm, 3)
                assert abs(shift_of_redis(site) - shift_s) < 60
            history = publishing.stop()
        site.come_to_rest(swarm, history)
        lost = disconnects(swarm)
        assert lost == []
    figures("F21", "jumps of an hour, on and back: clients disconnected", len(lost), "", "0 (checked)")


def wait_for_pings(swarm: Swarm, count: int) -> None:
    """Wait until every client has had so many more; without them a browser would give the gateway up."""
    had = [client.pings for client in swarm.clients]
    swarm.wait(
        lambda: all(client.pings >= before + count for client, before in zip(swarm.clients, had, strict=True)),
        f"{count} pings for each client",
    )


def shift_of_gateway(site: Site) -> float:
    """Return how far ahead of ours the gateway's wall clock is, by the date in its answers."""
    with urllib.request.urlopen(f"{site.urls[0]}/livez", timeout=30) as answer:
        return email.utils.parsedate_to_datetime(answer.headers["Date"]).timestamp() - time.time()


def shift_of_redis(site: Site) -> float:
    """Return the same for Redis."""
    seconds, _ = site.redis.call("TIME")
    return float(seconds) - time.time()
