"""Random frames and packets (F17): every one is taken or refused with a code; nothing is uncaught, nobody else notices.

10⁴ in the test command; with HEADGATE_FUZZ=nightly a hundred times as many.
"""

from __future__ import annotations

import base64
import json
import os
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.transport.frame_parser import Inbound, ProtocolViolation
from tests.integration.transport.clients import WebSocket, closing
from tests.integration.transport.server_process import ServerProcess, StartServer
from tests.support.websocket_codec import masked

NIGHTLY = os.environ.get("HEADGATE_FUZZ") == "nightly"
SCALE = 100 if NIGHTLY else 1
PER_EXAMPLE = 20
CODES = {1002, 1007, 1008, 1009}
LIMIT = 500

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=5) | st.sampled_from(["_placeholder", "num"]), inner, max_size=3)
    ),
    max_leaves=8,
)
NAMES = st.sampled_from(["message", "message-with-ack", "record", "leave", "connect", "disconnect", "*", "", "__proto__"])
FRAMES = st.builds(
    masked,
    st.integers(0, 15),
    st.binary(max_size=40) | st.text(max_size=20) | st.sampled_from([b"x" * 126, b"x" * LIMIT, b"\x03\xe8", b"\xed\xa0\x80"]),
    fin=st.booleans(),
    reserved=st.sampled_from([0, 0, 0, 0, 1, 2, 4]),
    mask=st.sampled_from([True, True, True, True, False]),
)


@st.composite
def packets(draw: st.DrawFn) -> str | bytes:
    """A Socket.IO packet as text: valid, nearly valid, or noise; or an attachment."""
    shape = draw(st.integers(0, 9))
    if shape == 0:
        return draw(st.binary(max_size=20))
    if shape == 1:
        return "4" + draw(st.text(max_size=30))
    kind = draw(st.sampled_from("0123456789"))
    count = draw(st.sampled_from(["", "", "0-", "1-", "2-", "99-", "-1-", "²-", "9999999999-"])) if kind in "56" else ""
    namespace = draw(st.sampled_from(["", "", "", "/,", "/custom,", "/nowhere,", "/", "/?x=1,", ",,", "//"]))
    number = draw(st.sampled_from(["", "", "0", "7", "9" * 30, "9" * 5000, "-1", "٣"]))
    body = draw(st.none() | JSON | st.tuples(NAMES, JSON) | st.tuples(NAMES))
    text = "" if body is None else json.dumps(body)
    if draw(st.integers(0, 5)) == 0:
        text = text[: draw(st.integers(0, len(text)))] + draw(st.sampled_from(["", "]", "[" * 2000, "\x00", "\x1e"]))
    return "4" + kind + count + namespace + number + text


@pytest.fixture(scope="module")
def server(start_shared_server: StartServer) -> ServerProcess:
    """A server without a rate limit to speak of; its traceback-free standard error is checked at the end."""
    return start_shared_server(inbound_per_s=1e9, inbound_burst=10**9, max_message_bytes=LIMIT)


@pytest.mark.timeout(36_000 if NIGHTLY else 900)
@settings(max_examples=10_000 // PER_EXAMPLE * SCALE)
@given(st.lists(FRAMES, min_size=PER_EXAMPLE, max_size=PER_EXAMPLE), st.lists(st.integers(0, 500), max_size=6))
def test_frames_are_taken_or_refused(frames: list[bytes], cuts: list[int]) -> None:
    """Whatever their order and however they arrive; memory of a half message stays under the limit."""
    for start in range(0, PER_EXAMPLE, 4):
        stream = b"".join(frames[start : start + 4])
        edges = [0, *sorted(cut % (len(stream) + 1) for cut in cuts), len(stream)]
        sizes, violation = outcome([stream[begin:end] for begin, end in pairwise(edges)])
        assert all(size <= LIMIT for size in sizes)
        if violation is not None:
            assert violation.code in CODES
            assert 0 < len(violation.reason.encode()) <= 123


def outcome(pieces: list[bytes]) -> tuple[list[int], ProtocolViolation | None]:
    """Return the sizes of what was delivered, and the fault that ended it."""
    inbound, sizes = Inbound(LIMIT), []
    try:
        for piece in pieces:
            sizes += [len(payload) for _, payload in inbound.feed(piece)]
    except ProtocolViolation as violation:
        return sizes, violation
    return sizes, None


@pytest.mark.timeout(36_000 if NIGHTLY else 1800)
@settings(max_examples=10_000 // PER_EXAMPLE * SCALE)
@given(sent=st.lists(packets(), min_size=PER_EXAMPLE, max_size=PER_EXAMPLE))
def test_packets_are_taken_or_refused(server: ServerProcess, sent: list[str | bytes]) -> None:
    """Each in a session of its own that has joined: it lives, or it ended for a reason that we know."""
    encoded = [{"text": each} if isinstance(each, str) else {"binary": base64.b64encode(each).decode()} for each in sent]

    outcomes: list[Any] = server.debug("packets", packets=encoded)

    assert len(outcomes) == PER_EXAMPLE
    assert {outcome for outcome in outcomes if outcome is not None} <= {"parse error", "transport error", "client disconnect"}


@pytest.mark.timeout(36_000 if NIGHTLY else 900)
@settings(max_examples=200 * SCALE)
@given(frames=st.lists(FRAMES, min_size=1, max_size=10))
def test_a_real_connection_survives_or_is_closed(server: ServerProcess, frames: list[bytes]) -> None:
    """Frames to a real server, then a last one that must be answered unless the connection was closed with a code."""
    client = WebSocket(server.port)
    with closing(client):
        client.send("40")
        client.sock.sendall(b"".join(frames) + masked(8, b"\x03\xe8"))

        closed = client.end()

    assert closed.code in CODES | {1000, None}


def test_the_server_is_as_before(server: ServerProcess) -> None:
    """After all of that: no session, no half packet, no watcher is left, and a client is served."""
    left = ("sessions", "wires", "environs", "half_binary", "inbox")
    server.until(lambda state: not any(state[name] for name in left), "the end of all sessions")
    client = WebSocket(server.port)
    with closing(client):
        client.join()
        client.send('421["message-with-ack","alive"]')
        assert client.text() == '431["alive"]'
