"""One POST at a time to one place, safe against redirection to another and against delay. Plain blocking sockets.

In: a target, headers, a body. Out: the status of the answer, or `Retry` with the reason for its absence. Every new connection
resolves the name once, checks every address of the result, and connects to one of these addresses, since a second resolution
could differ. It follows no redirects and ignores proxies in the environment. One deadline covers connecting, sending and the
head of the answer, however slowly its bytes arrive. A little of the body is read and discarded.

Without a status line, a request that was sent whole has an unknown outcome, as the receiver may have acted on it
(`OutcomeUnknown`).
"""

from __future__ import annotations

import ipaddress
import socket
import ssl
import time
from collections.abc import Callable, Mapping

from headgate.consumers.base import OutcomeUnknown, Retry
from headgate.runtime.http_exchange import BadAnswer, HttpConnection, left_s
from headgate.settings.addresses.http_target import Target

from .addresses import Allowed
from .answer import Answer, read_retry_after

# A longer body costs the connection.
MAX_BODY_BYTES = 16 * 1024
# Reading the body only serves to reuse the connection, so a longer wait does not pay.
BODY_TIMEOUT_S = 1.0
# Maximum idle time and age of a connection; then its address is resolved and checked again.
KEEP_IDLE_S = 15.0
KEEP_S = 60.0
MAX_ADDRESSES = 4

# One entry of socket.getaddrinfo's answer: family, kind, protocol, canonical name, address.
Resolved = tuple[
    socket.AddressFamily, socket.SocketKind, int, str, tuple[str, int] | tuple[str, int, int, int] | tuple[int, bytes]
]
# Both have the system's time limits; `connect` also that of its argument, in seconds.
Resolve = Callable[[str, int], list[Resolved]]
Connect = Callable[[Resolved, float], socket.socket]


def resolve(host: str, port: int) -> list[Resolved]:
    """Ask the system's resolver for stream addresses."""
    return list(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))


def connect(resolved: Resolved, timeout_s: float) -> socket.socket:
    """Connect to one address.

    Raises:
        OSError: it did not answer in time, or refused.
    """
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
    """Posts to one target over a connection that is kept for a short time. For one thread.

    Args:
        timeout_s: for everything from connecting to the head of the answer.
        allowed: addresses allowed besides public ones.
        ca_file: trusted certificates (PEM) instead of the system's.
        resolve, connect, now: the network and the monotonic clock.

    Raises:
        OSError: `ca_file` is unreadable, or contains no certificate.
    """

    def __init__(
        self,
        target: Target,
        *,
        timeout_s: float,
        allowed: Allowed | None = None,
        ca_file: str | None = None,
        resolve: Resolve = resolve,
        connect: Connect = connect,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._target, self._timeout_s, self._allowed = target, timeout_s, allowed or Allowed()
        self._resolve, self._connect_to, self._now = resolve, connect, now
        self._tls = ssl.create_default_context(cafile=ca_file) if target.scheme == "https" else None
        self._connection: HttpConnection | None = None
        self._opened_s = self._used_s = 0.0

    def post(self, headers: Mapping[str, str], body: bytes, path: str | None = None) -> Answer:
        """Send one request and return the answer, whatever its status. `path` None: the target's.

        Raises:
            Retry: no answer; the reason names the target's host and the fault, and no address or path.
            OutcomeUnknown: likewise, after the request was sent whole.
        """
        deadline_s = self._now() + self._timeout_s
        sent = False
        try:
            connection = self._connect(deadline_s)
            try:
                head = connection.request(
                    "POST", path or self._target.path, {"Host": self._target.authority, **headers}, body, deadline_s
                )
            finally:
                sent = connection.sent
        except BaseException as error:
            self.close()
            if isinstance(error, OSError):
                raise (OutcomeUnknown if sent else Retry)(f"{self._target.origin} {_failure(error, self._timeout_s)}") from error
            raise
        try:
            connection.read_body(MAX_BODY_BYTES, self._now() + BODY_TIMEOUT_S)
        except OSError:
            self.close()
        else:
            if not connection.reusable:
                self.close()
        self._used_s = self._now()
        return Answer(head.status, read_retry_after(head.header("retry-after"), time.time()))

    def close(self) -> None:
        """Close the connection, if there is one. Idempotent."""
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    def _connect(self, deadline_s: float) -> HttpConnection:
        now_s = self._now()
        if self._connection is not None:
            if now_s - self._opened_s < KEEP_S and now_s - self._used_s < KEEP_IDLE_S and self._connection.is_quiet():
                return self._connection
            self.close()
        sock = self._open_socket(self._addresses(), deadline_s)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._tls is not None:
            sock.settimeout(left_s(deadline_s, self._now))
            sock = self._tls.wrap_socket(sock, server_hostname=self._target.host)
        self._connection, self._opened_s = HttpConnection(sock, self._now), now_s
        return self._connection

    def _addresses(self) -> list[Resolved]:
        """Resolve the host and check every address. If public and private ones are mixed, all are refused."""
        resolved = self._resolve(self._target.host, self._target.port)
        for *_, address in resolved:
            refused = self._allowed.refusal(ipaddress.ip_address(address[0]), self._target.host, self._target.port)
            if refused:
                raise Retry(f"{self._target.origin} is at a {refused} address, which allow_private does not allow")
        return resolved

    def _open_socket(self, addresses: list[Resolved], deadline_s: float) -> socket.socket:
        """Connect to the first address that answers; each has a share of the remaining time."""
        addresses = addresses[:MAX_ADDRESSES]
        failed: OSError = OSError("has no address")
        for tried, address in enumerate(addresses):
            try:
                return self._connect_to(address, left_s(deadline_s, self._now) / (len(addresses) - tried))
            except OSError as error:
                failed = error
        raise failed


def _failure(error: BaseException, timeout_s: float) -> str:
    """Describe in a few words why there is no answer, without the other side's text and without an address."""
    match error:
        case TimeoutError():
            return f"did not answer within {timeout_s:g} s"
        case socket.gaierror():
            return "cannot be resolved"
        case BadAnswer():
            return "answered something that is not HTTP, or too long"
        case ConnectionResetError() | BrokenPipeError() | ssl.SSLEOFError():
            return "closed the connection without an answer"
        case ssl.SSLCertVerificationError():
            return f"has a certificate that is not accepted: {error.verify_message}"
        case ssl.SSLError():
            return f"does not speak TLS as we do ({error.reason or type(error).__name__})"
        case ConnectionRefusedError():
            return "refused the connection"
        case OSError() if error.strerror:
            return f"cannot be reached: {error.strerror[0].lower()}{error.strerror[1:]}"
    return "cannot be reached"
