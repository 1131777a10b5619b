"""The servers that are measured: how each is started, joined and published to.

All of them give every client of the namespace every event, each with the defaults that its documentation recommends.
"""

from __future__ import annotations

import json
import shutil
import socket
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from headgate.auth.tokens import Tokens
from headgate.settings import Settings

from . import publishing
from .bus import Bus
from .child import Child
from .generator import BINARIES

NAMESPACE = "/notifications"
LOG_KEY = "hg:{notifications}:log"
CHANNEL = "hg:{notifications}:" + publishing.TOPIC
PEERS = Path(__file__).parent / "peers"
# For the scenario whose clients have tokens; the others are anonymous, as --dev allows.
TOKEN_SECRET = "no secret: every bench has this one"


def mint(user: str, subscribe: list[str], publish: list[str]) -> str:
    """Return a token that Headgate takes for an hour."""
    tokens = Tokens.configured(Settings.read({"HEADGATE_TOKEN_SECRET": TOKEN_SECRET}))
    assert tokens is not None
    return tokens.mint(user, subscribe, publish, 3600)


@dataclass(frozen=True)
class Variant:
    """One kind of server.

    `start(bus, port, core, folder)` starts it and returns when it takes connections; `template(bus, port, size)` is the command
    that publishes an event of that payload size; `joined` is how the text begins that says that a client gets events from
    now on; `missing()` names what is not installed, or is empty; `path` is that of a WebSocket that does not speak Engine.IO.
    """

    name: str
    title: str
    start: Callable[[Bus, int, int, Path], Child]
    template: Callable[[Bus, int, int], bytes]
    connect: str
    joined: str
    missing: Callable[[], str]
    path: str | None = None


@contextmanager
def held_port() -> Iterator[int]:
    """A loopback port that the kernel gives nobody else: bound, and not listened on but by a server that sets SO_REUSEADDR."""
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        port: int = held.getsockname()[1]
        yield port


def _start(command: list[str], core: int, folder: Path, ready: Callable[[], bool], env: dict[str, str] | None = None) -> Child:
    child = Child(command, core=core, log=folder / "server.log", env=env)
    try:
        child.wait_ready(ready)
    except BaseException:
        child.stop()
        raise
    return child


def _listens(port: int) -> Callable[[], bool]:
    def check() -> bool:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return True
        return False

    return check


def _healthy(port: int) -> Callable[[], bool]:
    def check() -> bool:
        with (
            suppress(OSError, urllib.error.URLError),
            urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=2) as answer,
        ):
            return bool(answer.status == 200)
        return False

    return check


# Headgate --------------------------------------------------------------------------------------------------------------

_HEADGATE = Path(sys.executable).with_name("headgate")


def _start_headgate(bus: Bus, port: int, core: int, folder: Path) -> Child:
    env = {
        "HEADGATE_REDIS_URL": bus.url,
        "HEADGATE_DATA_DIR": str(folder / "data"),
        "HEADGATE_LOG_LEVEL": "warning",
        "HEADGATE_TOKEN_SECRET": TOKEN_SECRET,
        "HEADGATE_MAX_CLIENTS_PER_ADDRESS": "0",
    }
    return _start([str(_HEADGATE), "serve", "--dev", "--port", str(port)], core, folder, _healthy(port), env)


def _headgate_template(_bus: Bus, _port: int, size_bytes: int) -> bytes:
    return publishing.command("FCALL", "headgate_publish", "1", LOG_KEY, publishing.TOPIC, publishing.payload(size_bytes))


def _plain_template(_bus: Bus, _port: int, size_bytes: int) -> bytes:
    return publishing.command("PUBLISH", CHANNEL, publishing.payload(size_bytes))


def headgate_connect(**auth: object) -> str:
    """Return a CONNECT that subscribes to everything; `auth` adds a token or a resume position."""
    body = {"subscriptions": [{"pattern": "#"}], **auth}
    return f"40{NAMESPACE},{json.dumps(body, separators=(',', ':'))}"


def _headgate_missing() -> str:
    return "" if _HEADGATE.exists() else "headgate is not installed in this Python"


# Peers -----------------------------------------------------------------------------------------------------------------

_STOCK = [str(PEERS / ".venv" / "bin" / "python"), str(PEERS / "stock.py")]
_NODE = ["node", str(PEERS / "node.js")]


def _start_stock(bus: Bus, port: int, core: int, folder: Path) -> Child:
    return _start([*_STOCK, "serve", str(port), bus.url, NAMESPACE], core, folder, _listens(port))


def _stock_template(bus: Bus, _port: int, size_bytes: int) -> bytes:
    with bus.client() as client:
        return publishing.captured(client, [*_STOCK, "emit", bus.url, NAMESPACE], publishing.payload(size_bytes))


def _start_node(bus: Bus, port: int, core: int, folder: Path) -> Child:
    env = {"NODE_ENV": "production"}
    return _start([*_NODE, "serve", str(port), bus.socket, NAMESPACE], core, folder, _listens(port), env)


def _node_template(bus: Bus, _port: int, size_bytes: int) -> bytes:
    with bus.client() as client:
        return publishing.captured(client, [*_NODE, "emit", bus.socket, NAMESPACE], publishing.payload(size_bytes))


# The Redis engine, and what lets anyone subscribe; all else as it comes.
_CENTRIFUGO = shutil.which("centrifugo") or str(PEERS / "bin" / "centrifugo")
_CENTRIFUGO_JOIN = '{"id":1,"connect":{}}\x1e{"id":2,"subscribe":{"channel":"' + publishing.TOPIC + '"}}'


def _start_centrifugo(bus: Bus, port: int, core: int, folder: Path) -> Child:
    settings = {
        "http_server": {"address": "127.0.0.1", "port": str(port)},
        "engine": {"type": "redis", "redis": {"address": [f"unix://{bus.socket}"]}},
        "client": {"insecure": True, "allowed_origins": ["*"]},
        "http_api": {"insecure": True},
        "channel": {"without_namespace": {"allow_subscribe_for_client": True, "allow_subscribe_for_anonymous": True}},
        "log": {"level": "error"},
    }
    (folder / "centrifugo.json").write_text(json.dumps(settings))
    return _start([_CENTRIFUGO, "-c", str(folder / "centrifugo.json")], core, folder, _listens(port))


def _centrifugo_template(bus: Bus, port: int, size_bytes: int) -> bytes:
    body = f'{{"channel":"{publishing.TOPIC}","data":{publishing.payload(size_bytes)}}}'
    with bus.client() as client:
        return publishing.captured(client, [sys.executable, str(PEERS / "centrifugo.py"), str(port)], body)


def _centrifugo_missing() -> str:
    return "" if Path(_CENTRIFUGO).exists() else "no centrifugo in PATH or bench/peers/bin"


def _stock_missing() -> str:
    return "" if Path(_STOCK[0]).exists() else "not installed: make -C bench peers"


def _node_missing() -> str:
    installed = shutil.which("node") and (PEERS / "node_modules" / "socket.io").exists()
    return "" if installed else "not installed: make -C bench peers"


def _start_sink(*extra: str) -> Callable[[Bus, int, int, Path], Child]:
    def start(bus: Bus, port: int, core: int, folder: Path) -> Child:
        command = [str(BINARIES / "sink"), str(port), bus.socket, CHANNEL, NAMESPACE, *extra]
        return _start(command, core, folder, _listens(port))

    return start


VARIANTS = {
    variant.name: variant
    for variant in (
        Variant(
            "headgate", "Headgate (logged publish)", _start_headgate, _headgate_template,
            headgate_connect(), f'42{NAMESPACE},["welcome"', _headgate_missing,
        ),
        Variant(
            "headgate-plain", "Headgate (plain PUBLISH)", _start_headgate, _plain_template,
            headgate_connect(), f'42{NAMESPACE},["welcome"', _headgate_missing,
        ),
        Variant(
            "stock", "python-socketio + RedisManager, gevent", _start_stock, _stock_template,
            f"40{NAMESPACE},", f"40{NAMESPACE},", _stock_missing,
        ),
        Variant(
            "node", "Node socket.io + redis adapter", _start_node, _node_template,
            f"40{NAMESPACE},", f"40{NAMESPACE},", _node_missing,
        ),
        Variant(
            "centrifugo", "Centrifugo (Go), Redis engine", _start_centrifugo, _centrifugo_template,
            _CENTRIFUGO_JOIN, '"id":2,"subscribe"', _centrifugo_missing, "/connection/websocket",
        ),
        Variant(
            "sink", "C, joined sends, no protocol (upper bound)", _start_sink(), _plain_template,
            f"40{NAMESPACE},", f"40{NAMESPACE},", lambda: "",
        ),
        Variant(
            "sink-each", "C, one send per delivery, no protocol", _start_sink("--each"), _plain_template,
            f"40{NAMESPACE},", f"40{NAMESPACE},", lambda: "",
        ),
    )
}  # fmt: skip
