"""The HTTP load against a small server: it keeps its connections, counts the answers, and reports the failures."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from bench import generator
from tests.support.http_receiver import Answer, Receiver, status

DEADLINE_S = 60
CONNECTIONS = 3


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """A running server, which agrees."""
    generator.build()
    with Receiver() as receiver:
        receiver.answer = status(201, body=b'{"offset":1}')
        yield receiver


def load(receiver: Receiver, folder: Path) -> dict[str, Any]:
    """Run the load for a moment."""
    (folder / "body").write_bytes(b'{"topic":"a"}')
    (folder / "tokens").write_text("one\ntwo\n")
    options = ["--port", str(receiver.port), "--path", "/publish", "--body", str(folder / "body")]
    options += ["--tokens", str(folder / "tokens"), "--connections", str(CONNECTIONS)]
    options += ["--warm", "0", "--measure", "1", "--at-least", "5"]
    done = subprocess.run([str(generator.BINARIES / "http"), *options], capture_output=True, timeout=DEADLINE_S, check=True)
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def say_on(raw: bytes) -> Answer:
    """Write these bytes as they are, and keep the connection."""

    def answer(request: BaseHTTPRequestHandler, closing: Event) -> None:
        request.wfile.write(raw)

    return answer


def test_connections_are_kept_and_every_good_answer_counts(receiver: Receiver, tmp_path: Path) -> None:
    """Three connections with two tokens make many requests, all with the body, and no further connection."""
    answer = load(receiver, tmp_path)
    assert answer["answers"] == answer["microseconds"]["count"] >= 5 * CONNECTIONS
    assert (answer["errors"], answer["first_error"]) == (0, "")
    assert receiver.connections == CONNECTIONS
    seen = {(each.path, each.headers["authorization"], each.body) for each in receiver.requests}
    assert seen == {("/publish", f"Bearer {token}", b'{"topic":"a"}') for token in ("one", "two")}


def test_an_answer_in_chunks_is_one_answer(receiver: Receiver, tmp_path: Path) -> None:
    """A server sends a long answer so when it does not count it first."""
    chunks = b"7\r\n" + b'{"a":1}' + b"\r\n"
    receiver.answer = say_on(b"HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks * 10 + b"0\r\n\r\n")
    answer = load(receiver, tmp_path)
    assert answer["answers"] >= 5 * CONNECTIONS
    assert (answer["errors"], answer["first_error"]) == (0, "")
    assert receiver.connections == CONNECTIONS


@pytest.mark.parametrize(
    ("code", "body"),
    [(503, b"{}"), (207, b'{"receipts":[]}'), (200, b'{"error":{"code":100}}')],
    ids=["status", "partly", "body"],
)
def test_what_was_refused_does_not_count_as_published(receiver: Receiver, tmp_path: Path, code: int, body: bytes) -> None:
    """Neither a bad status, nor a batch of which a part was refused, nor a refusal that comes with 200."""
    receiver.answer = status(code, body=body)
    answer = load(receiver, tmp_path)
    assert answer["answers"] == 0
    assert answer["errors"] > 0
    assert str(code) in answer["first_error"]
