"""A Redis of a test's own that can be killed, stopped, started again with or without its data, over TCP.

The server program is that of everything else here (redis/embedded.py finds it); the options here (a TCP port, an append-only
file, SIGKILL) the product never uses.
"""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from headgate.errors import HeadgateError
from headgate.redis.client import call, open_client
from headgate.redis.embedded import find_server
from tests.support.held_port import HeldPort

DEADLINE_S = 30.0
POLL_S = 0.005


class RedisProcess:
    """A server on a loopback port that stays the same over its restarts. Its data are in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._binary = find_server(os.environ.get("HEADGATE_REDIS_SERVER") or None).path
        self._process: subprocess.Popen[bytes] | None = None
        self._held = HeldPort()
        self.port = self._held.port
        self.url = f"redis://127.0.0.1:{self.port}"

    def start(self, *, empty: bool = False) -> RedisProcess:
        """Start it, with the content of the append-only file unless `empty`; return when it takes commands."""
        if empty:
            shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    self._binary, "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder),
                    "--appendonly", "yes", "--save", "", "--databases", "1",
                    # The process ends here, not the machine, so a file keeps everything that was written to it. With `everysec`
                    # Redis answers up to two seconds before it writes, while the disk is slow to sync earlier bytes.
                    "--appendfsync", "no",
                ],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                restore_signals=False,  # Python ignores SIGXFSZ; so must this one, for `fill_disk`
            )  # fmt: skip
        deadline = time.monotonic() + DEADLINE_S
        while not self.answers():
            assert self._process.poll() is None, f"redis ended: {(self.folder / 'log').read_text()[-1000:]}"
            assert time.monotonic() < deadline, "redis did not start in time"
            time.sleep(POLL_S)
        return self

    @property
    def pid(self) -> int:
        """Process id."""
        assert self._process is not None, "not started"
        return self._process.pid

    def answers(self) -> bool:
        """Whether it takes commands now."""
        client = open_client(self.url, timeout_s=0.5, max_connections=1)
        try:
            call(client, "PING")
        except HeadgateError:
            return False
        finally:
            client.close()
        return True

    def call(self, *command: str | bytes | int) -> Any:
        """Run one command over a separate connection."""
        client = open_client(self.url, timeout_s=DEADLINE_S, max_connections=1)
        try:
            return call(client, *command)
        finally:
            client.close()

    def kill(self) -> None:
        """End it as a crash would (SIGKILL), and wait until it is gone. Idempotent."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

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

    def pause(self) -> None:
        """Stop it (SIGSTOP), so that its connections stay, and nothing answers."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Let it run again."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def __enter__(self) -> RedisProcess:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.kill()
        self._held.close()
