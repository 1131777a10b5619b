"""An application of ours and its browsers, in the test's own process: no server, no port, nothing to wait for.

    application = …                        # inside `without_blocking(monkeypatch)`
    browser = Browser(application)
    assert browser.answers("40")[0].startswith("40{")

A browser polls, unless the test is about a close frame, when it is at the other end of a socket pair.
"""

from __future__ import annotations

import json
import socket
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import gevent
from gevent.event import Event

from headgate.events.wire.frames import Frame
from headgate.socketio import Server, TransportLimits
from headgate.socketio import server as server_module
from headgate.transport import outbox
from headgate.transport.session import Session
from headgate.transport.upgrade import begin_upgrade
from tests.support.session_clock import native_pair, read_all, turn
from tests.support.socketio_room import ROOM, Room
from tests.support.websocket_codec import BINARY, CLOSE, TEXT, close_told, frames_in, masked

if TYPE_CHECKING:
    import pytest

LIMITS: dict[str, Any] = {"handshake_deadline_s": 3600, "ping_interval_s": 3600, "inbound_burst": 100_000}


class Application:
    """A server with the official suite's handlers in `/`, `/custom` and `/other`, and the namespace `/room`."""

    def __init__(self, *, limits: dict[str, Any] | None = None, **options: Any) -> None:
        self.sio = Server(**{"transport_limits": TransportLimits(**LIMITS | (limits or {})), **options})
        self.ends: list[str] = []
        self.seen: list[Any] = []
        self.gate, self.join_gate = Event(), Event()
        self.running = self.most_running = self.sessions = 0
        for namespace in ("/", "/custom", "/other"):
            self._serve(namespace)
        self.room = Room()
        self.sio.register_namespace(self.room)

    def _serve(self, namespace: str) -> None:
        sio = self.sio

        def connect(sid: str, environ: dict[str, Any], auth: Any) -> None:
            if isinstance(auth, dict) and auth.get("refuse"):
                raise ConnectionRefusedError
            if namespace == "/other":
                sio.emit("early", to=sid, namespace=namespace)
                self.join_gate.wait()
            sio.emit("auth", auth or {}, to=sid, namespace=namespace)

        def slow(sid: str, number: int, *_: Any) -> None:
            self.running += 1
            self.most_running = max(self.most_running, self.running)
            self.gate.wait()
            self.running -= 1
            self.seen.append(number)

        def leave(sid: str, *_: Any) -> None:
            sio.emit("goodbye", to=sid, namespace=namespace)
            sio.disconnect(sid, namespace=namespace)

        sio.on("connect", connect, namespace=namespace)
        sio.on("message", lambda sid, *data: sio.emit("message-back", data, to=sid, namespace=namespace), namespace=namespace)
        sio.on("message-with-ack", lambda sid, *data: data, namespace=namespace)
        sio.on("record", lambda sid, *data: self.seen.append(data[0] if data else None), namespace=namespace)
        sio.on("fail", lambda sid: 1 / 0, namespace=namespace)
        sio.on("leave", leave, namespace=namespace)
        sio.on("slow", slow, namespace=namespace)
        sio.on("disconnect", self.end, namespace=namespace)

    def end(self, sid: str, reason: str) -> None:
        self.ends.append(reason)

    def leftovers(self) -> dict[str, Any]:
        """Return the objects that exist only while a client does."""
        manager = self.sio.manager
        return {
            "sessions": self.sio.eio.sockets,
            "environs": self.sio.environ,
            "rooms": {name: rooms for name, rooms in manager.rooms.items() if any(rooms.values())},
            "half gone": {name: gone for name, gone in manager.pending_disconnect.items() if gone},
            "half binary": self.sio._begun,
            "handlers": self.sio._running,
            "leaving": self.sio._leaving,
        }

    def members(self) -> int:
        return len(self.sio.manager.rooms.get("/room", {}).get(ROOM, ()))


class Browser:
    """One session of an application, and the browser's end of it."""

    def __init__(self, application: Application, *, websocket: bool = False) -> None:
        engine = application.sio.eio
        application.sessions += 1
        sid = f"session {application.sessions}"
        self.session = engine.sockets[sid] = Session(engine, sid)
        assert engine.opening(sid, {"PATH_INFO": "/socket.io/"}) is None
        self.closed: tuple[int, str] | None = None
        self._unparsed = b""
        self._sock: socket.socket | None = None
        if websocket:
            ours, self._sock = native_pair()
            self.session.start_websocket(ours)
        else:
            self.session.start_polling()

    def send(self, *messages: str | bytes) -> Browser:
        """Send Engine.IO packets and attachments, in one segment; let the application do all that it can do now."""
        if self._sock is not None:
            self._sock.sendall(b"".join(masked(BINARY if isinstance(each, bytes) else TEXT, each) for each in messages))
        for message in messages if self._sock is None else ():
            self.session.received(message)
        turn()
        return self

    def pour(self, data: bytes) -> None:
        """Send raw bytes over the WebSocket, until the server has closed it."""
        assert self._sock is not None
        with suppress(OSError):
            self._sock.sendall(data)
        turn()

    def received(self) -> list[str | bytes]:
        """Return the received packets; remember a close frame."""
        turn()
        if self._sock is None:
            frames: list[Frame] = []
            while taken := self.session.take_frames():
                frames += taken
            return [frame.packet if frame.binary else frame.packet.decode() for frame in frames]
        messages: list[str | bytes] = []
        found, self._unparsed = frames_in(self._unparsed + read_all(self._sock))
        for opcode, payload in found:
            if opcode == CLOSE:
                self.closed = close_told(payload)
            else:
                messages.append(payload.decode() if opcode == TEXT else payload)
        return messages

    def begin_upgrade(self) -> bool:
        """Reach the server over a WebSocket; until `finish_upgrade` the browser, which polls, takes nothing.

        Returns False when the session has ended in between.
        """
        ours, self._sock = native_pair()
        begin_upgrade(self.session, ours)
        self._sock.sendall(masked(TEXT, "2probe"))
        turn()
        return read_all(self._sock) == b"\x81\x063probe"

    def fail_upgrade(self) -> None:
        """Lose that WebSocket, so that the browser polls on."""
        assert self._sock is not None
        self._sock.close()
        self._sock = None
        turn()

    def finish_upgrade(self) -> None:
        """Move to that WebSocket."""
        assert self._sock is not None
        self._sock.sendall(masked(TEXT, "5"))
        turn()

    def answers(self, *messages: str | bytes) -> list[str | bytes]:
        """Send, and return the answers."""
        return self.send(*messages).received()

    def join(self, namespace: str = "/") -> str:
        prefix = "40" if namespace == "/" else f"40{namespace},"
        connected, _ = self.answers(prefix)
        assert isinstance(connected, str)
        sid: str = json.loads(connected.removeprefix(prefix))["sid"]
        return sid

    def enter(self, user: str, **auth: Any) -> Browser:
        """Join the room as this user."""
        (connected,) = self.answers("40/room," + json.dumps({"user": user, **auth}))
        assert str(connected).startswith('40/room,{"sid":')
        return self

    @property
    def is_gone(self) -> bool:
        """Whether it has broken its connection off."""
        return self._sock is not None and self._sock.fileno() < 0

    def go(self) -> None:
        if self._sock is not None:
            self._sock.close()
        else:
            self.session.end("transport close", abort=True)
        turn()


def without_blocking(patch: pytest.MonkeyPatch) -> None:
    """Allow servers in a process with blocking sockets, and give CONNECT its head start in a turn of the loop."""
    patch.setattr(server_module, "is_patched", lambda: True)
    patch.setattr(outbox, "in_hub_after", lambda delay_s, callback: gevent.spawn(callback))
