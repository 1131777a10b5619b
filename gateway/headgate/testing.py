"""The pytest fixture `published`: the events that the code under test has published, without Redis.

In: `pytest_plugins = ["headgate.testing"]` in a `conftest.py`, and events from any `Publisher` of the process, including the
Flask extension's. Out: these events, and receipts as from a log. The publisher's checks before sending run as in production, so
a wrong topic or id, data that is not JSON, or a violated schema raises. It never opens a connection. Requests to Redis are
answered as by an empty, healthy one.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from secrets import token_hex
from threading import Lock
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import msgspec
import pytest

from headgate.events.event import decode_message
from headgate.events.sender import operators_name
from headgate.events.topic import check_pattern, matches
from headgate.services.async_publisher import AsyncPublisher
from headgate.services.publisher import Publisher, Receipt

from .errors import SettingsError
from .redis import data_folder
from .redis.bounded import NewestReceipts
from .redis.keys import namespace_of
from .redis.lineage import Fate, LogPosition
from .settings.settings import REGISTRY, Settings

if TYPE_CHECKING:
    from .redis.connections import Command
    from .redis.durability import Durability
    from .redis.inbox import InboxPage
    from .redis.presence_entries import Member
    from .services.schemas.check import OnViolation, SchemaCheck

# The unreachable default Redis without HEADGATE_REDIS_URL. Its name appears in the error of a use outside the fixture.
_NO_REDIS = "unix:///nonexistent/no-redis-in-tests"
_KEY, _TOPIC, _PAYLOAD, _ID, _BY = 3, 4, 5, 6, 7


class EphemeralEvent(msgspec.Struct, frozen=True):
    """An ephemeral event published in a test. `data` is the decoded value. `by` is known only in topics of `show_by`."""

    topic: str
    data: Any
    id: str
    namespace: str
    by: str | None


class PublishedEvent(EphemeralEvent, frozen=True):
    """An event published in a test. `by` is its user, or None for a service."""

    receipt: Receipt


_E = TypeVar("_E", PublishedEvent, EphemeralEvent)


class Published:
    """The events published since the test began, in order. Repeating an id adds nothing, as in a log. Thread-safe."""

    def __init__(self) -> None:
        self._events: list[PublishedEvent] = []
        self._ephemeral: list[EphemeralEvent] = []
        self._lock = Lock()

    def __call__(self, pattern: str = "#", namespace: str | None = None) -> list[PublishedEvent]:
        """Return the events with topics that match a pattern (`*` is one word, `#` any rest), of one or all namespaces.

        Raises:
            InvalidPattern: the pattern is invalid.
        """
        return self._select(self._events, pattern, namespace)

    def ephemeral(self, pattern: str = "#", namespace: str | None = None) -> list[EphemeralEvent]:
        """Return the ephemeral events, selected like events.

        Raises:
            InvalidPattern: the pattern is invalid.
        """
        return self._select(self._ephemeral, pattern, namespace)

    def clear(self) -> None:
        """Remove the events. Their ids still count, and offsets continue."""
        with self._lock:
            self._events.clear()
            self._ephemeral.clear()

    def __repr__(self) -> str:  # which pytest shows for `assert published("…")`
        return f"Published({', '.join(event.topic for event in self._events) or 'nothing'})"

    def _select(self, events: list[_E], pattern: str, namespace: str | None) -> list[_E]:
        check_pattern(pattern)
        with self._lock:
            return [each for each in events if matches(pattern, each.topic) and namespace in (None, each.namespace)]


class _Writer:
    """Answers a publisher's calls to Redis (`log_writer.LogWriter`), and adds the events to a `Published`."""

    def __init__(self, published: Published) -> None:
        self._published, self._lock = published, published._lock
        self._receipts: dict[tuple[str, str, str, str], Receipt] = {}
        self._ids: dict[tuple[str, int], str] = {}
        self._offsets: defaultdict[str, int] = defaultdict(int)
        self._epoch = token_hex(8)
        self.newest = NewestReceipts()

    def append(self, command: Command) -> bytes:
        topic, payload, event_id = str(command[_TOPIC]), command[_PAYLOAD], str(command[_ID])
        namespace = namespace_of(str(command[_KEY]))
        owner, _, shown = (str(command[_BY]) if len(command) > _BY else "  ").split(" ")[:3]
        with self._lock:
            receipt = self._receipts.get((namespace, topic, owner, event_id))
            if is_new := receipt is None:
                self._offsets[namespace] += 1
                receipt = Receipt(self._epoch, self._offsets[namespace], False, event_id)
                self._receipts[namespace, topic, owner, event_id] = receipt
                self._ids[namespace, receipt.offset] = event_id
                data = msgspec.json.decode(payload if isinstance(payload, bytes) else str(payload))
                event = PublishedEvent(topic, data, event_id, namespace, operators_name(shown) or None, receipt)
                self._published._events.append(event)
        return f"{receipt.epoch} {receipt.offset} {not is_new:d}".encode()

    def append_many(self, commands: Sequence[Command]) -> list[Any]:
        return [self.append(command) if command[0] == "FCALL" else _waited(command) for command in commands]

    def announce(self, namespace: str, topic: str, message: bytes) -> None:
        event = decode_message(topic, message, len(message), 0)
        with self._lock:
            self._published._ephemeral.append(EphemeralEvent(topic, event.value(), event.id or "", namespace, event.by))

    def budget(self, namespace: str, *, is_patient: bool = False) -> AbstractContextManager[None]:
        return nullcontext()

    def open_check(
        self, schemas: str | None, mode: Literal["off", "warn", "refuse"] | None, on_violation: OnViolation | None
    ) -> SchemaCheck | None:
        from .redis.client import open_client  # imported here, because redis-py takes most of the import time
        from .services.schemas.check import open_check

        if mode != "off" and (schemas or Settings.from_environment("HEADGATE_SCHEMAS").schemas) == REGISTRY:
            raise SettingsError(
                [f"schemas={REGISTRY!r}: a test has no registry; expected a folder of schemas, or schema_check='off'"]
            )
        return open_check(open_client(_NO_REDIS), schemas, mode, on_violation)

    def wait_ms(self, namespace: str) -> int:
        return 1

    def counted(self, wish: Durability, namespace: str) -> Durability:
        return wish

    def refuse_unserved(self, namespace: str) -> None:
        """Every namespace is served."""

    def warn_unserved(self, namespace: str) -> None:
        """Every namespace is served."""

    def fate(self, namespace: str, epoch: str, offset: int, event_id: str) -> Fate:
        with self._lock:
            newest = self._offsets.get(namespace, 0)
            if epoch != self._epoch or not newest:
                return Fate.UNKNOWN
            if offset < 1:
                return Fate.TRIMMED
            is_another = offset > newest or (event_id and self._ids[namespace, offset] != event_id)
            return Fate.ROLLED_BACK if is_another else Fate.IN_LOG

    def position(self, namespace: str) -> LogPosition | None:
        with self._lock:
            offset = self._offsets.get(namespace)
            return None if offset is None else {"epoch": self._epoch, "offset": offset}

    def inbox_page(
        self, namespace: str, user: str, before: int | None, limit: int, *, archived: bool, had: tuple[str, int] | None
    ) -> InboxPage:
        from .redis.inbox import InboxPage  # imports redis-py

        end = self.position(namespace) or {"epoch": "", "offset": 0}
        return InboxPage(end["epoch"], end["offset"], 0, 0, [], None, {})

    def members_page(
        self, namespace: str, topic: str, after: str | None = None, limit: int | None = None
    ) -> tuple[int, list[Member], str | None]:
        return 0, [], None

    def revoke(self, namespace: str, *, user: str | None, token_id: str | None, for_s: int) -> int:
        """Return the answer of a site with one gateway and no clients to disconnect."""
        return 1

    def close(self) -> None:
        """Do nothing, because there are no connections."""


def _waited(command: Command) -> int | list[int]:
    """Return the reply to WAIT or WAITAOF from a Redis that has done it."""
    return [1, 0] if command[0] == "WAITAOF" else int(command[1])


def pytest_configure(config: pytest.Config) -> None:
    """Let imported modules create publishers without Redis, because no fixture applies before the first test."""
    find = data_folder.wait_for_private_redis
    patched = pytest.MonkeyPatch()
    patched.setattr(data_folder, "wait_for_private_redis", lambda folder, within_s: find(folder, within_s) or _NO_REDIS)
    config.add_cleanup(patched.undo)


@pytest.fixture
def published(monkeypatch: pytest.MonkeyPatch) -> Published:
    """Return the events of this test, as in `published("orders.*")`, including those of older publishers. See `Published`."""
    return record(monkeypatch)


def record(monkeypatch: pytest.MonkeyPatch) -> Published:
    """Return the events published from now on, until `monkeypatch` is undone."""
    published = Published()
    writer = _Writer(published)

    def keep(publisher: Publisher, real: object) -> None:
        publisher.__dict__["_writer"] = real  # for use after the test; it has not connected

    def begin_again(publisher: AsyncPublisher) -> None:
        if publisher._loop is not asyncio.get_running_loop():
            publisher._loop = publisher._opening = publisher._publisher = None

    # A publisher at module level serves tests with an event loop each.
    monkeypatch.setattr(AsyncPublisher, "_check_loop", begin_again)
    # A property of the class takes precedence over an attribute of an instance.
    monkeypatch.setattr(Publisher, "_writer", property(lambda publisher: writer, keep), raising=False)
    monkeypatch.setattr(data_folder, "wait_for_private_redis", lambda folder, within_s: _NO_REDIS)
    return published
