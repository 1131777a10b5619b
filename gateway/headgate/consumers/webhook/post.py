"""Sends one POST at a time to one place, without being redirected or delayed. Uses blocking sockets.

In: a target, headers, a body. Out: the status of the answer, or `Retry` with the reason for its absence. Every new connection
resolves the name once, checks every address of the result, and connects to one of these addresses, because a second resolution
could differ. It follows no redirects and ignores proxies in the environment. One deadline covers connecting, sending and the
head of the answer, even if bytes trickle. It reads and discards a little of the body.

Without a status line, the outcome of a whole request is unknown (`OutcomeUnknown`), because the receiver may have acted on it.
The exception is a receiver that requires a client certificate. With TLS 1.3 it refuses after the request, without reading it.
"""

from __future__ import annotations

import ipaddress
import socket
import ssl
import time
from collections.abc import Callable, Container, Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime

from headgate.consumers.base import OutcomeUnknown, Reject, Retry
from headgate.consumers.pause import Pause
from headgate.consumers.values import trust_again
from headgate.runtime.connection_faults import reason_of, refuses_certificate
from headgate.runtime.http_exchange import BadAnswer, ClientConnection, left_s
from headgate.settings.addresses.http_target import Target

from .addresses import Allowed

# A longer body costs the connection.
MAX_BODY_BYTES = 16 * 1024
# The body is read only to reuse the connection, so a longer wait does not pay.
BODY_TIMEOUT_S = 1.0
# Maximum idle time of a connection, below that of servers (gunicorn has 2 s, Node 5 s), and its maximum age, after which its
# address is resolved and checked again.
KEEP_IDLE_S = 1.0
KEEP_S = 60.0
# How long each request gets a new connection after the other side closed one without notice. A request that crosses with the
# close has an unknown outcome.
SINGLE_S = 3600.0
MAX_ADDRESSES = 4
GONE = 410
# The longest Retry-After that counts. After a longer one the runner would have given up.
MAX_PAUSE_S = 3600.0

# An entry of socket.getaddrinfo's answer, with family, kind, protocol, canonical name and address.
Resolved = tuple[
    socket.AddressFamily, socket.SocketKind, int, str, tuple[str, int] | tuple[str, int, int, int] | tuple[int, bytes]
]
# Both have the system's time limits. `connect` also has the limit of its argument, in seconds.
Resolve = Callable[[str, int], list[Resolved]]
Connect = Callable[[Resolved, float], socket.socket]


def resolve(host: str, port: int) -> list[Resolved]:
    """Ask the system's resolver for stream addresses."""
    return list(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))


def connect(resolved: Resolved, timeout_s: float) -> socket.socket:
    """Connect to one address. Raises OSError if it does not answer in time or refuses."""
    family, kind, protocol, _, address = resolved
    sock = socket.socket(family, kind, protocol)
    try:
        sock.settimeout(timeout_s)
        sock.connect(address)
    except OSError:
        sock.close()
        raise
    return sock


class HttpPost:
    """Posts to one target, with pauses that it requests or needs, over a connection kept for a short time. For one thread.

    A `Retry-After` stops all requests until its time, except with a status in `final`, which concerns only this request. While
    the target does not answer, one request at a time is sent there, with growing delays (pause.py).

    Args:
        timeout_s: for everything from connecting to the head of the answer.
        allowed: addresses allowed besides public ones.
        ca_file: trusted certificates (PEM) instead of the system's.
        resolve, connect, now: the network and the monotonic clock.

    Raises OSError if `ca_file` is unreadable or contains no certificate.
    """

    def __init__(
        self,
        target: Target,
        *,
        timeout_s: float,
        allowed: Allowed | None = None,
        ca_file: str | None = None,
        final: Container[int] = (GONE,),
        resolve: Resolve = resolve,
        connect: Connect = connect,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._target, self._timeout_s, self._allowed, self._final = target, timeout_s, allowed or Allowed(), final
        self._resolve, self._connect_to, self._now = resolve, connect, now
        self._tls = ssl.create_default_context(cafile=ca_file) if target.scheme == "https" else None
        self._ca_file = ca_file
        self._connection: ClientConnection | None = None
        self._opened_s = self._used_s = self._single_until_s = 0.0
        self._pause = Pause()

    def post(self, headers: Mapping[str, str], body: bytes, path: str | None = None) -> tuple[int, float | None]:
        """Send one request. Return the status, and the seconds of `Retry-After` (None: missing or invalid).

        `path` is the target's if None.

        Raises:
            Retry: no answer, or a pause. The reason names the target's host and the fault, but no address or path.
            OutcomeUnknown: no answer after the whole request was sent, with a reason as for Retry.
        """
        began_s = self._now()
        self._pause.check(began_s)
        try:
            status, retry_after_s = self._exchange(headers, body, path or self._target.path, began_s + self._timeout_s)
        except Retry as failed:
            raise type(failed)(failed.reason, self._pause.begin(began_s, self._now(), failed.reason).after_s) from failed
        self._pause.end()
        if status >= 300 and status not in self._final and retry_after_s is not None:
            self._pause.until(self._now() + retry_after_s, f"{self._target.origin} asked for a pause")
        return status, retry_after_s

    def pause_s(self) -> float:
        """Return how long no request is sent, after failures or because the target asked for it."""
        return self._pause.left_s(self._now())

    def close(self) -> None:
        """Close the connection, if there is one. Idempotent."""
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    def _exchange(self, headers: Mapping[str, str], body: bytes, path: str, deadline_s: float) -> tuple[int, float | None]:
        kept, sent = self._kept(), False
        try:
            connection = kept or self._open(deadline_s)
            try:
                head = connection.request("POST", path, {"Host": self._target.authority, **headers}, body, deadline_s)
            finally:
                sent = connection.sent
        except BaseException as error:
            self.close()
            if isinstance(error, OSError):
                self._tls = trust_again(self._tls, self._ca_file, error)
                if kept is not None:
                    self._single_until_s = self._now() + SINGLE_S
                is_unknown = sent and not refuses_certificate(error)
                reason = reason_of(error) or "it cannot be reached"
                if isinstance(error, BadAnswer):
                    reason = "an answer that is not HTTP, or too long"
                elif isinstance(error, TimeoutError):
                    reason = f"no answer within {self._timeout_s:g} s"
                raise (OutcomeUnknown if is_unknown else Retry)(f"{self._target.origin}: {reason}") from error
            raise
        try:
            connection.read_body(MAX_BODY_BYTES, self._now() + BODY_TIMEOUT_S)
        except OSError:
            self.close()
        else:
            self._used_s = self._now()
            if not connection.reusable or self._used_s < self._single_until_s:
                self.close()
        return head.status, read_retry_after(head.header("retry-after"), time.time())

    def _kept(self) -> ClientConnection | None:
        """Return the open connection if it may be reused; otherwise close it."""
        now_s = self._now()
        if self._connection is not None and now_s - self._opened_s < KEEP_S and now_s - self._used_s < KEEP_IDLE_S:
            if self._connection.is_quiet():
                return self._connection
            self._single_until_s = now_s + SINGLE_S
        self.close()
        return None

    def _open(self, deadline_s: float) -> ClientConnection:
        opened_s = self._now()
        sock = self._open_socket(self._addresses(), deadline_s)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._tls is not None:
            sock.settimeout(left_s(deadline_s, self._now))
            sock = self._tls.wrap_socket(sock, server_hostname=self._target.host)
        self._connection, self._opened_s = ClientConnection(sock, self._now), opened_s
        return self._connection

    def _addresses(self) -> list[Resolved]:
        """Resolve the host and check every address. Refuses all if public and private ones are mixed."""
        resolved = self._resolve(self._target.host, self._target.port)
        for *_, address in resolved:
            refused = self._allowed.refusal(ipaddress.ip_address(address[0]), self._target.host, self._target.port)
            if refused:
                raise Retry(f"{self._target.origin} is at a {refused} address, which allow_private does not allow")
        return resolved

    def _open_socket(self, addresses: list[Resolved], deadline_s: float) -> socket.socket:
        """Connect to the first address that answers. Each has a share of the remaining time."""
        addresses = addresses[:MAX_ADDRESSES]
        failed: OSError = OSError("has no address")
        for tried, address in enumerate(addresses):
            try:
                return self._connect_to(address, left_s(deadline_s, self._now) / (len(addresses) - tried))
            except OSError as error:
                failed = error
        raise failed


def judge(status: int, retry_after_s: float | None, origin: str) -> None:
    """Return if the event is done, by the Standard Webhooks specification. `origin` names the receiver in reasons.

    Raises Reject for 410 Gone, and Retry, with the requested pause, for any other answer except a 2xx, including redirects, and
    404, which a receiver may answer during its deployment.
    """
    if 200 <= status < 300:
        return
    reason = f"{origin} answered {status}" + (", and redirects are not followed" if 300 <= status < 400 else "")
    if status == GONE:
        raise Reject(f"{reason}: it wants no more events")
    raise Retry(reason, retry_after_s)


def read_retry_after(text: str, now_s: float) -> float | None:
    """Return the seconds of a `Retry-After` (RFC 9110, section 10.2.3), at most MAX_PAUSE_S; None if it is invalid.

    `now_s` is the time since 1970.
    """
    if text.isascii() and text.isdigit() and len(text) <= 10:
        return min(float(text), MAX_PAUSE_S)
    try:
        # A date without a zone has the oldest form (RFC 9110, section 5.6.7), and is in UTC.
        date = parsedate_to_datetime(text)
        return min(max(0.0, date.replace(tzinfo=date.tzinfo or UTC).timestamp() - now_s), MAX_PAUSE_S)
    except (ValueError, OverflowError):
        return None
