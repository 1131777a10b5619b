"""The server that socket.io-client's own tests expect, on `headgate.socketio`: its namespaces, events and acknowledgements."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import parse_qsl

import gevent
from socketio.exceptions import ConnectionRefusedError as Refused

from headgate.socketio import Server, TransportLimits, WSGIApp

# The suite tests the client's own time limit against it.
OPENING_S = 0.01
DATE = "2026-11-23T08:00:00.000Z"
TEXTS = ("てすと", "Я Б Г Д Ж Й", "Ä ä Ü ü ß", "utf8 — string", "utf8 — string")


class ClientSuiteApplication:
    """See the module. A WSGI application."""

    def __init__(self, limits: dict[str, Any]) -> None:
        self.sio = Server(transport_limits=TransportLimits(**limits), cors_allowed_origins="*")
        self.handshakes: dict[str, dict[str, Any]] = {}
        self._answer = WSGIApp(self.sio)
        for namespace in ("/", "/foo", "/timeout_socket", "/valid", "/asd", "/abc", "/no"):
            self.sio.on("connect", self._connect(namespace), namespace=namespace)
            self.sio.on("getId", lambda sid: sid, namespace=namespace)
        sio = self.sio
        sio.on("hi", lambda sid: sio.emit("hi", to=sid))
        sio.on("echo", lambda sid, value: value)
        sio.on("ack", self._ask)
        sio.on("getAckDate", lambda sid, data: DATE)
        sio.on("getDate", lambda sid: sio.emit("takeDate", DATE, to=sid))
        sio.on("getDateObj", lambda sid: sio.emit("takeDateObj", {"date": DATE}, to=sid))
        sio.on("getUtf8", lambda sid: [sio.emit("takeUtf8", text, to=sid) for text in TEXTS] and None)
        sio.on("false", lambda sid: sio.emit("false", False, to=sid))
        sio.on("doge", lambda sid: sio.emit("doge", b"asdfasdf", to=sid))
        sio.on("getbin", lambda sid: sio.emit("takebin", b"asdfasdf", to=sid))
        sio.on("getHandshake", lambda sid: self.handshakes.get(sid))
        for name, wanted, then in (
            ("buffa", lambda value: isinstance(value, bytes), "buffack"),
            ("jsonbuff", _is_mixed, "jsonbuff-ack"),
            ("abuff1", lambda value: isinstance(value, bytes), None),
            ("abuff2", lambda value: True, "abuff2-ack"),
            ("blob", lambda value: isinstance(value, bytes), "back"),
            ("jsonblob", _is_mixed, "jsonblob-ack"),
            ("blob1", lambda value: isinstance(value, bytes), None),
            ("blob2", lambda value: value == "second", None),
            ("blob3", lambda value: isinstance(value, bytes), "blob3-ack"),
        ):
            sio.on(name, self._checked(wanted, then))

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        """Answer a request; one that opens a session after a moment."""
        if "sid=" not in environ.get("QUERY_STRING", ""):
            gevent.sleep(OPENING_S)
        answer: Iterable[bytes] = self._answer(environ, start_response)
        return answer

    def _connect(self, namespace: str) -> Callable[..., None]:
        def connect(sid: str, environ: dict[str, Any], auth: Any = None) -> None:
            query = dict(parse_qsl(environ.get("QUERY_STRING", "")))
            if namespace == "/no":
                raise Refused("Auth failed (custom namespace)")
            if namespace == "/" and query.get("fail"):
                raise Refused("Auth failed (main namespace)")
            headers = {
                name.removeprefix("HTTP_").lower().replace("_", "-"): value
                for name, value in environ.items()
                if name.startswith("HTTP_")
            }
            self.handshakes[sid] = {"query": query, "auth": auth or {}, "headers": headers}
            if namespace == "/abc":
                self.sio.emit("handshake", self.handshakes[sid], to=sid, namespace=namespace)

        return connect

    def _ask(self, sid: str) -> None:
        def asked(first: Any, second: Any) -> None:
            if first == 5 and second.get("test"):
                self.sio.emit("got it", to=sid)

        self.sio.emit("ack", to=sid, callback=asked)

    def _checked(self, wanted: Callable[[Any], bool], then: str | None) -> Callable[[str, Any], None]:
        def checked(sid: str, value: Any) -> None:
            if wanted(value) and then is not None:
                self.sio.emit(then, to=sid)

        return checked


def _is_mixed(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and value["hello"] == "lol"
        and isinstance(value["message"], bytes)
        and value["goodbye"] == "gotcha"
    )
