"""The HTTP load against a small server: it keeps its connections, counts the answers, and reports the failures."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from bench import generator

DEADLINE_S = 60
CONNECTIONS = 3


class _Site(ThreadingHTTPServer):
    """Answers each POST with `status` and `body`, and records the senders."""

    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing of connections that the load resets when it ends."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answering)
        self.status, self.body = 201, b'{"offset":1}'
        self.chunk_bytes = 0
        self.peers: set[object] = set()
        self.heard: set[tuple[str, str | None, bytes]] = set()


class _Answering(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Site

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.peers.add(self.client_address)
        self.server.heard.add((self.path, self.headers["Authorization"], body))
        self.send_response(self.server.status)
        if not self.server.chunk_bytes:
            self.send_header("content-length", str(len(self.server.body)))
            self.end_headers()
            self.wfile.write(self.server.body)
            return
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        chunks = batched(self.server.body, self.server.chunk_bytes)
        self.wfile.write(b"".join(b"%x\r\n%b\r\n" % (len(each), each) for each in chunks) + b"0\r\n\r\n")

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


def batched(body: bytes, size: int) -> list[bytes]:
    return [body[at : at + size] for at in range(0, len(body), size)]


@pytest.fixture
def site() -> Iterator[_Site]:
    """A running server."""
    generator.build()
    with _Site() as found:
        serving = threading.Thread(target=found.serve_forever)
        serving.start()
        yield found
        found.shutdown()
        serving.join(DEADLINE_S)


def load(site: _Site, folder: Path) -> dict[str, Any]:
    """Run the load for a moment."""
    (folder / "body").write_bytes(b'{"topic":"a"}')
    (folder / "tokens").write_text("one\ntwo\n")
    options = ["--port", str(site.server_port), "--path", "/publish", "--body", str(folder / "body")]
    options += ["--tokens", str(folder / "tokens"), "--connections", str(CONNECTIONS)]
    options += ["--warm", "0", "--measure", "1", "--at-least", "5"]
    done = subprocess.run([str(generator.BINARIES / "http"), *options], capture_output=True, timeout=DEADLINE_S, check=True)
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def test_connections_are_kept_and_every_good_answer_counts(site: _Site, tmp_path: Path) -> None:
    """Three connections with two tokens make many requests, all with the body, and no further connection."""
    answer = load(site, tmp_path)
    assert answer["answers"] == answer["microseconds"]["count"] >= 5 * CONNECTIONS
    assert (answer["errors"], answer["first_error"]) == (0, "")
    assert len(site.peers) == CONNECTIONS
    assert site.heard == {("/publish", f"Bearer {token}", b'{"topic":"a"}') for token in ("one", "two")}


def test_an_answer_in_chunks_is_one_answer(site: _Site, tmp_path: Path) -> None:
    """A server sends a long answer so when it does not count it first."""
    site.body, site.chunk_bytes = b'{"offset":10}' * 10, 7
    answer = load(site, tmp_path)
    assert answer["answers"] >= 5 * CONNECTIONS
    assert (answer["errors"], answer["first_error"]) == (0, "")
    assert len(site.peers) == CONNECTIONS


@pytest.mark.parametrize(
    ("status", "body"),
    [(503, b"{}"), (207, b'{"receipts":[]}'), (200, b'{"error":{"code":100}}')],
    ids=["status", "partly", "body"],
)
def test_what_was_refused_does_not_count_as_published(site: _Site, tmp_path: Path, status: int, body: bytes) -> None:
    """Neither a bad status, nor a batch of which a part was refused, nor a refusal that comes with 200."""
    site.status, site.body = status, body
    answer = load(site, tmp_path)
    assert answer["answers"] == 0
    assert answer["errors"] > 0
    assert str(status) in answer["first_error"]
