"""Translates an error of redis-py, or of its connection, into an error of our tree.

In: the exception. Out: BusUnavailable if no answer came or Redis asks to try later; BusRefused if Redis refuses; or the error
that a function of ours names (`HEADGATE <code> …`). If there is a usual remedy, a note (PEP 678) names it.

`redis_code`, the first word of an error reply such as NOPERM, distinguishes the errors. A few replies have no code. Only this
file reads their text and assigns a code; tests/contract/test_redis_py_corners.py pins the texts.
"""

from __future__ import annotations

import re
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
import redis
import redis.exceptions

from headgate.errors import (
    BusRefused,
    BusUnavailable,
    HeadgateError,
    InvalidEvent,
    InvalidRequest,
    InvalidTopic,
    LimitReached,
    NotSerializable,
    PayloadTooLarge,
    UnknownNamespace,
)
from headgate.runtime import connection_faults
from headgate.runtime.connection_faults import refuses_certificate

NEEDED = "Redis 7.0 or newer, or Valkey"

# Codes on which other files decide. The last three are ours: Redis answers with ERR and a text.
NO_PERMISSION = "NOPERM"
NO_MEMORY = "OOM"
LOADING = "LOADING"
WRONG_TYPE = "WRONGTYPE"
NO_FUNCTION = "NOFUNCTION"
NO_COMMAND = "NOCOMMAND"
NO_CLUSTER = "NOCLUSTER"
# A code that says nothing about Redis: all connections of the pool were in use.
ALL_IN_USE = "POOL"
# Refusals of a wrong or former password.
LOCKED_OUT = frozenset({"NOAUTH", "WRONGPASS"})
_UNKNOWN_COMMAND = re.compile(r"unknown command ['`](\w+).*", re.DOTALL)
# The texts of replies without a code, or with a code that redis-py before 8 drops.
_CODES_OF_TEXTS = (
    (re.compile(r"Function not found"), NO_FUNCTION),
    # Of a function's command, before Redis 7.2. It does not name the command.
    (re.compile(r"The user executing the script can't .*", re.DOTALL), NO_PERMISSION),
    (_UNKNOWN_COMMAND, NO_COMMAND),
    (re.compile(r"This instance has cluster support disabled"), NO_CLUSTER),
    # A function that hits this error stops there. The key may be on the other node, or not exist.
    (re.compile(r".*(access a non local key in a cluster node|undeclared keys were accessed).*", re.DOTALL), "TRYAGAIN"),
    (re.compile(r"invalid (username-password pair|password).*"), "WRONGPASS"),
)
# redis-py's text for an end of stream, which has no class.
_END_OF_STREAM = "Connection closed by server."
# The same for a server without room for another connection.
_FULL = "max number of clients reached"
# Temporary refusals: a retry may succeed.
# ASK, TRYAGAIN: a slot of a Cluster is being moved key by key. Until the end of the move a namespace's keys are on two nodes.
# READONLY: the address leads to a server that just became a replica, or will soon become the primary.
_PASSING = {"LOADING", "READONLY", "BUSY", "CLUSTERDOWN", "MASTERDOWN", "TRYAGAIN", "ASK", "NOREPLICAS", "UNBLOCKED", "FAILOVER"}
_MEANING = {
    NO_MEMORY: "it is out of memory (maxmemory)",
    "MISCONF": "it cannot write to its disk",
    "READONLY": "it is a read-only replica",
    "NOAUTH": "it wants a password",
    "WRONGPASS": "wrong user name or password",
    "NOPERM": "no permission",
    WRONG_TYPE: "wrong type of key",
    "LOADING": "it is loading its data",
    "BUSY": "it is busy running a script",
    "CLUSTERDOWN": "its cluster is down",
    "MASTERDOWN": "its primary is down",
    "NOREPLICAS": "it has too few replicas to accept a write",
    "MOVED": "it is a node of a Cluster: begin the URL with redis+cluster:// (or rediss+cluster:// for TLS)",
    NO_CLUSTER: "it is not a node of a Cluster: begin the URL with redis:// (or rediss:// for TLS)",
    "ASK": "another node of its Cluster is taking over this namespace",
    "TRYAGAIN": "another node of its Cluster is taking over this namespace",
}
_ABOUT_A_COMMAND = frozenset({NO_PERMISSION, WRONG_TYPE})
NAME_SENTINELS = "begin the URL with redis+sentinel:// and name the primary: redis+sentinel://HOST:PORT/PRIMARY/0"
_CHECK_LOGIN = "check user and password in the URL: redis://USER:PASSWORD@HOST:PORT/0 (Redis copies no users to replicas)"
# What people can do about a refusal.
CURES = {
    NO_MEMORY: "raise maxmemory, or lower HEADGATE_LOG_MAX_BYTES; it accepts events again once there is room",
    "MISCONF": "make room on its disk, or let it write to its folder (its log names the fault), and run BGSAVE",
    "READONLY": "name the primary in HEADGATE_REDIS_URL, or its Sentinels: redis+sentinel://…",
    "NOREPLICAS": "bring its replicas back, or lower min-replicas-to-write",
    "NOAUTH": _CHECK_LOGIN,
    "WRONGPASS": _CHECK_LOGIN,
    NO_PERMISSION: "give this Redis user the rights of docs/operations/redis-users.md, or name another one in HEADGATE_REDIS_URL",
    NO_COMMAND: f"allow that command there (rename-command); where a Sentinel listens, {NAME_SENTINELS}",
    WRONG_TYPE: "another program writes keys named hg:… here; remove its key, or name another database in HEADGATE_REDIS_URL",
    LOADING: "wait until it has loaded its data; INFO persistence shows the progress",
    "BUSY": "wait, or end the script: SCRIPT KILL, FUNCTION KILL",
    "CLUSTERDOWN": "check CLUSTER INFO and CLUSTER SHARDS on a node",
    "MASTERDOWN": "wait for the failover, or start the primary again",
}
# By OpenSSL's code: expired, and for another name or address.
_CERTIFICATE_CURES = {10: "renew it, or set the clock of this machine"} | dict.fromkeys(
    (62, 64), "name the host in the URL by a name that the certificate has"
)
_OWN_CERTIFICATE = "name one in the URL: ?ssl_certfile=FILE&ssl_keyfile=FILE"
CHECK_PORT = "check the port, and that a Redis runs behind it; if it requires TLS, begin the URL with rediss://"
_START_IT = (
    "start Redis there, or set HEADGATE_REDIS_URL to another; without a URL, the Redis that `make run` or `headgate serve` "
    "brings is found from the folder that it runs in"
)
_HELD_UP = "check that Redis runs there and is not held up (its log, SLOWLOG GET), and the network to it"
# redis-py before 8 keeps the code of a reply only in the exception's class. NOAUTH and WRONGPASS share one.
_CODES_OF_CLASSES: dict[type[BaseException], str] = {
    redis.exceptions.OutOfMemoryError: NO_MEMORY,
    redis.exceptions.BusyLoadingError: "LOADING",
    redis.exceptions.ReadOnlyError: "READONLY",
    redis.exceptions.NoPermissionError: "NOPERM",
    redis.exceptions.AuthenticationError: "NOAUTH",
    redis.exceptions.MovedError: "MOVED",
    redis.exceptions.AskError: "ASK",
    redis.exceptions.TryAgainError: "TRYAGAIN",
    redis.exceptions.ClusterDownError: "CLUSTERDOWN",
    redis.exceptions.MasterDownError: "MASTERDOWN",
}


# The errors of redis-py's and our code that reads a reply of another form than Redis has, such as a number for a list.
NO_REPLY = (TypeError, ValueError, AttributeError, LookupError, OverflowError)
# Every error that a call of redis-py raises. It imports modules as it connects, which fails while the interpreter ends.
FAULTS = (redis.RedisError, OSError, ImportError, *NO_REPLY)
# Those of a socket without data: if it must not wait, the same with TLS, and after it has waited long enough.
NOTHING_YET = (BlockingIOError, ssl.SSLWantReadError, TimeoutError)


class AllInUse(redis.ConnectionError):
    """All connections of this process to a server are in use."""


def unavailable(reason: str, redis_code: str = "") -> BusUnavailable:
    """Return the error of a Redis that does not answer. The text for clients does not name its address."""
    return BusUnavailable(reason, shown="it does not answer", redis_code=redis_code)


def refused(reason: str, redis_code: str = "") -> BusRefused:
    """Return the error of a Redis that refuses. The text for clients does not give the reason."""
    return BusRefused(reason, shown="the gateway's log says why", redis_code=redis_code)


def translate(
    error: BaseException, where: str = "Redis", asked: str = "", *, tls: bool = False, has_answered: bool = False
) -> HeadgateError:
    """Return the error of our tree for an error of redis-py or of the operating system, with a note of the usual remedy, if any.

    `where` is the address of the server, and `asked` the command with its key, for a refusal about one of them. `tls`: the
    connection uses TLS. `has_answered`: Redis has answered there before, so the address is right.
    """
    translated = _translated(error, where, asked)
    code = translated.redis_code if isinstance(translated, BusRefused | BusUnavailable) else ""
    if (advice := _advice(error, tls=tls, has_answered=has_answered) or CURES.get(code)) is not None:
        translated.add_note(advice)
    return translated


def _translated(error: BaseException, where: str, asked: str) -> HeadgateError:
    if isinstance(error, NO_REPLY):
        return refused(f"{where} sent a reply of a form that Redis does not have; needed: {NEEDED}")
    if isinstance(error, redis.exceptions.InvalidResponse):
        return refused(f"what answers at {where} is not Redis; needed: {NEEDED}")
    if isinstance(error, redis.TimeoutError | TimeoutError):
        return unavailable(f"{where} did not answer in time")
    if isinstance(error, AllInUse):
        return unavailable(f"{where}: {error}", ALL_IN_USE)
    code, text = reply_of(error)
    if code == "HEADGATE":
        refusal = _refusal(text)
        refusal.is_from_redis = True
        return refusal
    detail = f" ({text})" if text else ""
    if asked and code in _ABOUT_A_COMMAND:
        detail = f" for {asked}{detail}"
    if code in _PASSING:
        return unavailable(f"{where}: {_MEANING.get(code, code)}{detail}", code)
    if unknown := _UNKNOWN_COMMAND.fullmatch(text):
        needed = NEEDED.replace("7.0", "7.2") if unknown[1] == "WAITAOF" else NEEDED
        return refused(f"the server at {where} does not know the command {unknown[1]}, or hides it; needed: {needed}", code)
    if code in _MEANING or isinstance(error, redis.AuthenticationError):
        return refused(f"{where}: {_MEANING.get(code, 'wrong user name or password')}{detail}", code)
    if isinstance(error, redis.ConnectionError | OSError | ImportError):
        return unavailable(f"{where}: {reason_of(error)}")
    return refused(f"{where}: {text or type(error).__name__}", code)


def reply_error(text: bytes, where: str = "Redis", asked: str = "") -> HeadgateError:
    """Return the error of our tree for the text of an error reply of a server."""
    return translate(redis.ResponseError(text.decode("utf-8", "replace")), where, asked)


@contextmanager
def reading(where: str, key: str = "") -> Iterator[None]:
    """Translate errors of code that reads a reply into BusRefused, because the peer may not be Redis.

    With `key` the reply is the content of that key, which another program may have written.
    """
    try:
        yield
    except NO_REPLY as error:
        if not key:
            raise translate(error, where) from error
        foreign = refused(f"{where}: {key} has a value that Headgate does not write, or this is not Redis", WRONG_TYPE)
        foreign.add_note(CURES[WRONG_TYPE])
        raise foreign from error


def shown_cause(error: Exception) -> Exception | None:
    """Return the cause to show in a traceback. An error of the connection has none, because its message has all the facts.

    Otherwise a hundred lines of redis-py's own frames would precede it.
    """
    return None if isinstance(error, redis.ConnectionError | redis.TimeoutError | OSError) else error


def _advice(error: BaseException, *, tls: bool, has_answered: bool) -> str | None:
    cause = _cause(error)
    if isinstance(error, redis.AuthenticationError):
        return CURES["WRONGPASS"]
    if isinstance(cause, ssl.SSLCertVerificationError):
        issuer = "if it is right, name the authority that issued it in the URL: ?ssl_ca_certs=FILE"
        return _CERTIFICATE_CURES.get(cause.verify_code, issuer)
    if refuses_certificate(cause):
        return _OWN_CERTIFICATE
    is_closed = isinstance(cause, ConnectionResetError) or str(cause) == _END_OF_STREAM
    is_late = isinstance(cause, redis.TimeoutError | TimeoutError)
    if has_answered and (is_closed or is_late or isinstance(cause, ssl.SSLEOFError)):
        return _HELD_UP
    if isinstance(cause, ssl.SSLEOFError) or (tls and is_closed):
        return f"check the port, and that a Redis runs behind it; if it wants a certificate of its clients, {_OWN_CERTIFICATE}"
    if isinstance(cause, ssl.SSLError) or (tls and is_late):
        return "check that the server speaks TLS on this port; without TLS the URL begins with redis://"
    if isinstance(cause, socket.gaierror):
        return "check the host name in the URL"
    if isinstance(cause, PermissionError):
        return "run this as a user who may open that socket, or set HEADGATE_REDIS_URL to another Redis"
    if is_closed or isinstance(cause, redis.InvalidResponse):
        return CHECK_PORT
    if str(error) == _FULL:
        return "raise maxclients and its limit of descriptors, or end clients that CLIENT LIST shows"
    if isinstance(cause, redis.TimeoutError | OSError):
        return _START_IT
    return None


def reply_of(error: BaseException) -> tuple[str, str]:
    """Return (code, rest) of an error reply, or ("", text) without a code. redis-py strips some codes from the text."""
    text = str(error)[:500]
    code = str(getattr(error, "status_code", None) or _CODES_OF_CLASSES.get(type(error), ""))
    if not code:
        head, _, rest = text.partition(" ")
        if re.fullmatch(r"[A-Z]{2,}", head):
            code, text = head, rest
    if code in ("", "ERR", "NOAUTH") and isinstance(error, redis.ResponseError | redis.AuthenticationError):
        code = next((known for form, known in _CODES_OF_TEXTS if form.fullmatch(text)), code)
    return ("" if code == "ERR" else code), text


def _cause(error: BaseException) -> BaseException:
    """Return the system's error that caused this one, or this one if there is none."""
    return error.__context__ if isinstance(error, redis.RedisError) and isinstance(error.__context__, OSError) else error


def reason_of(error: BaseException) -> str:
    """Return why a connection failed, without the addresses and numbers that redis-py and the system add."""
    if isinstance(error, redis.AuthenticationError):
        return CURES["WRONGPASS"]
    return connection_faults.reason_of(_cause(error)) or str(error)[:200] or type(error).__name__


def _refusal(text: str) -> HeadgateError:
    """Rebuild the error that log.lua sent as `<code> <JSON of the parts>`."""
    code, _, rest = text.partition(" ")
    try:
        parts = msgspec.json.decode(rest, type=dict[str, str | int])
        match code:
            case "invalid_topic":
                return InvalidTopic(str(parts["topic"]), str(parts["reason"]))
            case "invalid_event":
                return InvalidEvent(str(parts["field"]), str(parts["reason"]))
            case "payload_too_large":
                return PayloadTooLarge(int(parts["size"]), int(parts["limit"]), str(parts["where"]))
            case "not_serializable":
                return NotSerializable(str(parts["reason"]))
            case "limit_reached":
                after = parts.get("retry_after_s")
                return LimitReached(str(parts["name"]), int(parts["limit"]), None if after is None else int(after))
            case "unknown_namespace":
                return UnknownNamespace(str(parts["namespace"]), ())
            case "invalid_request":
                return InvalidRequest(str(parts["reason"]))
    except (msgspec.DecodeError, KeyError, TypeError, ValueError):
        pass  # a library of another version or owner: report its text
    return refused(f"the function library replied {text}")
