"""Bodies without an end, at a real gateway, where a caller has a bounded part of its memory, and no part of others."""

import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack

import jwt
import pytest

from headgate_server.api.shares import PER_CALLER
from headgate_server.api.v1.publishing import MAX_BATCH_BYTES
from tests.support.gateway_process import GatewayProcess, StartGateway

SECRET = "a-secret-of-forty-characters-27182818284"
WAIT_S = 60.0
BATCH = b'{"events": [{"topic": "orders.1", "data": 1}]}'
PATH = "/api/v1/events/batch"


@pytest.fixture
def gateway(start_gateway: StartGateway) -> GatewayProcess:
    """One that waits for bodies for as long as a slow machine may take."""
    return start_gateway({"HEADGATE_TOKEN_SECRET": SECRET, "HEADGATE_WRITE_DEADLINE_S": "300"})


@pytest.fixture
def opened() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


def begin(opened: ExitStack, gateway: GatewayProcess, user: str, path: str, size: int) -> tuple[socket.socket, str]:
    """Announce a body, and return the connection and the first line of the answer.

    `Expect` makes the gateway say when it waits for the body.
    """
    host, _, port = gateway.url.rpartition("/")[2].rpartition(":")
    token = jwt.encode({"sub": user, "exp": 2**31, "aud": "headgate", "subscribe": [], "publish": ["#"]}, SECRET)
    connection = opened.enter_context(socket.create_connection((host, int(port)), WAIT_S))
    head = [
        f"POST {path} HTTP/1.1",
        f"Host: {host}:{port}",
        f"Authorization: Bearer {token}",
        "Content-Type: application/json",
        f"Content-Length: {size}",
        "Expect: 100-continue",
    ]
    connection.sendall("\r\n".join([*head, "", ""]).encode())
    return connection, read_until(connection, b"\r\n").decode()


def read_until(connection: socket.socket, end: bytes) -> bytes:
    """Return the input, up to these bytes or the end."""
    received = b""
    while not received.endswith(end) and (piece := connection.recv(1)):
        received += piece
    return received.removesuffix(end)


def answer(connection: socket.socket) -> bytes:
    """Return the body of an answer, which says how long it is."""
    head = read_until(connection, b"\r\n\r\n").lower()
    left = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0])
    body = b""
    while len(body) < left and (piece := connection.recv(left - len(body))):
        body += piece
    return body


def test_one_caller_may_have_so_many_bodies_on_their_way(gateway: GatewayProcess, opened: ExitStack) -> None:
    """The next one is refused in plain words; another user's is not, nor a small one; one more is taken when one has come."""
    waiting = []
    for _ in range(PER_CALLER):
        connection, said = begin(opened, gateway, "ana", PATH, MAX_BATCH_BYTES)
        assert said == "HTTP/1.1 100 Continue"
        waiting.append(connection)

    refused, said = begin(opened, gateway, "ana", PATH, MAX_BATCH_BYTES)
    assert said.startswith("HTTP/1.1 429 ")
    told = json.loads(answer(refused))
    assert (told["code"], told["name"], told["limit"]) == ("limit_reached", "publish_body_bytes", PER_CALLER * MAX_BATCH_BYTES)
    assert told["retry_after_s"] == 1

    _, said = begin(opened, gateway, "ben", PATH, MAX_BATCH_BYTES)
    assert said == "HTTP/1.1 100 Continue"
    small, said = begin(opened, gateway, "ana", PATH, len(BATCH))  # comes in one read, so it is in no one's way
    assert said == "HTTP/1.1 100 Continue"
    small.sendall(BATCH)
    assert read_until(small, b"\r\n") == b""  # the end of the 100
    assert read_until(small, b"\r\n").startswith(b"HTTP/1.1 201 ")

    waiting[0].sendall(BATCH.ljust(MAX_BATCH_BYTES))
    assert read_until(waiting[0], b"\r\n") == b""
    assert read_until(waiting[0], b"\r\n").startswith(b"HTTP/1.1 201 ")
    _, said = begin(opened, gateway, "ana", PATH, MAX_BATCH_BYTES)
    assert said == "HTTP/1.1 100 Continue"
