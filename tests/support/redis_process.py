"""A Redis of a test's own, over TCP, that can be killed, stopped, and started again with or without its data.

The server program is that of everything else here (redis/embedded.py finds it). The product never uses these options: a port, an
append-only file, SIGKILL.
"""

import resource
import shutil
import signal
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from headgate.errors import HeadgateError
from headgate.redis.client import call, open_client
from headgate.redis.embedded import find_server
from headgate.settings.settings import redis_program
from tests.support.held_port import HeldPort
from tests.support.redis_server import DEADLINE_S, wait_until


class Server:
    """One server program with a configuration file, on a loopback port that stays the same over its restarts.

    Args:
        folder: for its files.
        lines: of its configuration.
        sentinel: whether it is a Sentinel.
    """

    def __init__(self, folder: Path, *lines: str, sentinel: bool = False, password: str = "") -> None:
        self.folder, self.password = folder, password
        self._lines, self._is_sentinel = lines, sentinel
        self._process: subprocess.Popen[bytes] | None = None
        self._held = HeldPort()
        self.port = self._held.port
        self.url = f"redis://{f':{password}@' if password else ''}127.0.0.1:{self.port}"

    def start(self) -> Self:
        """Start it, and return it when it takes commands."""
        self.folder.mkdir(parents=True, exist_ok=True)
        configuration, log = self.folder / "server.conf", self.folder / "log"
        if not configuration.exists():  # a Sentinel writes to its own
            lines = [f"port {self.port}", f"dir {self.folder}", "bind 127.0.0.1", "protected-mode no", *self._lines, ""]
            configuration.write_text("\n".join(lines))
        command = [find_server(redis_program())[0], str(configuration), *(["--sentinel"] if self._is_sentinel else [])]
        with log.open("ab") as output:
            process = self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                restore_signals=False,  # Python ignores SIGXFSZ; so must this one, for `fill_disk`
            )
        wait_until(lambda: process.poll() is not None or self.answers(), f"{command} answers")
        assert process.poll() is None, f"redis ended: {log.read_text()[-1000:]}"
        return self

    @property
    def pid(self) -> int:
        assert self._process is not None, "not started"
        return self._process.pid

    def answers(self) -> bool:
        try:
            with open_client(self.url, timeout_s=0.5, max_connections=1) as client:
                return bool(call(client, "PING"))
        except HeadgateError:
            return False

    def call(self, *command: Any) -> Any:
        with open_client(self.url, timeout_s=DEADLINE_S, max_connections=1) as client:
            return call(client, *command)

    def pause(self) -> None:
        """Stop it (SIGSTOP), so that its connections stay, and nothing answers."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """End it as a crash would (SIGKILL), and wait until it is gone. Idempotent."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def close(self) -> None:
        self.kill()
        self._held.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


class RedisProcess(Server):
    """A server with an append-only file."""

    def __init__(self, folder: Path) -> None:
        # The process ends here, not the machine, so a file keeps everything that was written to it. With `everysec` Redis answers
        # up to two seconds before it writes, while the disk is slow to sync earlier bytes.
        super().__init__(folder, "appendonly yes", "save ''", "databases 1", "appendfsync no")

    def start(self, *, empty: bool = False) -> Self:
        """Start it, with the content of the append-only file unless `empty`; return it when it takes commands."""
        if empty:
            shutil.rmtree(self.folder, ignore_errors=True)
        return super().start()

    def terminate(self) -> None:
        """Ask it to end (SIGTERM), as the one does that started a private server, and end it for good if it does not."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(DEADLINE_S)
            except subprocess.TimeoutExpired:
                self.kill()

    def moment(self) -> dict[Path, int]:
        """Return how far its file is written, which is to the last answer."""
        return {path: path.stat().st_size for path in (self.folder / "appendonlydir").glob("*.incr.aof")}

    def crash(self, back_to: dict[Path, int]) -> None:
        """Kill it, and cut its file back to a moment, as when the machine crashes and the disk has no more."""
        self.kill()
        for path, size in back_to.items():
            with path.open("r+b") as file:
                file.truncate(size)

    def fill_disk(self, room_bytes: int = 0) -> None:
        """Let no file of its grow by more than `room_bytes`. A write beyond fails, perhaps halfway, as on a full disk."""
        most = max(self.moment().values(), default=0) + room_bytes if room_bytes else 0
        resource.prlimit(self.pid, resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))

    def free_disk(self) -> None:
        """Let it write again."""
        resource.prlimit(self.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
