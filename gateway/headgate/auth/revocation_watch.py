"""The watch that keeps this gateway's copy of the revocations up to date and reports the revoked users and tokens.

In: the set REVOKED of revocation.py and its channel. Out: `on_revoked(members)`, from the watch's greenlet.

Rules. 1. After every (re)connect it subscribes, waits for Redis' confirmation, and then reads the whole set, so it misses
nothing. 2. It replaces a link that leaves a PING unanswered for a second. 3. While Redis is unreachable, the known revocations
stay active. Before the first read, no client is admitted. 4. If this Redis user may not subscribe to the other channel or read
the keys that `begin` needs, as with the rights for an older version, the watch logs that and continues without it. It retries
with each new link, and after ten minutes. 5. A process that stood still reads the set again, over another link, before it
passes on events that arrived since (`renew`). 6. Each read first writes back lost revocations, and then every watch reads
again. 7. In a Cluster it leaves a node that no longer owns the set, because Redis counts the receivers of a message only at the
owner. The old node still answers each PING.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import NamedTuple

import structlog

from headgate.errors import BusRefused, BusUnavailable, HeadgateError
from headgate.redis.client import Client, call, database_number, is_forbidden, server_of
from headgate.redis.cluster import is_cluster
from headgate.redis.keys import REVOKED, revoked_channel
from headgate.redis.primary_switch import FORBIDDEN_S
from headgate.redis.subscriber_link import SubscriberLink
from headgate.runtime.loop import Greenlet, Signal, sleep, spawn

from .api_keys import shown_name
from .audit import audit
from .identity import Identity
from .repair import WRITTEN_BACK, read_revoked
from .revocation import Decision, Revocations, kind_of, read_news

log = structlog.get_logger("headgate.revocation")

CONNECT_TIMEOUT_S = 2.0
# A link that leaves a PING unanswered for a second is dead.
PING_INTERVAL_S, SILENT_S = 2.0, 3.0
FIRST_RECONNECT_S, LAST_RECONNECT_S = 0.05, 1.0


def _link(url: str, connect_timeout_s: float) -> SubscriberLink:
    """Return a link to the server with the set, which receives the messages first in a Cluster."""
    return SubscriberLink(url, connect_timeout_s, key=REVOKED)


class ExtraChannel(NamedTuple):
    """Another channel on the same link.

    `begin` is called once the subscription is confirmed, after each (re)connect and before anyone is admitted, and after a
    write-back; it may wait for Redis with the given client. `receive` takes each message and must not wait.
    """

    channel: str
    begin: Callable[[Client], object]
    receive: Callable[[bytes], object]


class RevocationWatch:
    """See the module.

    Args:
        on_revoked: receives newly revoked members.
        read: returns the whole set from Redis, after writing back those of a given list that it had lost.
        open_link: returns an unconnected link.
        wait: suspends the greenlet for a number of seconds.
        also: another channel on the same link.

    Attributes:
        revocations: the copy.
        known: whether the copy has been read.
        was_known: set once the copy has been read since the last `renew`.
        last_error: why the copy is outdated.
    """

    def __init__(
        self,
        redis_url: str,
        client: Client,
        on_revoked: Callable[[list[str]], None],
        read: Callable[[Client, list[Decision]], list[Decision]] = read_revoked,
        *,
        open_link: Callable[[str, float], SubscriberLink] = _link,
        wait: Callable[[float], None] = sleep,
        also: ExtraChannel | None = None,
    ) -> None:
        self.revocations = Revocations()
        self.known, self.was_known = False, Signal()
        self.last_error: HeadgateError | None = None
        self._read, self._open_link, self._wait = read, open_link, wait
        self._url, self._is_in_cluster = redis_url, is_cluster(redis_url)
        self._also = self._listening = also  # `_listening` is None while this Redis user may not have it
        self._on_revoked = on_revoked
        self._client = client
        self._channel = revoked_channel(database_number(self._client))
        self._link: SubscriberLink | None = None
        self._greenlet: Greenlet | None = None
        self._closed = False

    def start(self) -> None:
        """Start watching. Idempotent."""
        if self._greenlet is None:
            self._greenlet = spawn(self._run)
            spawn(self._run_pings)

    def check(self, identity: Identity) -> None:
        """Refuse a revoked identity, and every identity before the first read.

        Raises Unauthorized (`revoked`), and BusUnavailable if Redis has not been reached yet.
        """
        if not self.known:
            raise BusUnavailable("the gateway has not read the revocations yet")
        self.revocations.check(identity)

    def renew(self) -> None:
        """Read the whole set again, which sets `was_known`. Known revocations stay active. Never waits."""
        self.was_known.clear()
        self._reconnect()

    def close(self) -> None:
        """Stop watching. Idempotent; the greenlet ends by itself."""
        self._closed = True
        if self._link is not None:
            self._link.close()

    # -- private --------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        wait_s, logged, unheard = FIRST_RECONNECT_S, "", ""
        while not self._closed:
            link = self._link = self._open_link(self._url, CONNECT_TIMEOUT_S)
            try:
                link.connect()
                link.settimeout(SILENT_S)
                link.send(("SUBSCRIBE", *([self._listening.channel] if self._listening else []), self._channel))
                while True:
                    replies = link.read()
                    self._take(replies)
                    wait_s = FIRST_RECONNECT_S
                    # A Redis with a full disk confirms each subscription and then refuses each PING.
                    if any(reply[0] == b"pong" for reply in replies):
                        logged = ""
                        unheard = "" if self._listening else unheard
            except HeadgateError as error:
                if self._listening is not None and isinstance(error, BusRefused) and is_forbidden(error):
                    if error.message != unheard:
                        unheard = error.message
                        log.warning("questions not heard", channel=self._listening.channel, error=error.message)
                    self._listening = None
                    link.close()
                    continue
                self.last_error = error
                if error.message != logged and not self._closed and self._link is link:
                    logged = error.message
                    log.warning("revocations out of reach", error=error.message)
            except Exception:
                # The known revocations stay active. A bug must not end the watch.
                log.exception("revocation watch failed")
            link.close()
            self._listening = self._also
            if not self._closed:
                self._wait(wait_s * random.uniform(0.5, 1.0))
                wait_s = min(wait_s * 2, LAST_RECONNECT_S)

    def _reconnect(self) -> None:
        """Close the link, without logging a fault."""
        link, self._link = self._link, None
        if link is not None:
            link.close()

    def _run_pings(self) -> None:
        unheard_s = 0.0
        while not self._closed:
            self._wait(PING_INTERVAL_S)
            unheard_s = unheard_s + PING_INTERVAL_S if self._listening is not self._also else 0.0
            if unheard_s >= FORBIDDEN_S:
                unheard_s = 0.0
                self._reconnect()
            link = self._link
            try:
                if link is not None and self.known:
                    link.send(("PING", b""))
                    if self._is_in_cluster:
                        call(self._client, "ZRANGE", REVOKED, 0, 0)  # makes the client learn the owner
                        if server_of(self._client, REVOKED) != link.address:
                            link.leave()
            except HeadgateError:
                continue  # the read fails, too, and reports it

    def _take(self, replies: list[list[bytes]]) -> None:
        """Apply the replies of one read. A confirmed subscription, or a write-back, triggers reading the whole set."""
        hit: list[str] = []
        for reply in replies:
            if self._listening is not None and reply[1] == self._listening.channel.encode():
                if reply[0] == b"message":
                    self._listening.receive(reply[2])
                else:
                    self._listening.begin(self._client)
            elif (is_repair := reply[2:] == [WRITTEN_BACK]) or reply[:2] == [b"subscribe", self._channel.encode()]:
                if is_repair and self._listening is not None:
                    self._listening.begin(self._client)
                self.revocations.replace(self._read(self._client, self.revocations.known()))
                self.known, self.last_error = True, None
                self.was_known.set()
                hit = self.revocations.members()
            elif reply[0] == b"message":
                _note(reply[2])
                if (member := self.revocations.apply(reply[2])) is not None:
                    hit.append(member)
        if self.known:
            self.revocations.note_current()
        if hit:
            self._on_revoked(hit)


def _note(message: bytes) -> None:
    """Record a revocation in the audit log of this gateway."""
    if (news := read_news(message)) is not None:
        kind, name = kind_of(news[0]) or ("", "")
        audit.revoked(kind=kind, name=shown_name(name), for_s=news[1], by="heard from Redis")
