"""Lists and disconnects clients of all gateways, changes their grants, and sends to one, from any process that reaches Redis.

In: calls of an application, the command line or the HTTP API. Out: questions to all gateway processes (redis/questions.py), and
one result from their answers. Each process knows only its own clients, and answers within about a second (node/cluster).

In every result, `silent` names the processes without an answer in time. `within` restricts a question to the clients of these
namespaces. Those of others count as absent (a gateway of an older version ignores `within`).

Imports neither gevent nor Flask.
"""

from __future__ import annotations

import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as NoBase64
from collections.abc import Callable, Sequence
from contextlib import suppress
from heapq import merge
from itertools import islice
from typing import Annotated, Any, Literal, TypeAlias, cast, get_args

import msgspec

from headgate.auth.regrants import DEFAULT_REGRANTED_S, Explicit, check_regrant, lift, note_regrant, store
from headgate.errors import BusUnavailable, InvalidRequest, PayloadTooLarge, stays_in_its_process
from headgate.events.event import check_event_id
from headgate.events.json_data import encode_data
from headgate.events.numbers import check_items, check_seconds, check_whole
from headgate.events.topic import check_namespace, check_topic, check_user
from headgate.redis.client import database, open_client
from headgate.redis.faults import reading
from headgate.redis.questions import ANSWER_S, MAX_ANSWER_S, MIN_ANSWER_S, Answers, ask
from headgate.redis.registry import living
from headgate.services.publisher import url_or_default
from headgate.settings.settings import HARD_MAX_PAYLOAD_BYTES

MAX_PAGE_CLIENTS = 1000
MAX_REASON_CHARACTERS = 120
MAX_SESSION_CHARACTERS = 64
# Concurrent questions of one process. Further ones wait.
MAX_AT_ONCE = 8
# Orders of a page of clients: those with problems first (by a full queue, then catching up, gaps, and bytes in the queue), the
# fullest queue first, the newest first, by user.
Sort: TypeAlias = Literal["trouble", "queue", "newest", "user"]


class ConnectedClient(msgspec.Struct, frozen=True, kw_only=True):
    """A client, which is one browser connection in one namespace, as its gateway process sees it.

    Attributes:
        gateway: name of the process, `<machine>/<process id>`.
        address: network of its address, an IPv4 /24 or an IPv6 /48; None without an address.
        transport: `websocket`, `polling` or `stream`.
        since_ms: time of its connection, in milliseconds since 1970.
        patterns: its subscriptions, only the first 20 in a page; `subscriptions` is their number.
        state: source of its events, a word of `delivery.state.Phase`.
        queued, queued_bytes: frames and bytes that wait for it; `lagging` while they exceed high water.
        discarded: events dropped because its queue was full.
        gaps: number of gaps reported to it.
        position: offset up to which the gateway has given it events; `behind` is its distance from the live feed in offsets.
        trouble: a problem of this client as text; empty without one.
    """

    session: str
    user: str
    namespace: str
    gateway: str
    address: str | None
    transport: str
    since_ms: int
    patterns: tuple[str, ...]
    subscriptions: int
    state: str
    catching_up: bool
    lagging: bool
    queued: int
    queued_bytes: int
    discarded: int
    gaps: int
    position: int
    behind: int
    trouble: tuple[str, ...]


class ClientsPage(msgspec.Struct, frozen=True):
    """A page of clients. `after` asks for the next page and is None in the last one. `total` counts all matches."""

    clients: tuple[ConnectedClient, ...]
    total: int
    after: str | None
    silent: tuple[str, ...]


class Reached(msgspec.Struct, frozen=True):
    """The number of clients acted on, and the processes without an answer, which may have acted, too."""

    count: int
    silent: tuple[str, ...]


class Row(msgspec.Struct, frozen=True):
    """A client with its place in the order."""

    place: list[Any]
    client: ConnectedClient


# The kinds of questions: for a page of clients, or for one; to disconnect some, to change a user's grants, to send an event.
PAGE, CLIENT, DISCONNECT, REGRANT, SEND = "clients", "client", "disconnect", "regrant", "send"


class ClientQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """A question about clients, of any kind.

    Attributes:
        session, user, namespace: about the clients of these (None for any), in one of the namespaces `within` (None for any).
        sort, limit, after: the order of a page, its number of clients, and the place after which it begins.
        reason: text for disconnected clients.
        explicit: a user's grants for `for_s` seconds. Without, the user's own are read from their source again.
        topic, data, id: of an event; `data` is JSON.
        by: requester, for the audit log.
    """

    session: str | None = None
    user: str | None = None
    namespace: str | None = None
    within: tuple[str, ...] | None = None
    sort: Sort = "trouble"
    limit: int = 0
    after: list[Any] | None = None
    reason: str = ""
    explicit: Explicit | None = None
    for_s: int = 0
    topic: str = ""
    data: msgspec.Raw = msgspec.Raw(b"null")
    id: str = ""
    by: str = ""


class ClientAnswer(msgspec.Struct, frozen=True):
    """The answer of a process to a question.

    Attributes:
        rows: a part of its page; only the first part has `total` and `more`.
        client: the requested client, if it is here.
        count: number of clients that the process has acted on.
        taken: whether the client's queue took the event; None if the client is not here.
        limit_bytes: limit that the event exceeds, if any.
    """

    rows: list[Row] = []
    total: int = 0
    more: bool = False
    client: ConnectedClient | None = None
    count: int = 0
    taken: bool | None = None
    limit_bytes: int | None = None


_Number = Annotated[int, msgspec.Meta(ge=-(2**53), le=2**53)]
# The parts of `after` by order, which are the order and a place in it.
_AFTER: dict[Sort, Any] = {
    "trouble": tuple[Sort, _Number, _Number, _Number, _Number, _Number, str],
    "queue": tuple[Sort, _Number, str],
    "newest": tuple[Sort, _Number, str],
    "user": tuple[Sort, str, str],
}
_read_answer = msgspec.json.Decoder(ClientAnswer).decode


class Clients:
    """See the module. It connects to Redis at its first question. Threads and greenlets may share it.

    Args:
        redis_url: as of `Publisher`.
        within_s: time limit for answers.
    """

    def __init__(self, redis_url: str | None = None, *, within_s: float = ANSWER_S) -> None:
        self._within_s = check_seconds(within_s, "within_s", MAX_ANSWER_S, MIN_ANSWER_S)
        self._client = open_client(url_or_default(redis_url), timeout_s=within_s + 2.0, max_connections=MAX_AT_ONCE)

    __reduce__ = stays_in_its_process

    def page(
        self,
        namespace: str | None = None,
        user: str | None = None,
        sort: str = "trouble",
        limit: int = 100,
        after: str | None = None,
        *,
        within: Sequence[str] | None = None,
    ) -> ClientsPage:
        """Return a page of the clients of all gateways. May switch greenlets.

        Clients come, go and change between two pages, so a page may miss one or repeat one.

        Args:
            namespace, user: only clients of these.
            sort: `trouble`, `queue`, `newest` or `user`.
            limit: 1 to 1000.
            after: `after` of the previous page, with the same `sort`.

        Raises:
            InvalidRequest, UnknownNamespace, BusUnavailable, BusRefused.
        """
        check_whole(limit, "limit", 1, MAX_PAGE_CLIENTS)
        if sort not in get_args(Sort):
            raise InvalidRequest(f"sort: expected one of {', '.join(get_args(Sort))}")
        order = cast(Sort, sort)
        question = ClientQuestion(
            user=None if user is None else check_user(user),
            namespace=None if namespace is None else check_namespace(namespace),
            within=_within(within),
            sort=order,
            limit=limit,
            after=None if after is None else _place(after, order),
        )
        rows: list[Row] = []

        def take(body: msgspec.Raw) -> tuple[int, int, bool]:
            """Take the rows of each part as it arrives, because thousands at once would block a loop."""
            part = _read_answer(body)
            rows[:] = islice(merge(rows, part.rows, key=lambda row: row.place), limit)
            return part.total, len(part.rows), part.more

        answers = self._ask(PAGE, question, read=take)
        totals, counts, more = zip(*answers.parts, strict=True) if answers.parts else ((), (), ())
        last = _after(order, rows[-1].place) if rows and (sum(counts) > limit or any(more)) else None
        return ClientsPage(tuple(row.client for row in rows), sum(totals), last, answers.silent)

    def client(self, session: str, *, within: Sequence[str] | None = None) -> ConnectedClient | None:
        """Return the client of a session, with all its patterns; None if no gateway has it. May switch greenlets.

        It does not wait for a gateway that was killed or disconnected from Redis.

        Raises:
            BusUnavailable: no answer has the client, and a gateway that received the question did not answer; or no Redis.
            InvalidRequest, BusRefused.
        """
        question = ClientQuestion(session=_check_session(session), within=_within(within))
        answers = self._ask(CLIENT, question, lambda part: part.client is not None)
        clients: list[ConnectedClient] = [part.client for part in answers.parts if part.client is not None]
        if not clients:
            _check_silence(answers)
        return clients[0] if clients else None

    def disconnect(
        self,
        *,
        session: str | None = None,
        user: str | None = None,
        reason: str = "disconnected by an operator",
        by: str = "",
        within: Sequence[str] | None = None,
    ) -> Reached:
        """Disconnect the client of a session, or all clients of a user, on all gateways. May switch greenlets.

        The clients receive the reason and may reconnect at once. `revoke` prevents that.

        Args:
            reason: text for the client, the log and the audit log.
            by: requester, for the audit log.

        Raises:
            InvalidRequest: not exactly one of session and user, or an invalid text.
            BusUnavailable, BusRefused: it may have happened.
        """
        if (session is None) == (user is None):
            raise InvalidRequest("disconnect takes either a session or a user")
        question = ClientQuestion(
            session=None if session is None else _check_session(session),
            user=None if user is None else check_user(user),
            within=_within(within),
            reason=_check_text(reason, "reason", MAX_REASON_CHARACTERS),
            by=_requester(by),
        )
        if session is None:
            return _reached(self._ask(DISCONNECT, question))
        answers = self._ask(DISCONNECT, question, lambda part: part.count > 0)
        # As in `client`, a gateway without a link to Redis got no question. Only a gateway that got it can have the session and
        # be silent.
        return Reached(sum(part.count for part in answers.parts), answers.silent if answers.unanswered else ())

    def send(self, session: str, topic: str, data: object, id: str | None = None, *, within: Sequence[str] | None = None) -> bool:
        """Send an event to the one client of a session, on any gateway. May switch greenlets.

        The event is not in a log, so it has no offset, a reconnecting client does not get it again, and no other client can see
        it. The client needs a handler, but no grant for the topic.

        Returns:
            Whether it is in the client's queue or written to its socket. False if no client has the session or its queue is
            full.

        Raises:
            InvalidRequest, InvalidTopic, InvalidEvent, NotSerializable: nothing was sent.
            PayloadTooLarge: for any gateway, or for the one with the session.
            BusUnavailable: a gateway has not answered in time, so it may have been sent; or no Redis.
            BusRefused.
        """
        payload = encode_data(data)
        if len(payload) > HARD_MAX_PAYLOAD_BYTES:
            raise PayloadTooLarge(len(payload), HARD_MAX_PAYLOAD_BYTES, "publisher")
        question = ClientQuestion(
            session=_check_session(session),
            within=_within(within),
            topic=check_topic(topic),
            data=msgspec.Raw(payload),
            id=secrets.token_hex(8) if id is None else check_event_id(id),
        )
        answers = self._ask(SEND, question, lambda part: part.taken is not None)
        sent: list[ClientAnswer] = [part for part in answers.parts if part.taken is not None]
        if not sent:
            _check_silence(answers)
            return False
        if sent[0].limit_bytes is not None:
            raise PayloadTooLarge(len(payload), sent[0].limit_bytes, "gateway")
        return sent[0].taken is True

    def regrant(
        self,
        user: str,
        *,
        subscribe: Sequence[str] | None = None,
        publish: Sequence[str] | None = None,
        for_s: int = DEFAULT_REGRANTED_S,
        by: str = "",
    ) -> Reached:
        """Change the grants of a user's live clients, on all gateways. May switch greenlets.

        Without lists, the gateway reads the grants from their source again. It calls the application's authenticator with each
        client's original credentials, and asks a client with a token for a fresh one within 30 s. Explicit grants end.

        With a list, these are the user's grants for `for_s` seconds, also after a reconnect, and override the authenticator and
        any token. A missing list grants nothing. The user's own topics (`own_topics(user)`) stay granted.

        Subscriptions that are no longer allowed end, and the client is notified. Newly allowed ones need no reconnect.

        Args:
            by: requester, for the audit log.

        Raises:
            InvalidRequest, InvalidPattern: nothing has changed.
            LimitReached: 10,000 users have explicit grants.
            BusUnavailable, BusRefused: call again; it is idempotent.
            RuntimeError: an authenticator calls it for the user being authenticated, and would be called again.
        """
        check_user(user)
        by = _requester(by)
        note_regrant(user)
        explicit = None
        if subscribe is None and publish is None:
            lift(self._client, user)
        else:
            may_subscribe, may_publish = check_regrant(
                () if subscribe is None else subscribe, () if publish is None else publish, for_s
            )
            with reading(database(self._client)):
                explicit = store(self._client, user, may_subscribe, may_publish, for_s)
        question = ClientQuestion(user=user, explicit=explicit, for_s=for_s if explicit else 0, by=by)
        return _reached(self._ask(REGRANT, question))

    def close(self) -> None:
        """Close the connections. Idempotent."""
        self._client.close()

    def _ask(
        self,
        kind: str,
        question: ClientQuestion,
        is_enough: Callable[..., bool] = lambda part: False,
        read: Callable[..., Any] = _read_answer,
    ) -> Answers:
        with reading(database(self._client)):
            return ask(self._client, kind, question, living(self._client), read, within_s=self._within_s, is_enough=is_enough)


def _within(namespaces: Sequence[str] | None) -> tuple[str, ...] | None:
    return None if namespaces is None else tuple(map(check_namespace, check_items(namespaces, "within", "namespaces")))


def _reached(answers: Answers) -> Reached:
    return Reached(sum(part.count for part in answers.parts), answers.silent)


def _check_silence(answers: Answers) -> None:
    """Refuse to report an absence while some gateways have not answered. Raises BusUnavailable with their names."""
    if answers.unanswered:
        raise BusUnavailable(f"no answer from {', '.join(answers.silent[:5])} in time, and no other gateway has this session")


def _check_session(session: object) -> str:
    return _check_text(session, "session", MAX_SESSION_CHARACTERS)


def _check_text(value: object, name: str, limit: int) -> str:
    if not isinstance(value, str) or not value.isprintable() or not 0 < len(value) <= limit:
        raise InvalidRequest(f"{name}: expected 1 to {limit} printable characters")
    return value


def _requester(by: object) -> str:
    """Return who asks, as the audit log takes it. Raises InvalidRequest: it is no text."""
    if not isinstance(by, str):
        raise InvalidRequest(f"by: expected text, got {type(by).__name__}")
    return by.encode(errors="backslashreplace").decode()[:MAX_REASON_CHARACTERS]


def _after(sort: Sort, place: list[Any]) -> str:
    return urlsafe_b64encode(msgspec.json.encode([sort, *place])).decode()


def _place(after: str, sort: Sort) -> list[Any]:
    """Read a place written by `_after`. Raises InvalidRequest if it is invalid or of another order."""
    order = None
    place: list[Any] = []
    with suppress(NoBase64, msgspec.DecodeError, UnicodeError, AttributeError):
        order, *place = msgspec.json.decode(urlsafe_b64decode(after.encode()), type=_AFTER[sort])
    if order != sort:
        raise InvalidRequest("after: expected the `after` of a page with the same sort")
    return place
