"""Random frames and packets (F17): every one is taken or refused with a code; nothing is uncaught, and nothing is left.

2,000 of each in the test command; with FUZZ=nightly a million.
"""

import json
import math
import random
from collections.abc import Iterator
from itertools import pairwise

import pytest
from structlog.testing import capture_logs

from tests.support.random_frames import CODES, COUNT, LIMIT, NIGHTLY, SEED, random_frame, random_text
from tests.support.socketio_application import Application, Browser, without_blocking

# Packets between two looks at what is left of their sessions.
PER_LOOK = 100
NAMES = ("message", "message-with-ack", "record", "leave", "connect", "disconnect", "*", "", "__proto__")
COUNTS = ("", "", "0-", "1-", "2-", "99-", "-1-", "²-", "9999999999-")
NAMESPACES = ("", "", "", "/,", "/custom,", "/nowhere,", "/", "/?x=1,", ",,", "//")
NUMBERS = ("", "", "0", "7", "9" * 30, "9" * 5000, "-1", "٣")
NUMBERS_IN_JSON = (0, -1, 2**60, -(2**60), 0.5, -1e308, math.nan, math.inf)


def random_json(source: random.Random, depth: int = 0) -> object:
    """Return any JSON, also what only Python's decoder takes for it."""
    kind = source.randint(0, 3 if depth == 3 else 5)
    if kind < 4:
        return (None, source.random() < 0.5, source.choice(NUMBERS_IN_JSON), random_text(source, 8))[kind]
    values = [random_json(source, depth + 1) for _ in range(source.randint(0, 3))]
    if kind == 4:
        return values
    return {source.choice(("_placeholder", "num", random_text(source, 5))): value for value in values}


def random_packet(source: random.Random) -> str | bytes:
    """Return a Socket.IO packet as text: valid, nearly valid, or noise; or an attachment."""
    shape = source.randint(0, 9)
    if shape == 0:
        return source.randbytes(source.randint(0, 20))
    if shape == 1:
        return "4" + random_text(source, 30)
    kind = source.choice("0123456789")
    count = source.choice(COUNTS) if kind in "56" else ""
    bodies = (None, random_json(source), [source.choice(NAMES), random_json(source)], [source.choice(NAMES)])
    body = source.choice(bodies)
    text = "" if body is None else json.dumps(body)
    if source.random() < 1 / 6:
        text = text[: source.randint(0, len(text))] + source.choice(("", "]", "[" * 2000, "\x00", "\x1e"))
    return "4" + kind + count + source.choice(NAMESPACES) + source.choice(NUMBERS) + text


@pytest.fixture(scope="module")
def fuzzed() -> Iterator[Application]:
    with pytest.MonkeyPatch.context() as patch:
        without_blocking(patch)
        application = Application(limits={"max_message_bytes": LIMIT})
        yield application
        application.sio.eio.deadlines.close()


@pytest.mark.timeout(36_000 if NIGHTLY else 900)
def test_random_frames_are_taken_or_refused(fuzzed: Application) -> None:
    """In any order and in any pieces. The connection stays or is closed with a code and a reason; nothing is left of it."""
    source = random.Random(SEED)
    for number in range(COUNT // 4):
        stream = b"".join(random_frame(source) for _ in range(4))
        cuts = sorted(source.randint(0, len(stream)) for _ in range(source.randint(0, 6)))
        browser = Browser(fuzzed, websocket=True)
        browser.join()
        for begin, end in pairwise([0, *cuts, len(stream)]):
            browser.pour(stream[begin:end])
        browser.received()
        if browser.closed is not None:
            code, reason = browser.closed
            assert code in CODES | {1000}, (SEED, number)
            assert code == 1000 or 0 < len(reason.encode()) <= 123, (SEED, number)
        browser.go()
    assert not any(fuzzed.leftovers().values())


@pytest.mark.timeout(36_000 if NIGHTLY else 900)
def test_random_packets_are_taken_or_refused(fuzzed: Application) -> None:
    """Each in a new session after its join. It lives, or it ended for a known reason; nothing is left of it."""
    source = random.Random(SEED)
    for _ in range(COUNT // PER_LOOK):
        with capture_logs() as logs:
            for _ in range(PER_LOOK):
                packet = random_packet(source)
                browser = Browser(fuzzed)
                browser.join()
                browser.send(packet)
                assert browser.session.reason in (None, "parse error", "transport error", "client disconnect"), packet
                browser.go()
        fuzzed.seen.clear()
        fuzzed.ends.clear()

        assert [line for line in logs if line["log_level"] == "error"] == []
        assert not any(fuzzed.leftovers().values())
