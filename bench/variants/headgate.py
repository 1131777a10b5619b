"""Headgate: `headgate serve --dev`, and the ways to publish to it."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from bench import publishing
from bench.bus import Bus
from bench.child import Child
from headgate.auth.tokens import Tokens
from headgate.events.topic import own_topics, user_topic
from headgate.settings.settings import Settings

from .variant import LARGE_QUEUED, NAMESPACE, Addressing, HttpPublishing, Kind, Variant, healthy, started

LOG_KEY = "hg:{notifications}:log"
FUNCTIONS = ("headgate_publish", "headgate_append", "headgate_append_batch")
# Clients of `own` addresses have a token each, as users have; the others are anonymous, as --dev allows.
TOKEN_SECRET = "no secret: every bench has this one"

_HEADGATE = Path(sys.executable).with_name("headgate")
_JOINED = f'42{NAMESPACE},["welcome"'


def mint(user: str, subscribe: list[str], publish: list[str]) -> str:
    """Return a token that Headgate takes for an hour."""
    tokens = Tokens.configured(Settings.read({"HEADGATE_TOKEN_SECRET": TOKEN_SECRET}))
    assert tokens is not None
    return tokens.mint(user, subscribe, publish, 3600)


def headgate_connect(**auth: object) -> str:
    """Return a CONNECT that subscribes to everything; `auth` adds a token or a resume position."""
    body = {"subscriptions": [{"pattern": "#"}], **auth}
    return f"40{NAMESPACE},{json.dumps(body, separators=(',', ':'))}"


def _start(bus: Bus, port: int, core: int, folder: Path, size_bytes: int) -> Child:
    env = {
        "HEADGATE_REDIS_URL": bus.url,
        "HEADGATE_DATA_DIR": str(folder / "data"),
        "HEADGATE_LOG_LEVEL": "warning",
        "HEADGATE_TOKEN_SECRET": TOKEN_SECRET,
        "HEADGATE_MAX_CLIENTS_PER_ADDRESS": "0",
        "HEADGATE_PUBLISH_PER_S": "100000",
        **(_limits(size_bytes) if size_bytes > Settings().max_payload_bytes else {}),
    }
    return started([str(_HEADGATE), "serve", "--dev", "--port", str(port)], core, folder, healthy(port), env)


def _limits(size_bytes: int) -> dict[str, str]:
    """Return the limits that admit payloads above the default one, and queue as many of them as the peers do."""
    return {"HEADGATE_MAX_PAYLOAD_BYTES": str(size_bytes), "HEADGATE_QUEUE_BYTES": str(LARGE_QUEUED * size_bytes)}


def fcall(function: str, topic: str, payload: str) -> bytes:
    """Return a publish as a publisher sends it, with an id for the load generator to fill in."""
    return publishing.command("FCALL", function, "1", LOG_KEY, topic, payload, publishing.EVENT_ID)


def _published(function: str, _bus: Bus, _port: int, size_bytes: int, to: str | None) -> bytes:
    return fcall(function, to or publishing.TOPIC, publishing.payload(size_bytes))


def _missing() -> str:
    return "" if _HEADGATE.exists() else "headgate is not installed in this Python"


def _connect_own(addresses: Sequence[int]) -> str:
    """Join as the product's client does for a signed-in user: a token, and one pattern for the user's own topics."""
    (user,) = map(publishing.address, addresses)
    return headgate_connect(token=mint(user, [], []), subscriptions=[{"pattern": own_topics(user)}])


def _connect_topics(addresses: Sequence[int]) -> str:
    return headgate_connect(subscriptions=[{"pattern": f"topics.{publishing.address(number)}"} for number in addresses])


_ADDRESSING: dict[Kind, Addressing] = {
    "own": Addressing(_connect_own, lambda _count: _JOINED, user_topic(publishing.ADDRESS, "mail.new")),
    "topics": Addressing(_connect_topics, lambda _count: _JOINED, f"topics.{publishing.ADDRESS}"),
}


def _http_event(size_bytes: int) -> dict[str, object]:
    return {"topic": publishing.TOPIC, "data": json.loads(publishing.payload(size_bytes))}


_HTTP = HttpPublishing(
    "/api/v1/events",
    _http_event,
    "/api/v1/events/batch",
    lambda events, size_bytes: {"events": [_http_event(size_bytes)] * events},
    lambda connections: [mint(f"publisher-{number}", [], ["#"]) for number in range(connections)],
)


HEADGATE = Variant(
    "headgate", "Headgate (logged publish)", _start, partial(_published, "headgate_publish"),
    headgate_connect(), _JOINED, _missing, addressing=_ADDRESSING, http=_HTTP,
)  # fmt: skip
APPEND = dataclasses.replace(
    HEADGATE,
    name="headgate-append",
    title="Headgate (logged, checked by the publisher)",
    template=partial(_published, "headgate_append"),
)
