"""The Pub/Sub connection to Redis. It is never replaced silently. If it breaks, its owner gets an error.

It also breaks if its address leads to another server (primary_switch.py), because the old one may continue to answer.

In: a URL, and commands such as SUBSCRIBE and PING. Out: the replies in order, as lists of bytes and integers. The owner of a
broken link reads the log from its last certain offset.

No error message contains the URL's password. This file does not import gevent. In a patched process its socket is cooperative;
in others it blocks.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import redis

from headgate.errors import BusUnavailable
from headgate.settings.addresses.redis_url import RedisKind, read_url, shown_node

from .cluster import slot_of
from .connections import Command, cluster_topology, connection_pool, translate_at
from .faults import CHECK_PORT, FAULTS, NOTHING_YET, reason_of, reply_of, shown_cause, translate, unavailable
from .primary_switch import PrimarySwitch

if TYPE_CHECKING:
    from headgate.runtime.loop import Arrivals

READ_BYTES = 256 * 1024
# A reply stays in memory until it is complete, and Redis itself allows 512 MB. A larger reply than this breaks the link.
MAX_REPLY_BYTES = 64 * 1024 * 1024


class SubscriberLink:
    """One Pub/Sub connection. It connects once, never reconnects, and raises when it breaks.

    Only its owner, a greenlet or thread, calls `connect` and `read`. Others may `send` (one at a time) and `close`.

    Args:
        url: as `client.open_client`.
        connect_timeout_s: limit on connecting, including authentication. Afterwards `settimeout` applies (none at first).
        key: in a Cluster, the link leads to the owner of this key's slot, or to any primary if None.
        arrivals: waits for bytes on a separate descriptor in a `read` without a timeout, in place of the socket's own wait.
            Each such `read` takes a turn of the loop, even if bytes have arrived. All calls must then come from the loop's
            thread.

    Attributes:
        address: of the server, in a Cluster of the node.
        opened_in_s: the time that the socket took to open, which is a round trip, or more with TLS.
    """

    def __init__(
        self,
        url: str,
        connect_timeout_s: float = 5.0,
        *,
        key: str | bytes | None = None,
        arrivals: Callable[[int], Arrivals] | None = None,
    ) -> None:
        self._url, self._connect_timeout_s, self._key = read_url(url), connect_timeout_s, key
        self.address = str(self._url)
        self._socket: socket.socket | None = None
        self._closed = self._is_left = self._is_reading = self._is_sending = False
        self._switch: PrimarySwitch | None = None
        self.opened_in_s = 0.0
        self._make_arrivals = arrivals
        self._arrivals: Arrivals | None = None
        import hiredis  # here, because it is optional for a process that only publishes

        self._pack: Callable[[Any], bytes] = hiredis.pack_command  # its stub allows only tuples of one type
        self._error_reply, self._broken_reply = hiredis.ReplyError, hiredis.ProtocolError
        self._reader: Any = hiredis.Reader()  # untyped: the stub of its `feed` takes no buffer, only bytes and text
        self._buffer = bytearray(READ_BYTES)
        self._unfinished_bytes = 0

    def connect(self) -> None:
        """Connect, once in the life of this object. May wait up to `connect_timeout_s`. In a Cluster it first asks for the
        node.

        Raises:
            BusUnavailable: no answer, or not in time; or the link was closed before or during the call.
            BusRefused: wrong password, no permission, or an invalid URL.
        """
        if self._closed:
            self._open_socket()
        url = self._url
        if url.kind is RedisKind.CLUSTER:
            topology = cluster_topology(url)
            node = topology.primaries()[0] if self._key is None else topology.owner(slot_of(self._key))
            self.address, url = shown_node(node), url.at(node)
        # Untyped: redis-py does not type `connect`, and `_sock` is its own.
        pool = connection_pool(url, self._connect_timeout_s)
        connection: Any = pool.make_connection()
        try:
            connection.connect()
            connection.ask_server()  # now, because a subscribed link cannot ask
        except FAULTS as error:
            raise translate_at(pool, error) from shown_cause(error)
        # redis-py connects (address, TLS, AUTH, SELECT). From here on the socket is ours alone, so that redis-py cannot
        # reconnect it, time it out or read from it. tests/contract/test_redis_py_corners.py pins this.
        self._socket, connection._sock = connection._sock, None
        self._switch, self.opened_in_s = connection.follow_switch(self), connection.opened_in_s
        if self._closed:
            self.close()
        self._open_socket().settimeout(None)

    def send(self, *commands: Command) -> None:
        """Write commands such as ("SUBSCRIBE", channel) or ("PING", token) in one piece. Their replies come from `read`.

        Raises BusUnavailable: the connection is broken or closed.
        """
        packed = b"".join(self._pack(tuple(command)) for command in commands)
        self._is_sending = True
        sock = None
        try:
            sock = self._open_socket()
            sock.sendall(packed)
        except OSError as error:
            raise self._broken(error) from error
        finally:
            self._is_sending = False
            if sock is not self._socket and sock is not None:
                self._free(sock)

    def read(self) -> list[Any]:
        """Wait for a reply, then return all replies received, in order, as lists of bytes and integers (RESP2).

        In subscribe mode these are [b"message", channel, data], [b"pmessage", pattern, channel, data],
        [b"subscribe", channel, count], [b"pong", token] and the like.

        Raises:
            BusUnavailable: end of stream, reset, the timeout of `settimeout`, an invalid or too large reply, or `close`.
            BusRefused: Redis answered a command with an error. Earlier replies of the same read are lost, so treat the link as
                broken.
        """
        while True:
            sock = self._open_socket()
            # A TLS socket may hold bytes that the descriptor does not report.
            if self._arrivals is not None and not (isinstance(sock, ssl.SSLSocket) and sock.pending()):
                # A cooperative socket tries `recv` first. For each event that comes alone, that costs a vain call and an
                # exception.
                self._arrivals.wait()
                sock = self._open_socket()
            try:
                replies = self._receive(sock)
            except TimeoutError as error:
                raise self._broken(error) from error
            if replies:
                return replies

    def read_ready(self, within_s: float = 0.0) -> list[Any]:
        """Return the replies received so far, perhaps none, or wait `within_s` for some. For the caller of `read` only.

        Raises as `read`.
        """
        sock = self._open_socket()
        timeout_s = sock.gettimeout()
        sock.settimeout(within_s)
        try:
            return self._receive(sock)
        except NOTHING_YET:
            return []
        finally:
            if self._socket is sock:
                sock.settimeout(timeout_s)

    def _receive(self, sock: socket.socket) -> list[Any]:
        """Return the replies that one recv completes, perhaps none."""
        self._is_reading = True
        try:
            if sock is not self._socket:  # closed before the line above
                self._open_socket()
            size = sock.recv_into(self._buffer)
        except NOTHING_YET:
            raise
        except OSError as error:
            raise self._broken(error) from error
        finally:
            self._is_reading = False
            if sock is not self._socket:
                self._free(sock)
        if not size:
            raise self._ended("was closed") if self._socket is None else unavailable(f"{self.address} closed the connection")
        self._reader.feed(self._buffer, 0, size)
        replies: list[Any] = []
        gets = self._reader.gets
        try:
            while (reply := gets()) is not False:
                replies.append(reply)
        except self._broken_reply as error:
            broken = unavailable(f"{self.address} sent something that is not a Redis reply")
            broken.add_note(CHECK_PORT)
            raise broken from error
        if not replies:
            self._unfinished_bytes += size
            if self._unfinished_bytes > MAX_REPLY_BYTES:
                raise unavailable(f"{self.address} sent a reply larger than {MAX_REPLY_BYTES} bytes")
            return replies
        self._unfinished_bytes = 0
        if self._error_reply not in map(type, replies):
            return replies
        for reply in replies:
            if isinstance(reply, self._error_reply):
                refusal = redis.ResponseError(str(reply))
                if self._url.kind is RedisKind.CLUSTER and reply_of(refusal)[0] == "MOVED":
                    raise unavailable(f"{self.address} does not own the slot any more", "MOVED")
                raise translate(refusal, self.address)
        return replies

    def settimeout(self, timeout_s: float | None) -> None:
        """Limit each wait of `read` and `send` (None: no limit). A read that timed out may be repeated."""
        sock = self._open_socket()
        sock.settimeout(timeout_s)
        self._close_arrivals()
        if timeout_s is None and self._make_arrivals is not None:
            self._arrivals = self._make_arrivals(sock.fileno())

    def fileno(self) -> int:
        """Return the socket's file descriptor."""
        return self._open_socket().fileno()

    def close(self) -> None:
        """Close the connection for good and wake the caller of `read`. Idempotent, from any greenlet or thread."""
        self._closed = True
        if self._switch is not None:
            self._switch.unfollow(self)
        sock, self._socket = self._socket, None
        self._close_arrivals()
        if sock is None:
            return
        with suppress(OSError):  # the other end may have closed first
            sock.shutdown(socket.SHUT_RDWR)  # close() alone would not wake a thread inside recv
        self._free(sock)

    def leave(self) -> None:
        """Close the connection, because its address leads to another server."""
        self._is_left = True
        self.close()

    def _free(self, sock: socket.socket) -> None:
        """Release the descriptor of a closed link, unless a thread is about to wait on it. That thread then releases it.

        The next socket of the process gets the same number, and the thread would wait for that socket's bytes.
        """
        if not (self._is_reading or self._is_sending):
            sock.close()

    def _close_arrivals(self) -> None:
        arrivals, self._arrivals = self._arrivals, None
        if arrivals is not None:
            arrivals.close()

    def _open_socket(self) -> socket.socket:
        if self._socket is None:
            raise self._ended("is closed")
        return self._socket

    def _ended(self, how: str) -> BusUnavailable:
        if self._is_left:
            return unavailable(f"{self.address} leads to another Redis server than a moment ago")
        return unavailable(f"the connection to {self.address} {how}")

    def _broken(self, error: OSError) -> BusUnavailable:
        if self._socket is None:
            return self._ended("was closed")
        if isinstance(error, TimeoutError):
            return unavailable(f"{self.address} did not answer in time")
        return unavailable(f"the connection to {self.address} broke: {reason_of(error)}")
