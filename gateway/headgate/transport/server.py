"""Every private corner of python-engineio and python-socketio that we touch: the seams, in one file.

`Server` is a `socketio.Server` whose connections are ours (session.py) instead of engineio's sockets. Engine.IO's
HTTP requests are answered here as the Engine.IO 4 specification says; Socket.IO's packets are parsed here, defensively,
and then go to python-socketio's own dispatch. Versions are pinned; tests/contract/test_engineio_corners.py names each
corner and fails when it moves.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any
from urllib.parse import parse_qs

import engineio
import msgspec
import socketio
import structlog
from engineio import packet as engine_packet
from socketio import packet as socket_packet

from headgate.metrics import SESSIONS_ENDED
from headgate.protocol.frames import Frame
from headgate.runtime.loop import Signal, sleep, spawn
from headgate.runtime.patching import is_patched

from .final_frames import LastWords
from .frame_parser import PROTOCOL_ERROR, accept_key
from .long_poll import SessionClosed
from .session import Connection, TransportLimits, frame_of
from .timers import Deadlines
from .wsgi import CannotDetach, PollWatch, detach

log = structlog.get_logger("headgate.engine")

# Attachments of one binary event: python-socketio would keep as many as the packet announces.
MAX_ATTACHMENTS = 16
# Attachments are put into place recursively, by python-socketio.
MAX_BINARY_DEPTH = 100
# Handlers of one client that may run at once (with `async_handlers`); its next event waits, and with it its sending.
MAX_HANDLERS = 64
# A client has four or five.
MAX_QUERY_FIELDS = 32
_RECORD_SEPARATOR = "\x1e"
# The answers to a client that wants to join: they go ahead of what its connect handler emits.
_OPENING = (socket_packet.CONNECT, socket_packet.CONNECT_ERROR)

_to_json = msgspec.json.encode
_from_json = msgspec.json.decode

# Engine.IO's own error codes and messages, as the reference server answers them.
UNKNOWN_TRANSPORT = (0, "Transport unknown")
UNKNOWN_SESSION = (1, "Session ID unknown")
BAD_METHOD = (2, "Bad handshake method")
BAD_REQUEST = (3, "Bad request")
FORBIDDEN = (4, "Forbidden")
BAD_VERSION = (5, "Unsupported protocol version")


class _Refused(Exception):
    """An HTTP request that the Engine.IO specification does not allow, or not now (`retry_after_s`)."""

    def __init__(
        self,
        error: tuple[int, str],
        status: str = "400 Bad Request",
        detail: str | None = None,
        retry_after_s: int | None = None,
    ) -> None:
        code, message = error
        super().__init__(message)
        self.status = status
        self.body: dict[str, Any] = {"code": code, "message": f"{message}: {detail}" if detail else message}
        self.headers: list[tuple[str, str]] = []
        if retry_after_s is not None:
            self.body |= {"retry": True, "retry_after_s": retry_after_s}
            self.headers = [("Retry-After", str(retry_after_s))]


@dataclass(frozen=True, slots=True)
class OneTooMany:
    """What a `connect` handler returns to have a session refused with 429; there may be room after `retry_after_s`."""

    why: str
    retry_after_s: int = 1


class EngineServer(engineio.Server):  # type: ignore[misc]
    """Engine.IO 4 over our connections. Constructed by python-socketio with its own keyword arguments."""

    def __init__(self, *, transport_limits: TransportLimits | None = None, **options: Any) -> None:
        options["async_mode"] = "gevent"
        options["monitor_clients"] = False  # deadlines are ours, on the monotonic clock
        super().__init__(**options)
        self.limits = transport_limits or replace(
            TransportLimits(),
            ping_interval_s=self.ping_interval,
            ping_timeout_s=self.ping_timeout,
            max_message_bytes=self.max_http_buffer_size,
        )
        shortest_s = min(
            self.limits.ping_interval_s,
            self.limits.ping_timeout_s,
            self.limits.write_deadline_s,
            self.limits.handshake_deadline_s,
        )
        self.deadlines = Deadlines(tick_s=min(0.25, shortest_s / 5))
        self.last_words = LastWords(self.deadlines)

    # -- what a connection needs (SessionServer) -------------------------------------------------------------------

    def deliver(self, sid: str, message: str | bytes) -> None:
        """Hand one message to python-socketio; its own handlers log what application code raises."""
        self.handlers["message"](sid, message)

    def ended(self, sid: str, reason: str) -> None:
        """Tell python-socketio that a session is over, and forget it when its disconnect handlers are done. May wait."""
        SESSIONS_ENDED.labels(reason.partition(":")[0]).inc()  # behind a colon stands what the system said: no label
        try:
            self._trigger_event("disconnect", sid, reason, run_async=False)
        finally:
            self.sockets.pop(sid, None)

    # -- what python-socketio asks of the engine -------------------------------------------------------------------

    def disconnect(self, sid: str | None = None) -> None:
        """End one session, or all. Its disconnect handlers run in a greenlet of their own, and find the session still there."""
        for connection in list(self.sockets.values()) if sid is None else [self.sockets.get(sid)]:
            if connection is not None:
                connection.close()

    def _get_socket(self, sid: str) -> Connection:
        """Return a session until it is forgotten; engineio's own forgets a closed one, before its handlers have run."""
        connection: Connection | None = self.sockets.get(sid)
        if connection is None:
            raise KeyError("Session not found")
        return connection

    # -- HTTP -------------------------------------------------------------------------------------------------------

    def handle_request(self, environ: dict[str, Any], start_response: Any) -> Any:
        """Answer one HTTP request of the Engine.IO endpoint."""
        cors = self._cors_headers(environ)
        try:
            self._check_origin(environ)
            if environ["REQUEST_METHOD"] == "OPTIONS":
                start_response("204 No Content", cors)
                return []
            return self._answer(environ, start_response, cors)
        except _Refused as refusal:
            body = engine_packet.Packet.json.dumps(refusal.body).encode()
            headers = [("Content-Type", "application/json"), ("Content-Length", str(len(body))), *refusal.headers, *cors]
            start_response(refusal.status, headers)
            return [body]

    def _check_origin(self, environ: dict[str, Any]) -> None:
        origin = environ.get("HTTP_ORIGIN")
        if origin and self.cors_allowed_origins != []:
            allowed = self._cors_allowed_origins(environ)
            if allowed is not None and origin not in allowed:
                raise _Refused(FORBIDDEN, "403 Forbidden", f"origin {origin[:200]} is not allowed")

    def _answer(self, environ: dict[str, Any], start_response: Any, cors: list[tuple[str, str]]) -> Any:
        try:
            transport, version, sid = _read_query(environ.get("QUERY_STRING", ""))
        except ValueError as error:
            raise _Refused(BAD_REQUEST, detail=f"more than {MAX_QUERY_FIELDS} fields in the query") from error
        method = environ["REQUEST_METHOD"]
        if transport not in self.transports:
            raise _Refused(UNKNOWN_TRANSPORT)
        if version != "4":
            raise _Refused(BAD_VERSION)
        websocket = transport == "websocket"
        if websocket and environ.get("HTTP_UPGRADE", "").lower() != "websocket":
            raise _Refused(BAD_REQUEST, detail="transport websocket without a WebSocket upgrade")
        if not sid:
            if method != "GET":
                raise _Refused(BAD_METHOD)
            return self._handshake(environ, start_response, cors, websocket=websocket)
        connection = self.sockets.get(sid)
        if connection is None or not connection.alive():
            if method == "GET" and not websocket and (last_words := self.last_words.take(sid)) is not None:
                return _respond(start_response, _body(last_words), cors)
            raise _Refused(UNKNOWN_SESSION)
        if method == "POST" and not websocket:
            return self._post(connection, environ, start_response, cors)
        if method != "GET":
            raise _Refused(BAD_REQUEST)
        if websocket:
            return self._upgrade(connection, environ, start_response)
        return self._get(connection, environ, start_response, cors)

    def _handshake(self, environ: dict[str, Any], start_response: Any, cors: Any, *, websocket: bool) -> Any:
        accept = _accept_headers(environ) if websocket else b""
        sid = self.generate_id()
        connection = Connection(self, sid)
        self.sockets[sid] = connection
        refusal = self._trigger_event("connect", sid, environ, run_async=False)
        if refusal is not None and refusal is not True:
            del self.sockets[sid]
            if isinstance(refusal, OneTooMany):
                raise _Refused(BAD_REQUEST, "429 Too Many Requests", refusal.why, refusal.retry_after_s)
            raise _Refused(FORBIDDEN, "401 Unauthorized")
        upgrades = [] if websocket or not self.allow_upgrades or "websocket" not in self.transports else ["websocket"]
        opening = Frame(b"0" + _to_json(self._opening(sid, upgrades)))
        if websocket:
            try:
                fd, received = detach(environ, start_response, accept + opening.wire)
            except (CannotDetach, OSError) as error:
                self._abandon(sid, str(error))
                if isinstance(error, CannotDetach):
                    raise _Refused(BAD_REQUEST, "501 Not Implemented", str(error)) from error
                return []
            connection.start()
            connection.attach(fd, received)
            return []
        connection.start()
        headers = [("Set-Cookie", self._cookie(sid))] if self.cookie else []
        return _respond(start_response, opening.packet, headers + cors)

    def _opening(self, sid: str, upgrades: list[str]) -> dict[str, Any]:
        return {
            "sid": sid,
            "upgrades": upgrades,
            "pingInterval": round(self.limits.ping_interval_s * 1000),
            "pingTimeout": round(self.limits.ping_timeout_s * 1000),
            "maxPayload": self.limits.max_message_bytes,
        }

    def _cookie(self, sid: str) -> str:
        attributes = self.cookie if isinstance(self.cookie, dict) else {"name": self.cookie, "path": "/", "SameSite": "Lax"}
        return str(self._generate_sid_cookie(sid, attributes))

    def _abandon(self, sid: str, reason: str) -> None:
        connection = self.sockets.get(sid)
        if connection is not None:
            connection.end(f"handshake failed: {reason}", abort=True)

    def _upgrade(self, connection: Connection, environ: dict[str, Any], start_response: Any) -> Any:
        if not self.allow_upgrades:
            raise _Refused(BAD_REQUEST, detail="this server does not upgrade")
        try:
            fd, received = detach(environ, start_response, _accept_headers(environ))
        except CannotDetach as error:
            raise _Refused(BAD_REQUEST, "501 Not Implemented", str(error)) from error
        except OSError:
            return []
        connection.probe(fd, received)
        return []

    def _get(self, connection: Connection, environ: dict[str, Any], start_response: Any, cors: Any) -> Any:
        if connection.upgraded:
            raise _Refused(BAD_REQUEST, detail="this session moved to WebSocket")
        wait_s = self.limits.ping_interval_s + self.limits.ping_timeout_s
        try:
            body = _body(connection.polling.poll(wait_s, PollWatch(environ, start_response)))
        except SessionClosed as error:
            raise _Refused(BAD_REQUEST, detail=str(error)) from error
        headers = list(cors)
        if (
            self.http_compression
            and len(body) >= self.compression_threshold
            and "gzip" in environ.get("HTTP_ACCEPT_ENCODING", "")
        ):
            body = self._gzip(body)
            headers.append(("Content-Encoding", "gzip"))
        return _PollAnswer(connection, start_response, body, headers)

    def _post(self, connection: Connection, environ: dict[str, Any], start_response: Any, cors: Any) -> Any:
        if connection.upgraded:
            raise _Refused(BAD_REQUEST, detail="this session moved to WebSocket")
        limits = self.limits
        try:
            length = int(environ.get("CONTENT_LENGTH") or "-1")
        except ValueError:
            length = -1
        if length < 0:
            raise _Refused(BAD_REQUEST, "411 Length Required", "Content-Length is required")
        if length > limits.max_message_bytes:
            connection.end("payload too large", code=PROTOCOL_ERROR)
            raise _Refused(
                BAD_REQUEST, "413 Content Too Large", f"payload_too_large: {length} bytes, at most {limits.max_message_bytes}"
            )
        try:
            with connection.polling.posting():
                body: bytes = environ["wsgi.input"].read(length)
                connection.polling.posted(_split(body.decode(), limits.inbound_burst))
        except (ValueError, OSError, SessionClosed) as error:
            connection.end("transport error")
            raise _Refused(BAD_REQUEST, detail=str(error)) from error
        return _respond(start_response, b"ok", cors, content_type="text/html")


class _PollAnswer:
    """The answer of a poll. Frames that the browser never got end the session, as in the reference server: silence
    would be loss. pywsgi asks for the next part only after the one before was written."""

    def __init__(self, connection: Connection, start_response: Any, body: bytes, headers: list[tuple[str, str]]) -> None:
        start_response("200 OK", [("Content-Type", "text/plain; charset=UTF-8"), ("Content-Length", str(len(body))), *headers])
        self._connection, self._body, self._written = connection, body, False

    def __iter__(self) -> Iterator[bytes]:
        yield self._body
        self._written = True

    def close(self) -> None:
        if not self._written:
            self._connection.end("transport error", abort=True)


class _Turns:
    """The handlers of one session that are running; exists only while there are any."""

    __slots__ = ("room", "running")

    def __init__(self) -> None:
        self.running = 0
        self.room = Signal()


class _Json:
    """msgspec's JSON, and python-socketio's for what only that takes or makes: half a surrogate pair, a key that is no text."""

    @staticmethod
    def loads(text: str) -> Any:
        try:
            return _from_json(text)
        except msgspec.DecodeError:
            return socket_packet.Packet.json.loads(text)

    @staticmethod
    def dumps(value: Any, **options: Any) -> str:
        try:
            return _to_json(value).decode()
        except (TypeError, ValueError, OverflowError):
            return str(socket_packet.Packet.json.dumps(value, **options))


class FastPacket(socket_packet.Packet):  # type: ignore[misc]
    """Socket.IO packets in less time (`serializer=`): JSON as python-socketio does it is 4 % of a join."""

    json = _Json


class Members(socketio.Manager):  # type: ignore[misc]
    """Who is in which namespace (`client_manager=`), for an application that needs no rooms.

    python-socketio gives every client a room of its own, and looks through all rooms for each one that leaves: 4,000 who left at
    once stopped everybody else for 0.9 s, and now for 0.15 s.
    """

    def basic_enter_room(self, sid: str, namespace: str, room: str | None, eio_sid: str | None = None) -> None:
        """Enter the namespace (room None), and no room in it."""
        if room is None:
            super().basic_enter_room(sid, namespace, room, eio_sid=eio_sid)


class Server(socketio.Server):  # type: ignore[misc]
    """A `socketio.Server` on Headgate's transport; docs/socketio.md says where it differs from python-socketio's.

    Takes the keyword arguments of `socketio.Server` and one more, `transport_limits`. Needs gevent (its WSGI server is
    pywsgi). A client whose queue is full is disconnected with the reason `slow consumer`: an application without Headgate's
    log has no other way to stay bounded and honest.

    Attributes:
        accept_binary: whether clients may send binary events. For subclasses.
        acknowledges_ahead: whether acknowledgements go ahead of queued events, by the control lane. Socket.IO keeps them in
            order, and so does this server: a full queue ends the session rather than lose one. For subclasses that settle a
            full queue otherwise, and whose clients must have their answers meanwhile.
    """

    accept_binary = True
    acknowledges_ahead = False

    def __init__(self, client_manager: Any = None, logger: Any = False, serializer: Any = "default", **options: Any) -> None:
        _check_serializer(serializer)
        if not is_patched():
            raise RuntimeError(
                "headgate.socketio needs gevent's cooperative sockets: put `from gevent import monkey; monkey.patch_all()` "
                "at the very top of the program, or start it with `headgate serve`"
            )
        super().__init__(client_manager, logger, serializer, **options)
        self._has_attachments = _has_attachments(self.packet_class)
        self._turns: dict[str, _Turns] = {}
        self._leaving: dict[str, _Turns] = {}

    def _engineio_server_class(self) -> type[EngineServer]:
        return EngineServer

    def opening(self, eio_sid: str, environ: dict[str, Any]) -> OneTooMany | None:
        """Called before a session opens; returns why it is one too many, if it is. For subclasses."""

    def over(self, eio_sid: str) -> None:
        """Called when a session that was opened is over. For subclasses."""

    def joined(self, eio_sid: str, namespace: str, sid: str) -> None:
        """Called when a client has joined a namespace and its CONNECT packet is on its way. For subclasses."""

    def _send_packet(self, eio_sid: str, pkt: Any) -> None:
        """CONNECT and its errors go ahead of queued events; events, goodbyes and acknowledgements keep their order, the last
        unless `acknowledges_ahead`."""
        connection = self.eio.sockets.get(eio_sid)
        if connection is None:
            return
        encoded = pkt.encode()
        kind = pkt.packet_type
        control = kind in _OPENING or (kind == socket_packet.ACK and self.acknowledges_ahead)
        for part in encoded if isinstance(encoded, list) else [encoded]:
            packet = engine_packet.Packet(engine_packet.MESSAGE, data=part)
            if not control:
                self._send_eio_packet(eio_sid, packet)
            else:
                # CONNECT waits for what `joined` has to say: one write instead of two.
                connection.offer_control(frame_of(packet), flush=kind != socket_packet.CONNECT)

    def _send_eio_packet(self, eio_sid: str, eio_pkt: Any) -> None:
        connection = self.eio.sockets.get(eio_sid)
        if connection is not None:
            if eio_pkt.binary and self._has_attachments:
                frame_of(eio_pkt, attachment=True)  # kept on the packet
            connection.send(eio_pkt)

    def _handle_eio_connect(self, eio_sid: str, environ: dict[str, Any]) -> OneTooMany | None:
        refusal = self.opening(eio_sid, environ)
        if refusal is not None:
            return refusal
        super()._handle_eio_connect(eio_sid, environ)
        return None

    def _handle_connect(self, eio_sid: str, namespace: str | None, data: Any) -> None:
        namespace = namespace or "/"
        if not self._serves(namespace):
            self._send_packet(
                eio_sid,
                self.packet_class(socket_packet.CONNECT_ERROR, data={"message": "Invalid namespace"}, namespace=namespace),
            )
            return
        connection = self.eio.sockets.get(eio_sid)
        if connection is None:
            return
        before = self.manager.sid_from_eio_sid(eio_sid, namespace)
        connection.cork()
        try:
            try:
                super()._handle_connect(eio_sid, namespace, data)
            finally:
                sid = self.manager.sid_from_eio_sid(eio_sid, namespace)
                joined = sid not in (None, before) and self.manager.is_connected(sid, namespace)
                if joined:
                    connection.joined = True
                elif sid not in (None, before):
                    self.manager.disconnect(sid, namespace, ignore_queue=True)  # its connect handler raised
            if joined:
                self.joined(eio_sid, namespace, sid)
        finally:
            connection.flush()
            connection.uncork()

    def _serves(self, namespace: str) -> bool:
        named = self.namespaces == "*" or namespace in self.namespaces
        return named or namespace in self.handlers or namespace in self.namespace_handlers

    def _handle_eio_message(self, eio_sid: str, data: str | bytes) -> None:
        """Parse one Socket.IO packet; anything malformed or out of order ends the connection with a code."""
        fault = packet = None
        if eio_sid in self._binary_packet:
            fault = None if isinstance(data, bytes) else "attachment expected"
        elif isinstance(data, bytes) and self._has_attachments:
            fault = "binary message without a binary packet before it"
        else:
            try:
                packet = self.packet_class(encoded_packet=data)
                fault = self._packet_fault(eio_sid, packet)
            except Exception as error:  # noqa: BLE001 - whatever a packet class raises: the client is told, it is counted
                fault = f"malformed packet ({type(error).__name__})"
        if fault is not None:
            self._binary_packet.pop(eio_sid, None)
            connection = self.eio.sockets.get(eio_sid)
            if connection is not None:
                connection.end("parse error", code=PROTOCOL_ERROR, told=fault)
            return
        try:
            if packet is None:
                super()._handle_eio_message(eio_sid, data)
            else:
                self._dispatch(eio_sid, packet)
        except Exception:
            # Application code failed: it is logged, and the connection goes on, as with stock python-socketio.
            log.exception("event handler failed", sid=eio_sid)

    def _dispatch(self, eio_sid: str, packet: Any) -> None:
        """Hand a checked packet to python-socketio (its own dispatch would parse it once more)."""
        kind, namespace = packet.packet_type, packet.namespace
        if kind == socket_packet.CONNECT:
            self._handle_connect(eio_sid, namespace, packet.data)
        elif kind == socket_packet.DISCONNECT:
            self._handle_disconnect(eio_sid, namespace, self.reason.CLIENT_DISCONNECT)
        elif kind == socket_packet.EVENT:
            self._handle_event(eio_sid, namespace, packet.id, packet.data)
        elif kind == socket_packet.ACK:
            self._handle_ack(eio_sid, namespace, packet.id, packet.data)
        else:
            self._binary_packet[eio_sid] = packet  # its attachments follow

    def _packet_fault(self, eio_sid: str, packet: Any) -> str | None:
        kind, data, id_ = packet.packet_type, packet.data, packet.id
        # The standard packet's parser sees to these two itself; others take what they find.
        if packet.namespace is not None and not isinstance(packet.namespace, str):
            return "namespace that is no text"
        if id_ is not None and not (isinstance(id_, int) and id_ >= 0):
            return "id that is no whole number"
        if kind == socket_packet.CONNECT:
            return None if data is None or isinstance(data, dict) else "CONNECT with data that is not an object"
        if kind == socket_packet.DISCONNECT:
            return None if data is None else "DISCONNECT with data"
        if kind not in (socket_packet.EVENT, socket_packet.ACK, socket_packet.BINARY_EVENT, socket_packet.BINARY_ACK):
            return "unknown packet type"
        if self.manager.sid_from_eio_sid(eio_sid, packet.namespace or "/") is None:
            return "packet before CONNECT"
        if not isinstance(data, list):
            return "packet without an argument list"
        if kind in (socket_packet.EVENT, socket_packet.BINARY_EVENT):
            if not data or not isinstance(data[0], str) or data[0] in ("connect", "disconnect", "connect_error"):
                return "event without a valid name"
        elif not id_:
            return "acknowledgement without the id of an event"
        if kind in (socket_packet.BINARY_EVENT, socket_packet.BINARY_ACK):
            if not self._has_attachments:
                return "packet with attachments, of which this server's packets have none"
            if not self.accept_binary:
                return "binary packets are not accepted"
            if not 0 < packet.attachment_count <= MAX_ATTACHMENTS:
                return f"number of attachments not between 1 and {MAX_ATTACHMENTS}"
            if not _placeholders_valid(data, packet.attachment_count):
                return "placeholder without an attachment"
        elif packet.attachment_count:
            return "attachments on a text packet"
        return None

    def _handle_event(self, eio_sid: str, namespace: str | None, id: int | None, data: list[Any]) -> None:
        """Run an event's handler: in a greenlet of its own if the application wants that, but not without bound."""
        if not self.async_handlers:
            super()._handle_event(eio_sid, namespace, id, data)
            return
        namespace = namespace or "/"
        sid = self.manager.sid_from_eio_sid(eio_sid, namespace)
        if not self.manager.is_connected(sid, namespace):
            return
        turns = self._turns.setdefault(eio_sid, _Turns())
        while turns.running >= MAX_HANDLERS:
            turns.room.clear()
            turns.room.wait()
        turns.running += 1
        self._turns[eio_sid] = turns
        spawn(self._in_turn, turns, sid, eio_sid, data, namespace, id)

    def _in_turn(self, turns: _Turns, sid: str, eio_sid: str, data: list[Any], namespace: str, id: int | None) -> None:
        try:
            self._handle_event_internal(self, sid, eio_sid, data, namespace, id)
        except Exception:
            log.exception("event handler failed", sid=eio_sid)
        finally:
            turns.running -= 1
            turns.room.set()
            if not turns.running:
                self._turns.pop(eio_sid, None)

    def _trigger_event(self, event: str, namespace: str, *args: Any) -> Any:
        """Run a handler of the application. A client leaves its rooms also when its disconnect handler raises."""
        if event != "disconnect":
            return super()._trigger_event(event, namespace, *args)
        sid = args[0]
        eio_sid = self.manager.eio_sid_from_sid(sid, namespace)
        leaving = self._leaving.setdefault(eio_sid, _Turns())
        leaving.running += 1
        try:
            return super()._trigger_event(event, namespace, *args)
        except BaseException:
            self.manager.disconnect(sid, namespace, ignore_queue=True)  # python-socketio would not come to it
            raise
        finally:
            leaving.running -= 1
            if not leaving.running:
                del self._leaving[eio_sid]
                leaving.room.set()

    def _handle_disconnect(self, eio_sid: str, namespace: str | None, reason: str | None = None) -> None:
        """Let a client leave a namespace: behind the handlers of what it sent before, which have at least begun."""
        if eio_sid in self._turns:
            sleep()
        super()._handle_disconnect(eio_sid, namespace, reason)

    def _handle_eio_disconnect(self, eio_sid: str, reason: str) -> None:
        """Let a client leave every namespace; forget its session when all its disconnect handlers are done."""
        self._binary_packet.pop(eio_sid, None)
        try:
            for namespace in list(self.manager.get_namespaces()):
                try:
                    self._handle_disconnect(eio_sid, namespace, reason)
                except Exception:  # one namespace's handler must not cost the others theirs
                    log.exception("disconnect handler failed", sid=eio_sid, namespace=namespace)
            while (leaving := self._leaving.get(eio_sid)) is not None:
                leaving.room.wait()  # the server put the client out, and its handler is still at it
        finally:
            self.environ.pop(eio_sid, None)
            self.over(eio_sid)


def _check_serializer(serializer: Any) -> None:
    """Refuse what is no packet class.

    Raises:
        ValueError: says what is allowed.
    """
    a_class = isinstance(serializer, type) and issubclass(serializer, socket_packet.Packet)
    if not a_class and serializer not in ("default", "msgpack"):
        raise ValueError(f"serializer: expected 'default', 'msgpack' or a subclass of socketio.packet.Packet, got {serializer!r}")


def _has_attachments(packet_class: Any) -> bool:
    """Return whether bytes travel as attachments, in binary messages behind a text packet; else every message is a packet.

    Raises:
        ValueError: the class makes what no message can carry.
    """
    encoded = packet_class(socket_packet.EVENT, data=["probe"], namespace="/").encode()
    if not isinstance(encoded, str | bytes | bytearray | list):
        made = type(encoded).__name__
        raise ValueError(f"serializer: encode() of {packet_class.__name__} must return str, bytes or a list of these, not {made}")
    return bool(packet_class.uses_binary_events) and not isinstance(encoded, bytes | bytearray)


def _placeholders_valid(data: Any, attachments: int) -> bool:
    """Return whether every placeholder names an attachment; python-socketio would find out when the last one has come."""
    level, inner = [data], []
    for _ in range(MAX_BINARY_DEPTH):
        for value in level:
            if isinstance(value, list):
                inner += value
            elif isinstance(value, dict):
                if value.get("_placeholder") and "num" in value:
                    number = value["num"]
                    if type(number) is not int or not 0 <= number < attachments:
                        return False
                else:
                    inner += value.values()
        if not inner:
            return True
        level, inner = inner, []
    return False


@lru_cache(maxsize=64)  # joining WebSockets all ask the same
def _read_query(query: str) -> tuple[str, str, str]:
    """Return transport, version and session id.

    Raises:
        ValueError: it has more than MAX_QUERY_FIELDS.
    """
    fields = parse_qs(query, max_num_fields=MAX_QUERY_FIELDS)
    transport, version, sid = (fields.get(name, [""])[0] for name in ("transport", "EIO", "sid"))
    return transport, version, sid


def _accept_headers(environ: dict[str, Any]) -> bytes:
    """Return the 101 answer to a WebSocket request (RFC 6455 section 4.2); extensions are never negotiated."""
    key = environ.get("HTTP_SEC_WEBSOCKET_KEY", "")
    connection = {token.strip().lower() for token in environ.get("HTTP_CONNECTION", "").split(",")}
    if environ.get("HTTP_SEC_WEBSOCKET_VERSION") != "13":
        raise _Refused(BAD_REQUEST, "426 Upgrade Required", "Sec-WebSocket-Version must be 13")
    try:
        valid = len(base64.b64decode(key, validate=True)) == 16
    except (binascii.Error, ValueError):
        valid = False
    if not valid or "upgrade" not in connection:
        raise _Refused(BAD_REQUEST, detail="not a WebSocket handshake")
    return (
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Accept: " + accept_key(key).encode() + b"\r\n\r\n"
    )


def _respond(
    start_response: Any, body: bytes, headers: list[tuple[str, str]], content_type: str = "text/plain; charset=UTF-8"
) -> Any:
    start_response("200 OK", [("Content-Type", content_type), ("Content-Length", str(len(body))), *headers])
    return [body]


def _body(frames: list[Frame]) -> bytes:
    """Return frames as the body of a poll's answer; binary ones in base64."""
    return _RECORD_SEPARATOR.encode().join(
        b"b" + base64.b64encode(frame.packet) if frame.binary else frame.packet for frame in frames
    )


def _split(body: str, max_packets: int) -> list[str | bytes]:
    """Return the packets of a POST body; `b…` packets are binary messages in base64.

    Raises:
        ValueError: too many packets, or bad base64.
    """
    parts = body.split(_RECORD_SEPARATOR, max_packets)
    if len(parts) > max_packets:
        raise ValueError(f"too many packets in one request: at most {max_packets}")
    return [base64.b64decode(part[1:], validate=True) if part[:1] == "b" else part for part in parts]
