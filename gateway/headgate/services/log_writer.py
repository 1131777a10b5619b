"""A publisher's calls to Redis, each within one time budget, and its knowledge of namespaces, receipts and users.

In: commands that the publisher has checked and encoded. Out: the replies, or an error. This module contains everything of a
publisher that needs redis-py, and loads when a publisher is made.
"""

from __future__ import annotations

import logging
from time import monotonic
from typing import Literal

from headgate.auth.revocation import revoke
from headgate.errors import BusRefused, BusUnavailable, HeadgateError, NamespaceNotServed
from headgate.redis.appending import Appending
from headgate.redis.budget import Budget, left_s
from headgate.redis.client import call_at, database_number, open_client, place_of
from headgate.redis.durability import Durability, OnlineReplicas
from headgate.redis.inbox import InboxPage, read_inbox
from headgate.redis.keys import live_channel, log_key
from headgate.redis.lineage import Fate, LogPosition, alone
from headgate.redis.log import EventLog
from headgate.redis.newest import NewestReceipts
from headgate.redis.presence import read_page
from headgate.redis.presence_entries import Member
from headgate.redis.registry import has_been_served, remembered
from headgate.schemas.check import OnViolation, SchemaCheck, open_check

# Share of a call's time that Redis may wait for replicas or the disk. Its answer must arrive before the call times out.
_SHARE_OF_WAITING = 0.8
# Namespaces with a cached place; then the cache is cleared.
MAX_PLACES = 1000

# The standard library's logging: an application has configured it, or sees warnings on standard error.
log = logging.getLogger("headgate.publisher")


class LogWriter:
    """See the module. `attempts` share the `timeout_s` of a call; see `Publisher` for the rest.

    Attributes:
        newest: receipts that each new connection reports first.
    """

    def __init__(self, redis_url: str, timeout_s: float, attempts: int, *, strict_namespace: bool) -> None:
        self._timeout_s = timeout_s
        self.newest = NewestReceipts()
        self._client = open_client(redis_url, timeout_s=timeout_s / attempts, newest=self.newest)
        self._strict_namespace = strict_namespace
        self._remembered = remembered(self._client)
        self._online = OnlineReplicas()
        # The server of each namespace, as `place_of` names it; it never changes.
        self._places: dict[str, str] = {}
        self._appending = Appending(self._client)
        # Appends one event, or several in one round trip (appending.py).
        self.append, self.append_many = self._appending.append, self._appending.append_many

    def budget(self, namespace: str, *, is_patient: bool = False) -> Budget:
        """Return the time for one call to a namespace's Redis, in total."""
        place = self._places.get(namespace)
        if place is None:
            if len(self._places) >= MAX_PLACES:
                self._places.clear()
            place = self._places[namespace] = place_of(self._client, log_key(namespace))
        return Budget(place, self._timeout_s, is_patient=is_patient)

    def open_check(
        self, schemas: str | None, mode: Literal["off", "warn", "refuse"] | None, on_violation: OnViolation | None
    ) -> SchemaCheck | None:
        """Return the check of data against schemas, or None without checks. Raises as `schemas.check.open_check`."""
        return open_check(self._client, schemas, mode, on_violation)

    def wait_ms(self, namespace: str) -> int:
        """Return how long Redis may wait for replicas or the disk within the rest of the call. Loads the library first."""
        self._appending.load_library(log_key(namespace))
        return max(1, round(1000 * (left_s() or 0.0) * _SHARE_OF_WAITING))

    def counted(self, wish: Durability, namespace: str) -> Durability:
        """Replace a wish for all replicas by their current number; return any other wish unchanged.

        Raises:
            BusRefused: this user may not ask; nothing was sent.
        """
        if not wish.all_replicas:
            return wish
        info = call_at(self._client, log_key(namespace), "INFO", "replication")
        return wish.of(self._online.count(info, monotonic()))

    def refuse_unserved(self, namespace: str) -> None:
        """Raise NamespaceNotServed for a strict publisher before it sends; ask each time, as a gateway may appear."""
        if not self._strict_namespace or self._remembered.is_resolved(namespace):
            return
        try:
            served, known = has_been_served(self._client, namespace)
        except BusUnavailable:
            return  # the publish itself will fail and report why
        except BusRefused as error:
            log.warning("publishing to namespace %r without knowing whether a gateway serves it: %s", namespace, error.message)
            served, known = True, []
        if not served:
            raise NamespaceNotServed(namespace, known)
        self._remembered.resolve(namespace)

    def warn_unserved(self, namespace: str) -> None:
        """Warn once about a namespace that no gateway has served. Called after the event, when Redis is known to answer."""
        if self._strict_namespace or not self._remembered.is_new(namespace):
            return
        try:
            served, known = has_been_served(self._client, namespace)
        except HeadgateError as error:
            log.info("cannot tell whether a gateway serves namespace %r: %s", namespace, error.message)
            return
        if served:
            self._remembered.resolve(namespace)
        else:
            log.warning("%s", NamespaceNotServed(namespace, known).message)

    def announce(self, namespace: str, topic: str, message: bytes) -> None:
        """Publish a message on the live channel of a topic. Waits for Redis. Raises as `call_at`."""
        where, has_topic = live_channel(namespace, topic, database_number(self._client))
        with self.budget(namespace):
            call_at(
                self._client,
                log_key(namespace),
                "PUBLISH",
                where,
                b"%b\n%b" % (topic.encode(), message) if has_topic else message,
            )

    def fate(self, namespace: str, epoch: str, offset: int, event_id: str, max_payload_bytes: int) -> Fate:
        """Return the fate of a receipt's event. Waits for Redis. Raises as `call_at`."""
        with self.budget(namespace, is_patient=True):
            self._appending.check_library(log_key(namespace))
            events = EventLog(namespace, self._client, max_payload_bytes)
            head = events.head(epoch)
            line = head.lineage or alone(head.epoch)
            end = line.end_of(epoch, head.offset) if head.epoch else None
            if end is None:
                return Fate.UNKNOWN
            if offset > end:
                return Fate.ROLLED_BACK
            there = events.page(offset - 1, offset)
            if not there:
                return Fate.TRIMMED
            # A Redis that is reverted with its memory may assign a place twice (docs/guarantees.md, the limits of promise 2).
            is_another = event_id and there[0].event is not None and there[0].event.id != event_id
            return Fate.ROLLED_BACK if is_another else Fate.IN_LOG

    def position(self, namespace: str, max_payload_bytes: int) -> LogPosition | None:
        """Return the end of the log of a namespace, or None before its first event. Waits for Redis. Raises as `call_at`."""
        with self.budget(namespace, is_patient=True):
            self._appending.check_library(log_key(namespace))
            head = EventLog(namespace, self._client, max_payload_bytes).head()
        return {"epoch": head.epoch, "offset": head.offset} if head.epoch else None

    def members_page(
        self, namespace: str, topic: str, after: str | None = None, limit: int | None = None
    ) -> tuple[int, list[Member], str | None]:
        """Return (number of members, a page of them, start of the next page or None). Waits for Redis. Raises as `call_at`."""
        with self.budget(namespace, is_patient=True):
            return read_page(self._client, namespace, topic, after, limit)

    def inbox_page(self, namespace: str, user: str, before: int | None, limit: int, *, archived: bool) -> InboxPage:
        """Return a part of a user's inbox. Waits for Redis. Raises as `read_inbox`."""
        with self.budget(namespace, is_patient=True):
            return read_inbox(self._client, namespace, user, before, limit, archived=archived)

    def revoke(self, namespace: str, *, user: str | None, token_id: str | None, for_s: int) -> None:
        """Refuse a user or a token, within the budget of a namespace. Raises as `auth.revocation.revoke`."""
        with self.budget(namespace, is_patient=True):
            revoke(self._client, user=user, token_id=token_id, for_s=for_s)

    def close(self) -> None:
        """Close the connections. Idempotent. A later call opens new ones."""
        self._client.close()
