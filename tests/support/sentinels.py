"""A real Redis with replicas and Sentinels, each on a loopback port, in a folder of the test's own.

The Sentinels decide fast, because a primary is down after half a second of silence, and two of three must say so.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.support.redis_process import Server

PRIMARY = "mymaster"


class Sentinels:
    """A primary, replicas and three Sentinels.

    Attributes:
        servers: the Redis servers; the first one began as the primary.
        sentinels: the three.
        url: for users.
    """

    def __init__(
        self,
        folder: Path,
        started: contextlib.ExitStack,
        *,
        replicas: int = 1,
        requirepass: str = "",
        sentinel_password: str = "",
    ) -> None:
        common = ["save ''", "appendonly no", "repl-diskless-sync-delay 0"]
        if requirepass:
            common += [f"requirepass {requirepass}", f"masterauth {requirepass}"]

        def begin(name: str, *lines: str, sentinel: bool = False) -> Server:
            password = sentinel_password if sentinel else requirepass
            return started.enter_context(Server(folder / name, *lines, sentinel=sentinel, password=password))

        self.servers = [begin("first", *common)]
        for number in range(replicas):
            self.servers.append(begin(f"replica{number}", *common, f"replicaof 127.0.0.1 {self.servers[0].port}"))
        lines = [
            f"sentinel monitor {PRIMARY} 127.0.0.1 {self.servers[0].port} 2",
            f"sentinel down-after-milliseconds {PRIMARY} 500",
            f"sentinel failover-timeout {PRIMARY} 3000",
        ]
        if requirepass:
            lines.append(f"sentinel auth-pass {PRIMARY} {requirepass}")
        if sentinel_password:
            lines += [f"requirepass {sentinel_password}", f"sentinel sentinel-pass {sentinel_password}"]
        self.sentinels = [begin(f"sentinel{number}", *lines, sentinel=True) for number in range(3)]
        credentials = f":{requirepass}@" if requirepass else ""
        options = f"?sentinel_password={sentinel_password}" if sentinel_password else ""
        hosts = ",".join(f"127.0.0.1:{sentinel.port}" for sentinel in self.sentinels)
        self.url = f"redis+sentinel://{credentials}{hosts}/{PRIMARY}/0{options}"

    def is_known(self) -> bool:
        known = [dict_of(sentinel.call("SENTINEL", "MASTER", PRIMARY)) for sentinel in self.sentinels]
        wanted = (len(self.servers) - 1, len(self.sentinels) - 1)
        return all((int(each["num-slaves"]), int(each["num-other-sentinels"])) == wanted for each in known)


@contextlib.contextmanager
def start_sentinels(folder: Path, **options: Any) -> Iterator[Sentinels]:
    """Start them, and end them with the block."""
    with contextlib.ExitStack() as started:
        yield Sentinels(folder, started, **options)


def dict_of(reply: Any) -> dict[str, str]:
    """Return a reply of names and values, however redis-py shapes it."""
    if isinstance(reply, dict):
        return {_text(name): _text(value) for name, value in reply.items()}
    return {_text(name): _text(value) for name, value in zip(reply[::2], reply[1::2], strict=True)}


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
