"""The relay of a process: it takes clients' connections to the owners of their sessions, and takes those of others for its own.

In: a connection whose next request names another gateway's session (`hand_over`); connections of other gateways on the internal
port. Out: the client's connection, carried to its owner's HTTP server with the client's address, as if accepted there.
The owner answers one request on it and ends it, or has a WebSocket on it from then on: so a request is relayed once and no more.

An owner is dialed at the address that Redis names for it, and nowhere else; one connection to each is kept. Everything waits for
HAND_OVER_S at most, and everything that can be many has a bound. False from `hand_over` leaves the request to this process, which
does not know the session: its client comes back with a new one, wherever that is.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from time import monotonic

import structlog

from headgate.errors import InvalidRequest
from headgate.metrics import RELAY_LINKS, RELAYED
from headgate.redis.relays import Address as InternalAddress
from headgate.runtime.loop import Greenlet, Signal, deadline, sleep, spawn
from headgate.runtime.seldom import Seldom
from headgate.settings import Settings
from headgate.transport.descriptors import descriptor_limit, has_room
from headgate.transport.http_limits import HttpLimits
from headgate.transport.peer_socket import NativeSocket

from .connection import WEBSOCKET_SHARE, Connection
from .directory import Directory
from .handshake import Handshake, Refused, relay_key
from .link import Address
from .owners import Owner, asks_for_websocket, owner_of

log = structlog.get_logger("headgate.relay")

# A client waits for this long at most until its owner has taken its connection.
HAND_OVER_S = 2.0
# An owner that could not be reached is left alone for so long.
DIAL_AGAIN_S = 1.0
# Connections of gateways that have not proven themselves yet, and of those that have.
MAX_STRANGERS, MAX_PEERS = 64, 1000
# Ports that are tried, from the configured one on.
PORTS = 512
# Streams have at most this part of the descriptors; each takes two at the owner.
STREAM_SHARE = 8
_BACKLOG = 1024

# Takes a connection: its descriptor, the bytes that were read of it, and its peer's address (empty: a Unix socket).
Adopter = Callable[[int, bytes, "tuple[str, int] | str"], None]


class Relay:
    """See the module.

    Args:
        settings: with `internal_address`.
        owner: this process; the ids of its sessions begin with its letters.
        adopt: takes a connection that another gateway has accepted.

    Raises:
        InvalidRequest: no port is free.
    """

    def __init__(self, settings: Settings, owner: Owner, adopt: Adopter) -> None:
        key = relay_key(settings.token_secret, settings.relay_key)
        assert settings.internal_address is not None
        assert settings.redis_url is not None
        assert key is not None
        self._owner, self._key, self._adopt = owner, key, adopt
        self._limits = HttpLimits.of(settings)
        self._listener, self._address = _listen(*settings.internal_address)
        self._directory = Directory(settings.redis_url, owner.letters, self._address)
        self._directory.changed = self._close_unnamed
        self._dialed: dict[str, Connection] = {}
        self._dialing: dict[str, Signal] = {}
        self._leave_until_s: dict[str, float] = {}
        self._peers: set[Connection] = set()
        self._strangers = 0
        self._told = Seldom()
        self._closed = False
        self._accepting: Greenlet | None = None

    @property
    def address(self) -> InternalAddress:
        """Where this process listens."""
        return self._address

    def start(self) -> None:
        """Listen, and register. Call once."""
        self._accepting = spawn(self._accept)
        self._directory.look()
        self._directory.start()
        log.info("relay listens", host=self._address.host, port=self._address.port)

    def close(self) -> None:
        """Leave, and end all connections. Idempotent."""
        if self._closed:
            return
        self._closed = True
        if self._accepting is not None:
            self._accepting.kill()
        self._listener.close()
        self._directory.close()
        for connection in self._connections():
            connection.close()

    def hand_over(self, request: bytes, descriptor: int) -> bool:
        """Take a connection to the owner of its next request's session; return whether the owner has taken it.

        The descriptor stays the caller's, to close. False for a request without a session, or with one of this gateway, and where
        the owner is gone. Switches greenlets.
        """
        owner = owner_of(request)
        if owner is None or not owner.gateway or owner.gateway == self._owner.gateway or self._closed:
            return False
        name = owner.letters
        until_s = monotonic() + HAND_OVER_S
        connection = self._dialed.get(name)
        if connection is None:
            address = self._directory.find(name, HAND_OVER_S)
            connection = None if address is None else self._connect(name, address, until_s)
        if connection is None or not self._has_room(asks_for_websocket(request)):
            RELAYED.labels("no owner" if connection is None else "no room").inc()
            return False
        try:
            sock = NativeSocket(fileno=os.dup(descriptor))
        except OSError:  # the last descriptor has gone meanwhile
            RELAYED.labels("no room").inc()
            return False
        sock.setblocking(False)
        is_taken = connection.carry(sock, _address_of(sock), request, max(0.0, until_s - monotonic()))
        RELAYED.labels("taken" if is_taken else "refused").inc()
        return is_taken

    # -- to others ------------------------------------------------------------------------------------------------------

    def _connect(self, name: str, address: InternalAddress, until_s: float) -> Connection | None:
        """Return the connection to an owner; many that want the same wait for one."""
        if (dialing := self._dialing.get(name)) is not None:
            dialing.wait(max(0.0, until_s - monotonic()))
            return self._dialed.get(name)
        if monotonic() < self._leave_until_s.get(name, 0.0):
            return None
        self._dialing[name] = over = Signal()
        try:
            connection = self._dial(name, address, until_s)
            if connection.closed or self._closed:
                connection.close()
                return None
            self._dialed[name] = connection
            RELAY_LINKS.set(len(self._dialed))
            return connection
        except (OSError, TimeoutError, Refused) as error:
            self._leave_until_s[name] = monotonic() + DIAL_AGAIN_S
            reason = error.reason if isinstance(error, Refused) else str(error)
            self._tell("another gateway could not be reached", at=f"{address.host}:{address.port}", reason=reason)
            return None
        finally:
            del self._dialing[name]
            over.set()

    def _dial(self, name: str, address: InternalAddress, until_s: float) -> Connection:
        with deadline(max(0.001, until_s - monotonic())):
            sock = socket.create_connection(address)
            try:
                handshake = Handshake(self._key, name, dials=True)
                sock.sendall(handshake.first)
                _shake_hands(sock, handshake)
                return Connection(_native(sock), handshake.left, dials=True, limits=self._limits, lost=self._lost)
            except BaseException:
                sock.close()
                raise

    def _lost(self, connection: Connection, reason: str) -> None:
        for name in [name for name, each in self._dialed.items() if each is connection]:
            del self._dialed[name]
            RELAY_LINKS.set(len(self._dialed))
            if not self._closed:
                log.info("a connection to another gateway is over", owner=name, reason=reason)

    def _close_unnamed(self) -> None:
        """Close the connections to owners that Redis does not name any more and that carry nobody."""
        for name, connection in list(self._dialed.items()):
            if not len(connection) and self._directory.known(name) is None:
                connection.close("no longer named")
        now_s = monotonic()
        self._leave_until_s = {name: until_s for name, until_s in self._leave_until_s.items() if until_s > now_s}

    # -- from others ----------------------------------------------------------------------------------------------------

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError as error:
                self._tell("the relay could not accept a connection", reason=error.strerror)
                sleep(DIAL_AGAIN_S)
                continue
            if self._strangers >= MAX_STRANGERS or len(self._peers) >= MAX_PEERS:
                sock.close()
            else:
                self._strangers += 1
                spawn(self._welcome, sock)

    def _welcome(self, sock: socket.socket) -> None:
        try:
            with deadline(HAND_OVER_S):
                handshake = Handshake(self._key, self._owner.letters, dials=False)
                _shake_hands(sock, handshake)
            peer = Connection(_native(sock), handshake.left, dials=False, opened=self._open, lost=self._peer_lost)
            if not peer.closed:
                self._peers.add(peer)
        except Refused as refusal:
            self._tell("a connection to the relay was refused", reason=refusal.reason)
        except (OSError, TimeoutError):
            pass  # the other end has gone, or says nothing
        finally:
            self._strangers -= 1
            sock.close()

    def _peer_lost(self, connection: Connection, reason: str) -> None:
        self._peers.discard(connection)

    def _open(self, address: Address, lasts: bool) -> NativeSocket | None:
        """Give the HTTP server a new connection, from a client's address; return our end of it."""
        if self._closed or not self._has_room(lasts):
            return None
        try:
            ours, theirs = socket.socketpair()
        except OSError:
            return None
        self._adopt(theirs.detach(), b"", address or "")
        return _native(ours)

    # -- private ------------------------------------------------------------------------------------------------------

    def _connections(self) -> list[Connection]:
        return [*self._peers, *self._dialed.values()]

    def _streams(self) -> int:
        return sum(map(len, self._connections()))

    def _has_room(self, lasts: bool) -> bool:
        """Return whether one more stream may have descriptors, for a WebSocket (`lasts`) or not."""
        most = (descriptor_limit() or 65536) // STREAM_SHARE
        if lasts and sum(each.websockets for each in self._connections()) >= most // WEBSOCKET_SHARE:
            return False
        return self._streams() < most and has_room(self._listener.fileno())

    def _tell(self, event: str, **fields: object) -> None:
        """Log a fault of another gateway, or of a stranger, which may come at any rate."""
        if (left_out := self._told.due(event)) is not None:
            log.warning(event, left_out=left_out, **fields)


def _listen(host: str, port: int) -> tuple[socket.socket, InternalAddress]:
    """Listen on the first free port from this one on; on any with 0."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for candidate in range(port, min(port + PORTS, 65536)) if port else [0]:
        try:
            listener = socket.create_server((host, candidate), family=family, backlog=_BACKLOG)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                continue
            reason = os.strerror(error.errno) if error.errno else str(error)
            raise InvalidRequest(f"cannot listen on HEADGATE_INTERNAL_ADDRESS={host}:{candidate}: {reason}") from error
        return listener, InternalAddress(host, listener.getsockname()[1])
    raise InvalidRequest(f"HEADGATE_INTERNAL_ADDRESS={host}:{port}: none of {PORTS} ports is free")


def _shake_hands(sock: socket.socket, handshake: Handshake) -> None:
    while not handshake.is_over:
        data = sock.recv(4096)
        if not data:
            raise ConnectionResetError(errno.ECONNRESET, "the other end has closed it")
        if answer := handshake.receive(data):
            sock.sendall(answer)


def _native(sock: socket.socket) -> NativeSocket:
    if sock.family in (socket.AF_INET, socket.AF_INET6):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    native = NativeSocket(fileno=sock.detach())
    native.setblocking(False)
    return native


def _address_of(sock: NativeSocket) -> Address:
    with suppress(OSError):
        peer = sock.getpeername()
        if isinstance(peer, tuple):
            return str(peer[0]), int(peer[1])
    return None
