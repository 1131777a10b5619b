"""Gives connected clients other grants. A client loses subscriptions outside them, and is notified.

In: a new identity of a client (a `refresh`), or a request to check a user's grants again (services/clients.py). Out: the ends of
its subscriptions and its part in presence where the new grants end; `status {ended, granted}`.

For a request the new grants come from the first available of explicit ones (auth/regrants.py), the application's authenticator,
which is called again with the client's handshake, the settings for a client without a token, and a fresh token. `status
{refresh: {within_s}}` asks the client for that token. Without one in that time it is disconnected as expired.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from time import monotonic, time
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

import structlog

from headgate.auth.admission import Admission
from headgate.auth.identity import ANONYMOUS, Handshake, Identity
from headgate.auth.regrants import Explicit, read_regrant
from headgate.auth.repair import read_regrants
from headgate.delivery.client import Client
from headgate.errors import Forbidden, HeadgateError, Unauthorized, UnauthorizedReason
from headgate.events.wire.packets import PRESENCE, STATUS, SUBSCRIBE
from headgate.node.connection import environ_of, notify
from headgate.node.namespace import Namespace
from headgate.redis.client import Client as Redis
from headgate.runtime.loop import Greenlet, Lock, LockLike, sleep, spawn
from headgate.transport.socketio_face import SocketIOFace

from .logins import Logins

if TYPE_CHECKING:
    from headgate.node.population.evictions import Evictions

log = structlog.get_logger("headgate.gateway")

RENEW_WITHIN_S = 30  # for a page to fetch a token and send it
CHECK_EVERY_S = 5.0  # between two ticks: how late a live client may lose ended explicit grants


class Regranting:
    """See the module. `logins` holds the explicit grants that this gateway knows; `redis` has all of them."""

    def __init__(
        self,
        sockets: SocketIOFace,
        namespaces: Mapping[str, Namespace],
        logins: Logins,
        admission: Admission[Client],
        evictions: Evictions,
        redis: Redis,
    ) -> None:
        self._sockets, self._namespaces, self._logins = sockets, namespaces, logins
        self._admission, self._evictions, self._redis = admission, evictions, redis
        self.regrants = logins.regrants
        self._turns: WeakValueDictionary[str, LockLike] = WeakValueDictionary()  # of users with a call under way
        self.checking: Greenlet | None = None  # runs after possibly missed changes
        self._noted: dict[str, float] = {}  # user with changed explicit grants and unchecked clients → since when

    def note(self, user: str, explicit: Explicit | None, left_s: int) -> None:
        """Store a user's explicit grants, or None for lifted ones. If `regrant` does not follow, `tick` applies them."""
        if explicit is not None or self.regrants.of(user) is not None:
            self._noted.setdefault(user, monotonic())
        self.regrants.put(user, explicit, left_s)

    def tick(self) -> None:
        """Check the users of explicit grants that ended, or changed without a `regrant`. Never waits."""
        ended, now_s = self.regrants.take_ended(), monotonic()
        late = [user for user, since_s in self._noted.items() if now_s - since_s >= CHECK_EVERY_S]
        if users := dict.fromkeys([*ended, *late]):
            spawn(self.regrant_all, users)

    def take(self, client: Client, identity: Identity, *, is_notified: bool = False) -> None:
        """Give a client another identity, with a notice if it did not ask for this (`is_notified`).

        Subscriptions outside the grants end at once. The application's `authorize` decides the others, and may wait. If it
        raises, the subscription ends, too, and the client may try again. Lets the loop run. Raises Unauthorized if the client
        has left.
        """
        namespace = self._namespaces[client.namespace]
        namespace.subscriptions.check_in(client)  # otherwise it would be counted for ever
        self._admission.renew(client, identity)
        client.allowed = None

        def outside(pattern: str) -> HeadgateError | None:
            return None if client.identity.may_subscribe(pattern) else Forbidden("subscribe to", pattern)

        self._end(client, outside, {"granted": True} if is_notified else {})
        topics = namespace.presence.rooms.topics_of(client.session)
        outside_topics = [topic for topic in topics if not client.identity.may_subscribe(topic)]
        self._end_presence(client, {topic: Forbidden("see who is in", topic) for topic in outside_topics})
        refused = namespace.authorizing.refused(client, tuple(client.subscriptions), SUBSCRIBE)
        if refused and client.identity is identity:  # otherwise the application has been asked about newer grants
            self._end(client, refused.get)
        if topics := namespace.presence.rooms.topics_of(client.session):
            refused = namespace.authorizing.refused(client, topics, PRESENCE)
            self._end_presence(client, refused if client.identity is identity else {})

    def _end(
        self, client: Client, refusal: Callable[[str], HeadgateError | None], more: Mapping[str, object] | None = None
    ) -> None:
        """End a client's subscriptions for which `refusal` returns an error, and notify it of them and of `more`."""
        ended = []
        for pattern, error in self._namespaces[client.namespace].subscriptions.end_each(client, refusal):
            notice = {"pattern": pattern, "error": error.to_wire()}
            if error.retry:
                # Before any later event. The client requests missed events from its position at that time.
                notify(client, STATUS, {"ended": [notice]})
            else:
                ended.append(notice)
        if ended or more:
            notify(client, STATUS, {**({"ended": ended} if ended else {}), **(more or {})})

    def _end_presence(self, client: Client, refused: Mapping[str, HeadgateError]) -> None:
        """End a client's part in topics, and notify it."""
        for topic, error in refused.items():
            self._namespaces[client.namespace].presence.rooms.leave(client.session, topic)
            notify(client, PRESENCE, {"topic": topic, "ended": error.to_wire()})

    def regrant(self, user: str) -> int:
        """Check a user's grants again for each client here; return how many. One call at a time per user. May wait."""
        self._noted.pop(user, None)
        self._logins.rights_changed(user)
        with self._turns.setdefault(user, Lock()):
            # Of two requests at once, the later one may arrive here first.
            with suppress(HeadgateError):  # the announced grants count even if a failover has just lost them
                if (stored := read_regrant(self._redis, user)) is not None:
                    explicit, left_s = stored
                    self.regrants.put(user, explicit if left_s > 0 else None, left_s)
            return self._regrant(self._admission.of_user(user))

    def read_all(self, redis: Redis) -> None:
        """Read all explicit grants after possibly missed changes, and check their users again. Waits for Redis."""
        if changed := self.regrants.replace(read_regrants(redis, self.regrants.known())):
            self.checking = spawn(self.regrant_all, changed)

    def regrant_all(self, users: Iterable[str]) -> None:
        """Check the grants of users again after possibly missed changes. May wait."""
        for user in users:
            self.regrant(user)

    def _regrant(self, clients: Iterable[Client]) -> int:
        count = 0
        for client in clients:
            if self._namespaces[client.namespace].is_in(client):
                count += 1
                # Each in a separate greenlet, because application code may leave data of one user in it.
                spawn(self._regrant_client, client).join()
            sleep()
        return count

    def _regrant_client(self, client: Client) -> None:
        explicit = self.regrants.of(client.identity.user)
        if not self._namespaces[client.namespace].is_in(client):
            return
        if explicit is not None:
            self._take_new(client, explicit.over(client.identity))
        elif client.auth is None and client.identity.user != ANONYMOUS:
            until_s = time() + RENEW_WITHIN_S
            self._admission.expiry.set(client, min(until_s, client.identity.expires_at or until_s))
            notify(client, STATUS, {"refresh": {"within_s": RENEW_WITHIN_S}})
        else:
            self._ask_authenticator(client, client.auth or {})

    def _ask_authenticator(self, client: Client, auth: Mapping[str, object]) -> None:
        environ = environ_of(client, self._sockets)
        before = client.identity
        try:
            identity = self._logins.identified(Handshake(client.namespace, auth, environ), user=before.user)
            if identity.user != before.user:
                raise Unauthorized(UnauthorizedReason.ANOTHER_USER)
        except HeadgateError as error:
            if error.retry or not isinstance(error, Unauthorized):
                # Our own fault neither removes rights nor gives any.
                log.warning("grants not checked again", user=before.user, error=error.message)
            else:
                self._evictions.refused([client], error)
            return
        if client.identity is before:  # otherwise a refresh has brought a newer one
            self._take_new(client, identity)

    def _take_new(self, client: Client, identity: Identity) -> None:
        with suppress(Unauthorized):  # it has left
            self.take(client, identity, is_notified=True)
