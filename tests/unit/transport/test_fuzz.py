"""Random frames and packets (F17): every one is taken or refused with a code; nothing is uncaught, and nothing is left.

500 of each in the test command; with HEADGATE_FUZZ=nightly a million. tests/integration/transport/test_fuzz.py
sends frames to a real server.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from headgate.transport.frame_parser import Inbound, ProtocolViolation
from tests.support.random_frames import CODES, EXAMPLES, FRAMES, LIMIT, NIGHTLY, PER_EXAMPLE
from tests.support.socketio_application import Application, Browser, without_blocking

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=5) | st.sampled_from(["_placeholder", "num"]), inner, max_size=3)
    ),
    max_leaves=8,
)
NAMES = st.sampled_from(["message", "message-with-ack", "record", "leave", "connect", "disconnect", "*", "", "__proto__"])


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


@pytest.mark.timeout(36_000 if NIGHTLY else 900)
@settings(max_examples=EXAMPLES)
@given(st.lists(FRAMES, min_size=PER_EXAMPLE, max_size=PER_EXAMPLE), st.lists(st.integers(0, 500), max_size=6))
def test_random_frames_are_taken_or_refused(frames: list[bytes], cuts: list[int]) -> None:
    """Frames come in any order and in any pieces; the memory of a half message stays under the limit."""
    for start in range(0, PER_EXAMPLE, 4):
        stream, inbound = b"".join(frames[start : start + 4]), Inbound(LIMIT)
        edges = [0, *sorted(cut % (len(stream) + 1) for cut in cuts), len(stream)]
        violation: ProtocolViolation | None = None
        try:
            for begin, end in pairwise(edges):
                assert all(len(payload) <= LIMIT for _, payload in inbound.feed(stream[begin:end]))
        except ProtocolViolation as raised:
            violation = raised
        if violation is not None:
            assert violation.code in CODES
            assert 0 < len(violation.reason.encode()) <= 123


@pytest.fixture(scope="module")
def fuzzed() -> Iterator[Application]:
    with pytest.MonkeyPatch.context() as patch:
        without_blocking(patch)
        application = Application()
        yield application
        application.sio.eio.deadlines.close()


@pytest.mark.timeout(36_000 if NIGHTLY else 1800)
@settings(max_examples=EXAMPLES)
@given(sent=st.lists(packets(), min_size=PER_EXAMPLE, max_size=PER_EXAMPLE))
def test_random_packets_are_taken_or_refused(fuzzed: Application, sent: list[str | bytes]) -> None:
    """Each in a new session after its join. It lives, or it ended for a known reason; nothing is left of it."""
    with capture_logs() as logs:
        for packet in sent:
            browser = Browser(fuzzed)
            browser.join()
            browser.send(packet)
            assert browser.session.reason in (None, "parse error", "transport error", "client disconnect"), packet
            browser.go()
    fuzzed.seen.clear()
    fuzzed.ends.clear()

    assert [line for line in logs if line["log_level"] == "error"] == []
    assert not any(fuzzed.leftovers().values())
