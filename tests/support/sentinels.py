"""A real Redis with replicas and Sentinels, each on a loopback port, in a folder of the test's own.

The Sentinels decide fast, because a primary is down after half a second of silence, and two of three must say so.
"""

import contextlib
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from headgate.errors import HeadgateError
from headgate.redis.client import Client, call, open_client
from headgate.redis.embedded import find_server
from headgate.settings.settings import redis_program
from tests.support.held_port import HeldPort
from tests.support.redis_server import DEADLINE_S, wait_until

PRIMARY = "mymaster"


class Server:
    """One server program with a configuration file; `stop` and `go_on` freeze it, `kill` ends it at once."""

    def __init__(self, folder: Path, *lines: str, sentinel: bool = False, password: str = "") -> None:
        self.password = password
        self._held = HeldPort()
        self.port = self._held.port
        folder.mkdir(parents=True)
        configuration = folder / "server.conf"
        configuration.write_text(
            "\n".join([f"port {self.port}", f"dir {folder}", "bind 127.0.0.1", "protected-mode no", *lines, ""])
        )
        self._command = [find_server(redis_program()).path, str(configuration), *(["--sentinel"] if sentinel else [])]
        self._log = folder / "log"
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def url(self) -> str:
        return f"redis://{f':{self.password}@' if self.password else ''}127.0.0.1:{self.port}"

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        wait_until(self.answers, f"{self._command} answers")

    def answers(self) -> bool:
        try:
            return bool(self.call("PING"))
        except HeadgateError:
            return False

    def call(self, *command: Any) -> Any:
        client: Client = open_client(self.url, timeout_s=DEADLINE_S)
        try:
            return call(client, *command)
        finally:
            client.close()

    def freeze(self) -> None:
        self._send(signal.SIGSTOP)

    def go_on(self) -> None:
        self._send(signal.SIGCONT)

    def kill(self) -> None:
        """End it at once. Idempotent."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def close(self) -> None:
        self.kill()
        self._held.close()

    def _send(self, number: int) -> None:
        assert self._process is not None
        self._process.send_signal(number)


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
            server = Server(folder / name, *lines, sentinel=sentinel, password=password)
            started.callback(server.close)
            return server

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
