"""Two Redis servers at one address, and every way in which the address can lose the end of a log.

`Pair` starts them: a primary, and another that stays empty until it is to follow. Each gateway reaches the address through a
separate relay, publishers and consumers through one more, so that a test can hold up or mislead each of them. A loss has two
steps. A function of this file marks the place to which the log will go back, and returns the function that takes it back there.
Later events before the second step are lost.

- crash: the machine crashes, and the append-only file ends at the mark.
- copy: the data directory is replaced by a copy that was made at the mark.
- put back: the server runs on, and older data is put into it.
- promoted: the primary dies, and a replica that has had nothing since the mark takes its place.
- two servers: the same, but the old primary lives on, and open connections stay with it, until it is made a replica.
"""

import random
import shutil
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from headgate.errors import HeadgateError
from tests.fault.chaos_proxy import ChaosProxy
from tests.support.redis_process import RedisProcess
from tests.support.redis_server import COPY_EVERY_KEY, PUT_BACK, wait_until

Lose = Callable[[], None]
NOWHERE = ("127.0.0.1", "1")


class Pair:
    """Use as a context manager.

    Attributes:
        primary, replica: the two servers, by what they are now.
        relays: one for each gateway.
        relay: that of all others.
    """

    def __init__(self, folder: Path, gateways: int) -> None:
        self._folder = folder
        self.primary, self.replica = (RedisProcess(folder / name) for name in ("one", "other"))
        self.relays = [ChaosProxy(("127.0.0.1", self.primary.port)) for _ in range(gateways)]
        self.relay = ChaosProxy(("127.0.0.1", self.primary.port))
        self._stack = ExitStack()

    @property
    def url(self) -> str:
        """For publishers and consumers."""
        return f"redis://127.0.0.1:{self.relay.port}"

    @property
    def addresses(self) -> list[str]:
        """For the gateways."""
        return [f"redis://127.0.0.1:{relay.port}" for relay in self.relays]

    def call(self, *command: str | bytes | int) -> Any:
        """Ask the primary."""
        return self.primary.call(*command)

    def redirect(self, *servers: RedisProcess) -> None:
        """Lead new connections elsewhere; to several in turn, if there are several."""
        for relay in (*self.relays, self.relay):
            relay.redirect(*(("127.0.0.1", server.port) for server in servers))

    def begin_to_follow(self) -> None:
        """Make the replica one, and wait until it has everything, also on its disk."""
        wait_until(self.replica.answers, "the replica to have loaded what it last got", 60)
        self.replica.call("REPLICAOF", "127.0.0.1", self.primary.port)
        wait_until(self._in_step, "the replica to be in step", 60)

    def take_over(self) -> None:
        """Lead all to the replica, which is the primary from here on."""
        self.primary, self.replica = self.replica, self.primary
        self.redirect(self.primary)

    def __enter__(self) -> Self:
        with ExitStack() as started:
            for server in (self.primary, self.replica):
                started.enter_context(server)
                server.call("CONFIG", "SET", "repl-diskless-sync-delay", "0")
            for relay in (*self.relays, self.relay):
                started.enter_context(relay)
            self._stack = started.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stack.close()

    def _in_step(self) -> bool:
        try:
            role = self.replica.call("INFO", "replication")
            disk = self.replica.call("INFO", "persistence")
        except HeadgateError:
            return False
        on_disk = not disk["aof_rewrite_in_progress"] and not disk["aof_rewrite_scheduled"]
        return on_disk and role.get("master_link_status") == "up"


def crash(pair: Pair) -> Lose:
    """Mark how far the file is written."""
    kept = pair.primary.moment()

    def lose() -> None:
        pair.primary.crash(kept)
        pair.primary.start()

    return lose


def copy(pair: Pair) -> Lose:
    """Copy the files; the first of them is the list of the others."""
    files = pair.primary.folder / "appendonlydir"
    saved = pair.primary.folder.with_name("saved")
    shutil.rmtree(saved, ignore_errors=True)
    shutil.copytree(files, saved)

    def lose() -> None:
        pair.primary.kill()
        shutil.rmtree(files)
        shutil.copytree(saved, files)
        pair.primary.start()

    return lose


def put_back(pair: Pair) -> Lose:
    """Copy every key; connections stay, and the process that has written the lost events writes on."""
    copied = pair.call("EVAL", COPY_EVERY_KEY, "0")

    def lose() -> None:
        pair.call("EVAL", PUT_BACK, "0", *(word for key in copied for word in key))

    return lose


def promoted(pair: Pair) -> Lose:
    """Let the replica lag."""
    pair.begin_to_follow()
    pair.replica.call("REPLICAOF", *NOWHERE)

    def lose() -> None:
        old = pair.primary
        old.kill()
        pair.replica.call("REPLICAOF", "NO", "ONE")
        pair.take_over()
        old.start()

    return lose


def two_servers(pair: Pair, moments: random.Random) -> Lose:
    """Let the replica lag; clients of the old primary do not hear of the new one."""
    pair.begin_to_follow()
    pair.replica.call("REPLICAOF", *NOWHERE)

    def lose() -> None:
        old = pair.primary
        pair.replica.call("REPLICAOF", "NO", "ONE")
        pair.take_over()
        act = moments.choice(["leave", "kill commands", "kill messages", "both in turn", "reset one"])
        if act == "kill commands":
            old.call("CLIENT", "KILL", "TYPE", "normal")
        elif act == "kill messages":
            old.call("CLIENT", "KILL", "TYPE", "pubsub")
        elif act == "both in turn":
            pair.redirect(old, pair.primary)
            old.call("CLIENT", "KILL", "TYPE", "normal")
        elif act == "reset one":
            moments.choice([*pair.relays, pair.relay]).reset()

    return lose
