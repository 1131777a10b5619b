"""The chat (chat.py) as a process, under a web server of the test's choice, and two guests with an evening in it."""

import os
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import IO, Any
from urllib.parse import urlsplit

import socketio

from tests.integration.transport.clients import WebSocket, closing
from tests.support.held_port import HeldPort
from tests.support.line_program import DEADLINE_S, ROOT

POLLING, WEBSOCKET, UPGRADED = ("polling",), ("websocket",), ("polling", "websocket")

Told = list[tuple[str, tuple[Any, ...]]]


@dataclass
class Served:
    """A served chat.

    Attributes:
        url: for a client.
        process: the server's.
    """

    url: str
    process: subprocess.Popen[bytes]
    _errors: IO[bytes]

    @property
    def errors(self) -> str:
        self._errors.seek(0)
        return self._errors.read().decode(errors="replace")

    def said(self, text: str) -> None:
        give_up = time.monotonic() + DEADLINE_S
        while text not in self.errors:
            assert time.monotonic() < give_up, (text, self.errors)
            time.sleep(0.02)


@contextmanager
def serving(kind: str, *arguments: str, env: dict[str, str] | None = None, python: str = sys.executable) -> Iterator[Served]:
    """Run the chat for the time of the block, as its module does it itself."""
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            [python, "-m", "tests.support.chat", kind, *arguments],
            cwd=ROOT,
            env=os.environ | (env or {}),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            served = Served(f"http{'s' if kind == 'tls' else ''}://127.0.0.1:{int(line or 0)}", process, errors)
            assert line, served.errors
            yield served
        finally:
            process.stdin.close()
            process.wait(DEADLINE_S)
            process.stdout.close()


@contextmanager
def commanded(
    command: Callable[[str], Sequence[str]], *, env: dict[str, str] | None = None, scheme: str = "http", ends: bool = False
) -> Iterator[Served]:
    """Run a server by its own command, which is given the address, for the time of the block.

    With `ends`, the process is expected to end by itself; otherwise the block begins when it listens.
    """
    held = HeldPort()
    port = held.port
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            command(f"127.0.0.1:{port}"),
            cwd=ROOT,
            env=os.environ | (env or {}),
            stdout=errors,
            stderr=errors,
            start_new_session=True,
        )
        served = Served(f"{scheme}://127.0.0.1:{port}", process, errors)
        try:
            if ends:
                process.wait(DEADLINE_S)
            else:
                _await_listening(port, served)
            yield served
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            held.close()


def _await_listening(port: int, served: Served) -> None:
    give_up = time.monotonic() + DEADLINE_S
    while True:
        with socket.socket() as sock:
            if sock.connect_ex(("127.0.0.1", port)) == 0:
                return
        assert served.process.poll() is None, served.errors
        assert time.monotonic() < give_up, served.errors
        time.sleep(0.02)


def _in_order(message: str | bytes) -> bool:
    """Return whether a message belongs to an event or an acknowledgement, or is the CONNECT before them."""
    return isinstance(message, bytes) or message[0] in "02356"


class Guest:
    """One client of the chat, and all that it received."""

    def __init__(self, url: str, transports: tuple[str, ...], auth: Any, *, ca_file: str = "") -> None:
        self.told: Told = []
        self._seen: dict[str, threading.Event] = {}
        self.client = socketio.Client(reconnection=False, request_timeout=DEADLINE_S, **_trusting(ca_file))
        trigger = self.client.eio._trigger_event
        # It has a thread for each message, so that the order of handlers is chance; its own goodbyes need theirs.
        self.client.eio._trigger_event = lambda event, *arguments, **options: trigger(
            event, *arguments, **options | ({"run_async": False} if event == "message" and _in_order(arguments[0]) else {})
        )
        self.client.on("*", self._tell, namespace="/chat")
        self.client.on("question", lambda question: f"{question} indeed", namespace="/chat")
        self.client.on("connect_error", lambda error: self._tell("refused", error), namespace="/chat")
        self.client.on("disconnect", lambda reason: self._tell("gone", reason), namespace="/chat")
        self.client.connect(url, auth=auth, transports=list(transports), namespaces=["/chat"], wait=False)

    def _tell(self, event: str, *arguments: Any) -> None:
        self.told.append((event, arguments))
        self._seen.setdefault(event, threading.Event()).set()

    def ask(self, event: str, *arguments: Any) -> Any:
        """Send an event; the content of its acknowledgement has its place among the client's messages."""
        answer = self.client.call(event, arguments, namespace="/chat", timeout=DEADLINE_S)
        self.told.append((f"answer to {event}", (answer,)))
        return answer

    def until(self, event: str) -> None:
        assert self._seen.setdefault(event, threading.Event()).wait(DEADLINE_S), (event, self.told)

    def leave(self) -> None:
        """Say goodbye, in the background, because the client waits for seconds for stock's answer."""
        threading.Thread(target=self.client.disconnect, daemon=True).start()


def talk_over_tls(url: str, ca_file: str) -> None:
    """Talk over a WebSocket under TLS, with a client of one thread, because python-socketio's has two, which OpenSSL forbids.

    A welcome, answers after a burst of events, and large messages both ways, as single frames and as many.
    """
    client = WebSocket(urlsplit(url).port or 0, tls=ssl.create_default_context(cafile=ca_file))
    with closing(client):
        client.send('40/chat,{"name":"ana"}')
        assert client.text().startswith("40/chat,")
        assert client.text() == '42/chat,["welcome",{"name":"ana","transport":"websocket"}]'
        client.send('42/chat,1["history",5000]')
        lines = [client.text() for _ in range(5000)]
        assert lines == [f'42/chat,["line",{number},"{"x" * 100}"]' for number in range(5000)]
        assert client.text() == '43/chat,1["that is all"]'
        words = "y" * 900_000
        client.send(f'42/chat,2["say","{words}"]')
        assert client.text() == f'42/chat,["said","ana","{words}"]'
        assert client.text() == '43/chat,2[{"said":1}]'
        client.send(*['42/chat,["say","again"]'] * 100, '42/chat,["kick_me"]')
        assert [client.text() for _ in range(102)][100:] == ['42/chat,["goodbye"]', "41/chat,"]


def _trusting(ca_file: str) -> dict[str, Any]:
    """Return the options of a client that trusts this authority."""
    if not ca_file:
        return {}
    import requests

    session = requests.Session()
    session.verify, session.trust_env = ca_file, False  # or the environment's authorities win
    return {"http_session": session}


def evening(url: str, transports: tuple[str, ...], *, ca_file: str = "") -> dict[str, Told]:
    """Have two guests spend an evening; return the messages of each."""
    with ExitStack() as guests:
        ana = Guest(url, transports, {"name": "ana"}, ca_file=ca_file)
        guests.callback(ana.leave)
        ana.until("welcome")
        nobody = Guest(url, transports, {}, ca_file=ca_file)
        guests.callback(nobody.leave)
        nobody.until("refused")
        ben = Guest(url, transports, {"name": "ben"}, ca_file=ca_file)
        guests.callback(ben.leave)
        ben.until("welcome")
        ana.until("joined")
        ana.ask("say", "hello ü")
        ben.until("said")
        ben.ask("whisper", "ana", "psst")
        ana.until("whispered")
        ben.ask("whisper", "nobody", "psst")
        ana.ask("upload", "photo", bytes(range(256)) * 100, b"\x00\x01")
        ben.until("file")
        ana.ask("history", 10)
        ana.ask("move", "kitchen")
        ben.until("moved")
        ana.ask("ask_me", "really?")
        ana.ask("nothing")
        ana.client.emit("break", namespace="/chat")
        ana.client.emit("no such event", 1, namespace="/chat")
        ana.ask("say", "still here")
        ben.client.emit("kick_me", namespace="/chat")
        ben.until("gone")
        ana.until("left")
        return {"ana": list(ana.told), "ben": list(ben.told), "nobody": list(nobody.told)}
