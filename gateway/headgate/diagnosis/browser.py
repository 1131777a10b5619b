"""A client of a gateway that connects as a page does, over a WebSocket or long polls, to test the gateway from outside.

In: the public URL, a namespace, the `auth` of a CONNECT. Out: the welcome, and each event with its arrival time by this
process' clock, or why there is no connection. A thread collects them. It does not reconnect, because the doctor checks for lost
connections.
"""

from __future__ import annotations

import json
import logging
import queue
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from typing import Any

from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Origin

from headgate.runtime import connection_faults
from headgate.runtime.http_exchange import open_connection
from headgate.settings.addresses.http_target import read_target

# Silences the library websockets, which logs a traceback for an unexpected answer. The error that it raises is enough.
_UNHEARD = logging.Logger("headgate.doctor", logging.CRITICAL + 1)

# The first character of a packet of Engine.IO 4, and of the Socket.IO 5 message in it.
_OPEN, _CLOSE, _PING, _PONG, _MESSAGE = "0", "1", "2", "3", "4"
_CONNECT, _EVENT, _ANSWER, _REFUSED = "0", "2", "3", "4"
_SUBSCRIBE_ID = "1"
_SEPARATOR = "\x1e"
MAX_ANSWER_BYTES = 4 * 1024 * 1024


class NotConnected(Exception):
    """There is no connection, or it has ended, or the gateway refused what was asked over it. The text gives the reason.

    Attributes:
        status: of an HTTP answer in place of a connection.
        code: of a refusal by the gateway (docs/protocol.md), with its `reason` for some codes.
        is_refusal: whether it is the gateway's refusal over a connection.
    """

    def __init__(self, text: str, status: int | None = None, code: str = "", reason: str = "") -> None:
        super().__init__(text)
        self.status, self.code, self.reason = status, code, reason
        self.is_refusal = bool(code) and status is None


class Browser(ABC):
    """One connection in one namespace. Each call waits at most `timeout_s` unless stated otherwise.

    Attributes:
        answered_s: time until the gateway answered the first request.
        ended: why the connection ended, or None; `ended_at_s` is when.
    """

    def __init__(self, url: str, namespace: str, origin: str, timeout_s: float) -> None:
        self.target, self.namespace, self.origin, self.timeout_s = read_target(url), namespace, origin, timeout_s
        self.answered_s = 0.0
        self.ended: str | None = None
        self.ended_at_s = 0.0
        self._closed = False
        # Each message with its kind, `welcome`, `answer` or `event`. The last one is the end, of no kind.
        self._inbox: queue.Queue[tuple[str, Any]] = queue.Queue()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def join(self, auth: Mapping[str, Any]) -> dict[str, Any]:
        """Connect, join the namespace, and return the welcome.

        Raises NotConnected without an answer from a gateway, or if the gateway refuses this client.
        """
        began_s = time.monotonic()
        self._open()
        self.answered_s = time.monotonic() - began_s
        self._thread.start()
        self._send(f"{_MESSAGE}{_CONNECT}/{self.namespace},{json.dumps(auth)}")
        welcome: dict[str, Any] = self._next("welcome", self.timeout_s)
        return welcome

    def subscribe(self, pattern: str) -> None:
        """Subscribe and wait for the acknowledgement. Raises as `join`."""
        request = json.dumps(["subscribe", {"pattern": pattern}])
        self._send(f"{_MESSAGE}{_EVENT}/{self.namespace},{_SUBSCRIBE_ID}{request}")
        answer = self._next("answer", self.timeout_s)
        if not answer.get("ok"):
            raise NotConnected(str(answer["error"]["message"]), code=str(answer["error"]["code"]))

    def wait_for(self, event_id: str, within_s: float) -> float | None:
        """Return when the event with this id arrived (time.monotonic), or None if it did not or the connection ended."""
        give_up_s = time.monotonic() + within_s
        with suppress(NotConnected):
            while True:
                arrived_id, at_s = self._next("event", give_up_s - time.monotonic())
                if arrived_id == event_id:
                    return float(at_s)
        return None

    def close(self) -> None:
        """Leave. Idempotent."""
        if not self._closed:
            self._closed = True
            with suppress(Exception):
                self._hang_up()
            if self._thread.is_alive():
                self._thread.join(self.timeout_s)

    # -- for both kinds -----------------------------------------------------------------------------------------------

    def _next(self, kind: str, within_s: float) -> Any:
        """Return the next message of a kind, or raise it if it is an error. Skips others. Raises NotConnected at the end."""
        came, give_up_s = None, time.monotonic() + within_s
        while came != kind:
            try:
                came, message = self._inbox.get(timeout=max(0.0, give_up_s - time.monotonic()))
            except queue.Empty:
                raise NotConnected(f"no {kind} within {within_s:g} s") from None
            if not came:
                self._inbox.put((came, message))  # for every later call
            if isinstance(message, Exception):
                raise message
        return message

    @property
    def _path(self) -> str:
        return self.target.path.partition("?")[0].rstrip("/") + "/socket.io/?EIO=4&transport="

    def _run(self) -> None:
        try:
            self._collect()
        except NotConnected as error:
            self._end(str(error))
        except Exception as error:  # noqa: BLE001 - reported as the end of the connection
            self._end(reason_of(error))

    def _end(self, reason: str) -> None:
        if self.ended is None and not self._closed:
            self.ended, self.ended_at_s = reason, time.monotonic()
        self._inbox.put(("", NotConnected(reason)))

    def _receive(self, packet: str) -> None:
        """Handle one Engine.IO packet."""
        if packet[:1] == _PING:
            self._send(_PONG + packet[1:])
        elif packet[:1] == _CLOSE:
            raise NotConnected("the gateway closed the session")
        elif packet[:1] == _MESSAGE:
            kind, body = packet[1:2], packet[2:].partition(",")[2]
            if kind == _REFUSED:
                answer = json.loads(body)
                parts = answer.get("data", answer)
                code, reason = str(parts.get("code", "refused")), str(parts.get("reason", ""))
                refusal = NotConnected(str(answer.get("message", answer)), code=code, reason=reason)
                self._inbox.put(("welcome", refusal))
            elif kind == _EVENT:
                name, *arguments = json.loads(body)
                if name == "welcome":
                    self._inbox.put(("welcome", arguments[0]))
                elif name == "event":
                    _, _, meta = arguments
                    self._inbox.put(("event", (meta.get("id"), time.monotonic())))
            elif kind == _ANSWER:
                self._inbox.put(("answer", json.loads(body[len(_SUBSCRIBE_ID) :])[0]))

    @abstractmethod
    def _open(self) -> None: ...

    @abstractmethod
    def _send(self, packet: str) -> None: ...

    @abstractmethod
    def _collect(self) -> None: ...

    @abstractmethod
    def _hang_up(self) -> None: ...


class WebSocketBrowser(Browser):
    """A client over a WebSocket from the start."""

    _socket: ClientConnection

    def _open(self) -> None:
        self._opened = ExitStack()
        url = f"{'wss' if self.target.scheme == 'https' else 'ws'}://{self.target.authority}{self._path}websocket"
        try:
            opening = connect(
                url, origin=Origin(self.origin), compression=None, open_timeout=self.timeout_s, close_timeout=1, proxy=None,
                logger=_UNHEARD,
            )  # fmt: skip
            self._socket = self._opened.enter_context(opening)
            first = str(self._socket.recv(self.timeout_s))
        except InvalidStatus as error:
            raise refusal_of(error.response.status_code, bytes(error.response.body or b"")) from error
        except ConnectionClosed as error:
            raise NotConnected(_end_of(error)) from error
        except (OSError, InvalidHandshake, EOFError) as error:
            raise NotConnected(reason_of(error)) from error
        if first[:1] != _OPEN:
            raise NotConnected("what answers is no gateway of Engine.IO 4")

    def _send(self, packet: str) -> None:
        try:
            self._socket.send(packet)
        except ConnectionClosed as error:
            raise NotConnected(_end_of(error)) from error

    def _collect(self) -> None:
        try:
            for message in self._socket:
                self._receive(str(message))
            self._end("closed (1000)")
        except ConnectionClosed as error:
            self._end(_end_of(error))

    def _hang_up(self) -> None:
        self._opened.close()


class PollingBrowser(Browser):
    """A client over the long polls of Socket.IO, for networks that block WebSockets. Our own client reads a stream there."""

    date: str | None = None
    _session = ""
    _hold_s: float

    def _open(self) -> None:
        self._cookies: dict[str, str] = {}
        [opening] = self._request("GET", self.timeout_s)
        try:
            if opening[:1] != _OPEN:
                raise ValueError
            packet = json.loads(opening[1:])
            self._session = f"&sid={packet['sid']}"
            self._hold_s = packet["pingInterval"] / 1000 + self.timeout_s  # a ping ends every poll
        except (ValueError, KeyError, TypeError) as error:
            raise NotConnected("what answers is no gateway of Engine.IO 4") from error

    def _send(self, packet: str) -> None:
        self._request("POST", self.timeout_s, packet)

    def _collect(self) -> None:
        while not self._closed:
            for packet in self._request("GET", self._hold_s):
                self._receive(packet)

    def _hang_up(self) -> None:
        self._send(_CLOSE)

    def _request(self, method: str, timeout_s: float, body: str | None = None) -> list[str]:
        """Return the packets of an answer."""
        target, deadline_s = self.target, time.monotonic() + timeout_s
        headers = {"Host": target.authority, "Connection": "close", "Origin": self.origin}
        headers["Content-Type"] = "text/plain; charset=UTF-8"
        if self._cookies:
            headers["Cookie"] = "; ".join(f"{name}={value}" for name, value in self._cookies.items())
        path = f"{self._path}polling{self._session}"
        try:
            with open_connection(target.scheme, target.host, target.port, deadline_s) as connection:
                head = connection.request(method, path, headers, (body or "").encode(), deadline_s)
                content = connection.read_body(MAX_ANSWER_BYTES, deadline_s)
        except (OSError, ValueError) as error:
            raise NotConnected(reason_of(error)) from error
        for name, value in head.headers:
            if name == "set-cookie":
                cookie, _, rest = value.partition(";")[0].partition("=")
                self._cookies[cookie] = rest
            elif name == "date":
                self.date = value
        if head.status != 200:
            raise refusal_of(head.status, content)
        return content.decode("utf-8", "replace").split(_SEPARATOR)


def refusal_of(status: int, content: bytes) -> NotConnected:
    """Return the error for an HTTP answer in place of a connection, with the gateway's refusal or the start of the answer."""
    text = content.decode("utf-8", "replace")
    try:
        error = json.loads(text)["error"]
        return NotConnected(f"HTTP {status}: {str(error['message'])[:300]}", status, str(error["code"]))
    except (ValueError, TypeError, KeyError):
        return NotConnected(f"HTTP {status}: {text[:200]}" if text else f"HTTP {status}", status)


def _end_of(error: ConnectionClosed) -> str:
    return f"closed ({error.rcvd.code} {error.rcvd.reason})" if error.rcvd else "cut without a word"


def reason_of(error: Exception) -> str:
    """Return a short reason for a broken connection."""
    return connection_faults.reason_of(error) or str(error)[:200] or type(error).__name__
