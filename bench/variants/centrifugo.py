"""Centrifugo with its Redis engine, joined in its own JSON protocol. The person who runs the bench brings its binary.

Without a history all is as its defaults are. With one, every channel keeps events as long as a log of Headgate
does, and the limits of a recovery are raised: by default 300 events, and 1 MiB for each client.
A payload near that raises it too.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import jwt

from bench import publishing
from bench.bus import Bus
from bench.child import Child

from .socketio_peers import PEERS
from .variant import LARGE_QUEUED, Addressing, HttpPublishing, Kind, Variant, listens, started

_TOKEN_SECRET = "no secret: every bench has this one too"
# A text of CONNECT is one line of a file; 0x1e stands for a newline in it.
_LINE = "\x1e"
# As old as a log of Headgate, and as many events as no scenario fills. So much of it may wait for a client.
HISTORY_EVENTS, HISTORY_S = 100_000, 600
QUEUE_BYTES, QUEUED_BY_DEFAULT_BYTES = 64 << 20, 1 << 20


def binary() -> Path:
    """Return where the binary should be: HEADGATE_BENCH_CENTRIFUGO, else `centrifugo` in PATH, else bench/peers/bin."""
    named = os.environ.get("HEADGATE_BENCH_CENTRIFUGO") or shutil.which("centrifugo")
    return Path(named) if named else PEERS / "bin" / "centrifugo"


def _start(bus: Bus, port: int, core: int, folder: Path, size_bytes: int, *, has_history: bool = False) -> Child:
    """Start it with the Redis engine, open to anonymous clients and to our tokens; all else as it comes."""
    channel: dict[str, object] = {"allow_subscribe_for_client": True, "allow_subscribe_for_anonymous": True}
    limits: dict[str, object] = {"queue_max_size": LARGE_QUEUED * size_bytes} if size_bytes > QUEUED_BY_DEFAULT_BYTES / 2 else {}
    if has_history:
        channel |= {"history_size": HISTORY_EVENTS, "history_ttl": f"{HISTORY_S}s", "force_recovery": True}
        limits = {"queue_max_size": QUEUE_BYTES, **limits, "recovery_max_publication_limit": HISTORY_EVENTS}
    settings = {
        "http_server": {"address": "127.0.0.1", "port": str(port)},
        "engine": {"type": "redis", "redis": {"address": [f"unix://{bus.socket}"]}},
        "client": {
            "allow_anonymous_connect_without_token": True,
            "allowed_origins": ["*"],
            "token": {"hmac_secret_key": _TOKEN_SECRET},
            **limits,
        },
        "http_api": {"insecure": True},
        "channel": {"without_namespace": channel},
        "log": {"level": "error"},
    }
    (folder / "centrifugo.json").write_text(json.dumps(settings))
    return started([str(binary()), "-c", str(folder / "centrifugo.json")], core, folder, listens(port))


def _template(bus: Bus, port: int, size_bytes: int, to: str | None, *, has_id: bool = False) -> bytes:
    more = f',"idempotency_key":"{publishing.EVENT_ID}"' if has_id else ""
    body = f'{{"channel":"{to or publishing.TOPIC}","data":{publishing.payload(size_bytes)}{more}}}'
    return publishing.captured(bus.socket, [sys.executable, str(PEERS / "centrifugo.py"), str(port)], body)


def _missing() -> str:
    return "" if binary().exists() else "no centrifugo in PATH, in bench/peers/bin or in HEADGATE_BENCH_CENTRIFUGO"


def _command(number: int, **fields: object) -> str:
    return json.dumps({"id": number, **fields}, separators=(",", ":"))


def _subscribing(channels: Sequence[str]) -> str:
    subscribes = [_command(number, subscribe={"channel": channel}) for number, channel in enumerate(channels, 2)]
    return _LINE.join([_command(1, connect={}), *subscribes])


def _connect_own(addresses: Sequence[int]) -> str:
    """Join with a token that names the user, and the user's personal channel for the server to subscribe."""
    (user,) = map(publishing.address, addresses)
    claims = {"sub": user, "exp": int(time.time()) + 3600, "channels": [f"personal-{user}"]}
    return _command(1, connect={"token": jwt.encode(claims, _TOKEN_SECRET, "HS256")})


def _connect_topics(addresses: Sequence[int]) -> str:
    return _subscribing([publishing.address(number) for number in addresses])


_ADDRESSING: dict[Kind, Addressing] = {
    "own": Addressing(_connect_own, lambda _count: '"id":1,"connect"', f"personal-{publishing.ADDRESS}"),
    "topics": Addressing(_connect_topics, lambda count: f'"id":{count + 1},"subscribe"', publishing.ADDRESS),
}


def _http_event(size_bytes: int) -> dict[str, object]:
    return {"channel": publishing.TOPIC, "data": json.loads(publishing.payload(size_bytes))}


_HTTP = HttpPublishing(
    "/api/publish",
    _http_event,
    "/api/batch",
    lambda events, size_bytes: {"commands": [{"publish": _http_event(size_bytes)}] * events},
)
CENTRIFUGO = Variant(
    "centrifugo", "Centrifugo (Go), Redis engine", _start, _template,
    _subscribing([publishing.TOPIC]), '"id":2,"subscribe"', _missing, "/connection/websocket", _ADDRESSING, _HTTP,
)  # fmt: skip
CENTRIFUGO_HISTORY = dataclasses.replace(
    CENTRIFUGO,
    name="centrifugo-history",
    title="Centrifugo (Go), Redis engine, history and recovery",
    start=partial(_start, has_history=True),
)
CENTRIFUGO_IDS = dataclasses.replace(
    CENTRIFUGO_HISTORY,
    name="centrifugo-ids",
    title="Centrifugo (Go), Redis engine, history and recovery, an idempotency key for each event",
    template=partial(_template, has_id=True),
)
