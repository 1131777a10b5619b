"""Random WebSocket frames for the fuzz tests (F17): valid ones, ones that RFC 6455 forbids, and too large ones.

2,000 in the test command, the same each time; with FUZZ=nightly a million others.
"""

import os
import random

from tests.support.websocket_codec import masked

NIGHTLY = os.environ.get("FUZZ") == "nightly"
SCALE = 500 if NIGHTLY else 1
COUNT = 2_000 * SCALE
SEED = random.randrange(1 << 32) if NIGHTLY else 17
# The largest message, and the close codes of refused frames.
LIMIT = 500
CODES = {1002, 1007, 1008, 1009}

_FIXED = (b"x" * 126, b"x" * LIMIT, b"\x03\xe8", b"\xed\xa0\x80")


def random_text(source: random.Random, most: int) -> str:
    """Return up to `most` characters of any kind."""
    ranges = ((0x20, 0x7E), (0x20, 0x7E), (0, 0x1F), (0xA0, 0xD7FF), (0xE000, 0x10FFFF))
    return "".join(chr(source.randint(*source.choice(ranges))) for _ in range(source.randint(0, most)))


def random_frame(source: random.Random) -> bytes:
    """Return a frame, mostly a masked one without reserved bits."""
    payload = source.choice((source.randbytes(source.randint(0, 40)), random_text(source, 20), source.choice(_FIXED)))
    reserved, mask = source.choice((0, 0, 0, 0, 1, 2, 4)), source.random() < 0.8
    return masked(source.randint(0, 15), payload, fin=source.random() < 0.5, reserved=reserved, mask=mask)
