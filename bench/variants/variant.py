"""One kind of server: how it is started, joined and published to. The others of this package describe one each."""

from __future__ import annotations

import socket
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from bench.bus import Bus
from bench.child import Child

NAMESPACE = "/notifications"
# Of payloads above the default limit of a server, so many may wait for a client.
LARGE_QUEUED = 16

# Of which kind the addresses are: `own`, a user with what is the user's own; `topics`, exact topics, rooms or channels.
Kind = Literal["own", "topics"]


@dataclass(frozen=True)
class Addressing:
    """How clients of this server listen at addresses, and do not get every event.

    `connect(addresses)` is the CONNECT of a client that listens at these; `joined(count)` is how the text begins that says that a
    client of so many addresses gets events from now on; `to` is the topic, room or channel of an address (publishing.address).
    """

    connect: Callable[[Sequence[int]], str]
    joined: Callable[[int], str]
    to: str


@dataclass(frozen=True)
class HttpPublishing:
    """How events come to this server over HTTP: the bodies of one and of a batch, and tokens for connections, if it wants any."""

    path: str
    single: Callable[[int], object]
    batch_path: str | None = None
    batch: Callable[[int, int], object] = lambda events, size_bytes: None
    tokens: Callable[[int], list[str]] = lambda connections: []


@dataclass(frozen=True)
class Variant:
    """One kind of server.

    `start(bus, port, core, folder, size)` starts it for payloads of that size and returns when it takes connections.
    `template(bus, port, size, to)` is the command that publishes an event of that payload size, to an address or, without one,
    to every client. `connect` is the CONNECT of a client that gets every event, and `joined` how the text begins that says
    that it does from now on. `missing()` names what is not installed, or is empty. `path` is that of a WebSocket that does not
    speak Engine.IO.
    """

    name: str
    title: str
    start: Callable[[Bus, int, int, Path, int], Child]
    template: Callable[[Bus, int, int, str | None], bytes]
    connect: str
    joined: str
    missing: Callable[[], str]
    path: str | None = None
    addressing: Mapping[Kind, Addressing] = field(default_factory=dict)
    http: HttpPublishing | None = None


def started(command: list[str], core: int, folder: Path, ready: Callable[[], bool], env: dict[str, str] | None = None) -> Child:
    """Start `command` as the server and return it once `ready()` holds.

    Raises:
        Failed: it ended, or was not ready in time.
    """
    child = Child(command, core=core, log=folder / "server.log", env=env)
    child.wait_ready(ready)
    return child


def listens(port: int) -> Callable[[], bool]:
    """Return a check whether the port takes connections."""

    def check() -> bool:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return True
        return False

    return check


def healthy(port: int) -> Callable[[], bool]:
    """Return a check of the port's health page."""

    def check() -> bool:
        with (
            suppress(OSError, urllib.error.URLError),
            urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=2) as answer,
        ):
            return bool(answer.status == 200)
        return False

    return check
