"""The single error tree of Headgate, with a wire code and parts for every refusal.

An error carries parts (numbers and names). The text is built from the parts, so the publisher, the HTTP API, the gateway and
the browser describe a fault in the same words. `code` is the word on the wire (docs/protocol.md lists all), `retry` is True if
the same attempt may succeed later, and `retry_after_s` is the least wait before it.

Overflow of a client queue is a result, not an exception, so it is not here (see send_queue.py).
"""

from __future__ import annotations

import math
import re
import reprlib
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, NoReturn

# The longest wait that an error requests, because it is unpredictable when a place becomes free.
MAX_RETRY_AFTER_S = 60
_CODE = re.compile("[a-z][a-z0-9_]{0,63}")


class HeadgateError(Exception):
    """Base of every error that Headgate raises on purpose.

    Subclasses set `code` (the wire word), `retry` and `retry_after_s`, and pass their parts as keyword arguments to `__init__`.
    """

    code: str = "error"
    retry: bool = False
    retry_after_s: int | None = None
    is_from_redis: bool = False
    """Whether Redis gave this answer, so that it was reached."""
    public: HeadgateError | None = None
    """The error that clients and HTTP callers get in its place."""

    def __init__(self, message: str, **parts: Any) -> None:
        super().__init__(message)
        self.message = message
        self.parts: Mapping[str, Any] = parts

    def lines(self) -> list[str]:
        """Return the message, and the remedy if a note (PEP 678) has one, as lines for a terminal."""
        return [self.message, *getattr(self, "__notes__", [])[:1]]

    def __reduce__(self) -> tuple[Any, ...]:
        """Restore the attributes in another process or a copy. Python would call `__init__` with the finished text instead."""
        return HeadgateError.__new__, (type(self), *self.args), self.__dict__

    def to_wire(self) -> dict[str, Any]:
        """Return `{code, message, retry, retry_after_s?, **parts}`, the form for clients and HTTP callers."""
        if self.public is not None:
            return self.public.to_wire()
        wait = {} if self.retry_after_s is None else {"retry_after_s": self.retry_after_s}
        return {"code": self.code, "message": self.message, "retry": self.retry, **wait, **self.parts}


class InvalidTopic(HeadgateError):
    """A topic outside the grammar (1 to 8 words of `[A-Za-z0-9_-]`, joined by dots, at most 255 bytes)."""

    code = "invalid_topic"

    def __init__(self, topic: object, reason: str) -> None:
        self.topic = topic
        shown = _printable(topic)
        super().__init__(f"invalid topic {shown!r}: {reason}", topic=shown, reason=reason)


class InvalidPattern(HeadgateError):
    """A pattern outside the grammar, which is a topic that may have `*` or `#` as words."""

    code = "invalid_pattern"

    def __init__(self, pattern: object, reason: str) -> None:
        self.pattern = pattern
        shown = _printable(pattern)
        super().__init__(f"invalid pattern {shown!r}: {reason}", pattern=shown, reason=reason)


class InvalidEvent(HeadgateError):
    """An event with a malformed id, time or envelope. `field` names the faulty part."""

    code = "invalid_event"

    def __init__(self, field: str, reason: str) -> None:
        self.field = field
        super().__init__(f"invalid event {field}: {reason}", field=field, reason=reason)


class NotSerializable(HeadgateError):
    """Data that is not JSON, because of an unknown type, NaN or infinity, a non-string key, deep nesting, or bad UTF-8.

    `path` leads to the value (a JSON path; None if unknown), and `reason` names a value to publish instead.
    """

    code = "not_serializable"

    def __init__(self, reason: str, path: Sequence[str | int] | None = None) -> None:
        self.path = None if path is None else _json_path(path)
        place = {} if self.path is None else {"path": self.path}
        reason = _reason("data is not JSON: ", reason)
        super().__init__(f"data is not JSON: {f'at {self.path}: ' if place else ''}{reason}", reason=reason, **place)


class PayloadTooLarge(HeadgateError):
    """A payload above the limit, refused at `where` (publisher, bus, gateway, http, browser) before it is parsed."""

    code = "payload_too_large"

    def __init__(self, size: int, limit: int, where: str) -> None:
        self.size, self.limit, self.where = size, limit, where
        super().__init__(
            f"payload of {size} bytes is above the limit of {limit} bytes ({where})", size=size, limit=limit, where=where
        )


class SchemaViolation(HeadgateError):
    """Data that violates a schema of its topic. Nothing was published.

    The parts name the pattern, the place (a JSON path) and the reason, without values of the data, but perhaps with names of
    its members.
    """

    code = "schema_violation"

    def __init__(self, topic: str, pattern: str, path: Sequence[str | int], reason: str) -> None:
        self.topic, self.pattern = topic, pattern
        self.path = _json_path(path)
        self.reason = _printable(reason, 240)
        super().__init__(
            f"data for topic {topic!r} breaks the schema of {pattern!r} at {self.path}: {self.reason}",
            topic=topic,
            pattern=pattern,
            path=self.path,
            reason=self.reason,
        )


class InvalidSchema(HeadgateError):
    """An unusable schema file, which is not JSON or not a schema, or has a bad pattern or a reference without a target.

    `pointer` is the place in the file (a JSON Pointer). Does not travel the wire.
    """

    code = "invalid_schema"

    def __init__(self, name: str, reason: str, pointer: str = "") -> None:
        self.name, self.reason, self.pointer = _printable(name, 300), _printable(reason, 400), _printable(pointer, 160)
        at = f" at {self.pointer}" if pointer else ""
        super().__init__(f"schema {self.name}{at}: {self.reason}", name=self.name, reason=self.reason, pointer=self.pointer)


class UnknownNamespace(HeadgateError):
    """A namespace that this gateway does not serve."""

    code = "unknown_namespace"

    def __init__(self, namespace: object, known: Sequence[str]) -> None:
        """`known` are the served namespaces, empty if the name is invalid for any gateway."""
        shown = _printable(namespace)
        expected = f"this gateway serves {', '.join(known)}" if known else "expected 1 to 64 ASCII letters, digits, _ and -"
        super().__init__(f"unknown namespace {shown!r}; {expected}", namespace=shown, known=list(known))


class NamespaceNotServed(HeadgateError):
    """A strict publisher used a namespace that no gateway has served. Nothing was published. Does not travel the wire.

    `known` has some of the served namespaces, if available.
    """

    code = "namespace_not_served"
    is_from_redis = True

    def __init__(self, namespace: str, known: Sequence[str]) -> None:
        from difflib import get_close_matches  # imported here, because few commands need it

        close = get_close_matches(namespace, known, 1, 0.6)
        served = f"; gateways serve {', '.join(known)}" if known else ""
        meant = f"; did you mean {close[0]}?" if close else ""
        super().__init__(
            f"no gateway has ever served namespace {namespace!r} here, so no browser gets its events{served}{meant}",
            namespace=namespace,
            known=list(known),
        )


class BusUnavailable(HeadgateError):
    """Redis did not answer, refused the write, or cannot be reached. Nothing is claimed to have been published.

    `reason` may name the address of Redis, for the log and for publishers in Python. Clients receive `shown` instead.
    `redis_code` is the first word of Redis' reply, such as LOADING; "" without a reply. `event_id` is the id of the event of a
    `publish`, also of a new one, and "" otherwise. Neither travels.
    """

    code = "bus_unavailable"
    event_id = ""
    retry = True
    retry_after_s = 1

    def __init__(self, reason: str, *, shown: str | None = None, redis_code: str = "") -> None:
        reason = _reason("the bus is unavailable: ", reason)
        super().__init__(f"the bus is unavailable: {reason}", reason=reason)
        self.redis_code = redis_code
        self.public = None if shown is None else BusUnavailable(shown)


class NotDurable(HeadgateError):
    """The event is in the log of the primary, but not yet where `durable` requires it. Does not travel the wire.

    `receipt` has its position and its durability so far. Publishing it again with the same id, while the id counts, waits again
    and adds nothing.
    """

    code = "not_durable"
    retry = True
    retry_after_s = 1

    def __init__(self, receipt: Any, reason: str) -> None:
        self.receipt = receipt
        super().__init__(
            f"the event is published at offset {receipt.offset}, but it may be lost in a failover: {reason}",
            epoch=receipt.epoch,
            offset=receipt.offset,
            id=receipt.id,
            reason=reason,
        )


class PublisherClosed(HeadgateError):
    """An AsyncPublisher that was closed, or is used outside its event loop. Nothing was sent. Does not travel the wire."""

    code = "publisher_closed"

    def __init__(self, reason: str) -> None:
        reason = _reason("this publisher cannot be used: ", reason)
        super().__init__(f"this publisher cannot be used: {reason}", reason=reason)


class BusRefused(HeadgateError):
    """Redis refused (too old, wrong password, no permission, out of memory, a read-only replica).

    `shown` and `redis_code` are as with BusUnavailable.
    """

    code = "bus_refused"

    def __init__(self, reason: str, *, shown: str | None = None, redis_code: str = "") -> None:
        reason = _reason("the bus refused: ", reason)
        super().__init__(f"the bus refused: {reason}", reason=reason)
        self.redis_code = redis_code
        self.public = None if shown is None else BusRefused(shown)


class UnauthorizedReason(StrEnum):
    """Why an identity is not accepted, as a word of the wire with its meaning. docs/protocol.md has the remedy for each."""

    NO_TOKEN = "no_token", "no token was shown"
    NOT_ACCEPTED = "not_accepted", "the token was missing or not accepted"
    TOO_LARGE = "too_large", "the token is too large"
    MALFORMED = "malformed", "that is not a signed JWT (alone, without Bearer, quotes or blanks)"
    UNSUPPORTED_HEADER = "unsupported_header", "the token's header asks for something that is not accepted"
    UNKNOWN_KEY = "unknown_key", "the token names no key that is configured here"
    ALGORITHM_MISMATCH = "algorithm_mismatch", "the token's algorithm is not that of its key"
    BAD_SIGNATURE = "bad_signature", "the signature does not match"
    KEYS_PENDING = "keys_pending", "the token's key is not known yet; the issuer's keys are being fetched"
    MISSING_CLAIM = "missing_claim", "a required claim is missing"
    INVALID_CLAIM = "invalid_claim", "a claim has a value that it cannot have"
    INVALID_GRANT = "invalid_grant", "a granted pattern is not a pattern"
    WRONG_AUDIENCE = "wrong_audience", "the token is for another audience"
    WRONG_ISSUER = "wrong_issuer", "the token is from another issuer"
    WRONG_NAMESPACE = "wrong_namespace", "this identity is not for this namespace"
    EXPIRED = "expired", "the token has expired"
    NOT_YET_VALID = "not_yet_valid", "the token is not valid yet"
    REVOKED = "revoked", "this user or token has been revoked"
    ANOTHER_USER = "another_user", "the token is another user's"
    NO_AUTHENTICATOR = "no_authenticator", "this gateway has no authenticator"
    AUTHENTICATOR_FAILED = "authenticator_failed", "the authenticator failed"
    LEFT = "left", "this session has left"

    meaning: str

    def __new__(cls, word: str, meaning: str = "") -> UnauthorizedReason:
        member = str.__new__(cls, word)
        member._value_, member.meaning = word, meaning
        return member


class Unauthorized(HeadgateError):
    """No valid identity, because there is no token or the authenticator does not accept it.

    `reason` is a word for programs and `detail` a sentence for people (None for ours, with the `claim` if any). Any other
    reason is an application's sentence and becomes the detail of `not_accepted`. Neither may hold any part of a token. Only
    `keys_pending` and `authenticator_failed` may be retried with the same token.
    """

    code = "unauthorized"

    def __init__(self, reason: UnauthorizedReason | str, detail: str | None = None, *, claim: str | None = None) -> None:
        try:
            self.reason = UnauthorizedReason(reason)
        except ValueError:
            self.reason, detail = UnauthorizedReason.NOT_ACCEPTED, detail or _reason("not authorized: ", str(reason))
        self.detail = detail or self.reason.meaning + (f": {claim}" if claim else "")
        self.retry = self.reason in (UnauthorizedReason.KEYS_PENDING, UnauthorizedReason.AUTHENTICATOR_FAILED)
        parts = {} if claim is None else {"claim": claim}
        super().__init__(f"not authorized: {self.detail}", reason=self.reason.value, **parts)


class Forbidden(HeadgateError):
    """A known client asked for something outside its grants."""

    code = "forbidden"

    def __init__(self, action: str, name: str, message: str | None = None, **parts: Any) -> None:
        """`message` replaces the usual one. `parts` are added."""
        shown = _printable(name)
        super().__init__(message or f"not allowed to {action} {shown!r}", action=action, name=shown, **parts)


class AuthorizeFailed(HeadgateError):
    """The application's `authorize` raised an exception or took too long, so it is unknown whether this is allowed."""

    code = "authorize_failed"
    retry = True
    retry_after_s = 1

    def __init__(self, action: str, name: str) -> None:
        shown = _printable(name)
        super().__init__(f"the application could not decide whether to {action} {shown!r} is allowed", action=action, name=shown)


class LimitReached(HeadgateError):
    """A named limit (`subscriptions`, `wildcards`, `publish_per_s`, …) is used up; `limit` is its value.

    Pass `retry_after_s` if other clients or time make room. It makes the error retryable, and is rounded up to whole seconds,
    from 1 to MAX_RETRY_AFTER_S. Without it only the caller can make room, and waiting does not help.
    """

    code = "limit_reached"

    def __init__(self, name: str, limit: int | float, retry_after_s: float | None = None) -> None:
        if retry_after_s is not None:
            self.retry = True
            self.retry_after_s = max(1, math.ceil(min(retry_after_s, MAX_RETRY_AFTER_S)))
        super().__init__(f"limit reached: {name} (at most {limit})", name=name, limit=limit)


class Overloaded(HeadgateError):
    """The event loop of the gateway lags, so it accepts no new clients for now. Another gateway may."""

    code = "overloaded"
    retry = True

    def __init__(self, retry_after_s: int) -> None:
        self.retry_after_s = max(1, min(retry_after_s, MAX_RETRY_AFTER_S))
        super().__init__("this gateway is overloaded: try again later, or at another")


class Paused(HeadgateError):
    """An operator has paused `what` (connects, publishes, or the namespace `namespace`) on every gateway."""

    code = "paused"
    retry = True

    def __init__(self, what: str, retry_after_s: int, namespace: str | None = None) -> None:
        self.retry_after_s = max(1, min(retry_after_s, MAX_RETRY_AFTER_S))
        named = {} if namespace is None else {"namespace": namespace}
        paused = what if namespace is None else f"namespace {namespace!r}"
        super().__init__(f"paused by an operator: {paused}", what=what, **named)


class UnknownHost(HeadgateError):
    """An HTTP request to a host name that is not this gateway's (RFC 9110, section 15.5.20)."""

    code = "unknown_host"

    def __init__(self, host: object) -> None:
        shown = _printable(host)
        super().__init__(
            f"this gateway does not answer as {shown!r}; HEADGATE_HOSTS lists the names that it answers under "
            "(behind a proxy, set HEADGATE_PROXIES, and have the proxy send X-Forwarded-For and the Host that the page asks for)",
            host=shown,
        )


class OriginNotAllowed(HeadgateError):
    """A page of an origin that may not connect. `setting` names the list of allowed origins."""

    code = "origin_not_allowed"

    def __init__(self, origin: object, setting: str = "HEADGATE_ALLOWED_ORIGINS") -> None:
        shown = _printable(origin, 200)
        super().__init__(f"pages of origin {shown!r} may not connect; {setting} lists those that may", origin=shown)


class InvalidRequest(HeadgateError):
    """A message from a client that is not one of the requests in docs/protocol.md."""

    code = "invalid_request"

    def __init__(self, reason: str) -> None:
        reason = _reason("invalid request: ", reason)
        super().__init__(f"invalid request: {reason}", reason=reason)


class UnknownRequest(HeadgateError):
    """A page request that no function of the application answers here (`Headgate.on_request`)."""

    code = "unknown_request"

    def __init__(self, name: str) -> None:
        super().__init__(f"no function of this application answers {name!r}", name=name)


class RequestTimedOut(HeadgateError):
    """The function that answers a page request took longer than `timeout_s`. It was stopped, and may have had effects."""

    code = "timed_out"

    def __init__(self, name: str, timeout_s: float) -> None:
        super().__init__(f"no answer to {name!r} within {timeout_s:g} s", name=name, timeout_s=timeout_s)


class RequestFailed(HeadgateError):
    """The function that answers a page request raised an exception, was cancelled, or returned what cannot be sent.

    It may have had effects. The text has no part of the exception, which is in the log of the gateway.
    """

    code = "request_failed"

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"the request {name!r} failed: {reason}", name=name, reason=reason)


class RequestRefused(HeadgateError):
    """Raised by a function that answers page requests, to send the page this code, message and parts.

    The application defines the `code`. `parts` are JSON.

    Raises:
        ValueError: the code is not 1 to 64 of `a-z`, `0-9` and `_`, with a letter first.
        TypeError: a part has the name of another field.
    """

    code = "refused"

    def __init__(self, code: str, message: str, **parts: Any) -> None:
        if not _CODE.fullmatch(code):
            raise ValueError(f"RequestRefused: a code is 1 to 64 of a-z, 0-9 and _, with a letter first, not {code!r:.80}")
        if taken := parts.keys() & {"retry", "retry_after_s"}:
            raise TypeError(f"RequestRefused: a part cannot be named {sorted(taken)[0]}")
        self.code = code
        super().__init__(message, **parts)


class SettingsError(HeadgateError):
    """One or more settings are wrong. `faults` has one line for each."""

    code = "invalid_settings"

    def __init__(self, faults: Sequence[str]) -> None:
        self.faults = tuple(faults.split("\n  ")[1:] or [faults]) if isinstance(faults, str) else tuple(faults)
        count = len(self.faults)
        head = f"{count} setting{'s are' if count != 1 else ' is'} wrong:"
        super().__init__("\n  ".join([head, *self.faults]), faults=list(self.faults))


def leaving() -> BusUnavailable:
    """Return the error for a client that tries to join a draining gateway."""
    return BusUnavailable("this gateway is about to stop: try again, at another")


def stays_in_its_process(self: object) -> NoReturn:
    """Refuse to pickle or copy an object that owns connections, as its `__reduce__`. Raises TypeError."""
    kind = type(self).__name__
    raise TypeError(
        f"{kind} cannot be pickled or copied, because its connections belong to this process: "
        f"pass a function of a module that creates its own {kind}"
    )


def _reason(prefix: str, reason: str) -> str:
    """Return a reason without the prefix of its message, because Celery's JSON backend recreates an error from its message."""
    return reason.removeprefix(prefix)


def _json_path(steps: Sequence[str | int]) -> str:
    """Return a JSON path (RFC 9535), printable and cut if long."""
    names = (f"[{step!r}]" if isinstance(step, int) or not step.isidentifier() else f".{step}" for step in steps)
    return _printable("$" + "".join(names), 160)


def _printable(value: object, limit: int = 80) -> str:
    """Return a value that may be hostile or huge as printable text of at most `limit` characters and an ellipsis.

    A part carries it unchanged. A message quotes it.
    """
    text = value if isinstance(value, str) else reprlib.repr(value)  # not repr(): a thousand nested lists exhaust the stack
    text = text if text.isprintable() else ascii(text)[1:-1]
    return text if len(text) <= limit else text[:limit] + "…"
