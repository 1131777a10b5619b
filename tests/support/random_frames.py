"""Random WebSocket frames for the fuzz tests (F17): valid ones, ones that RFC 6455 forbids, and too large ones.

500 in the test command; with HEADGATE_FUZZ=nightly a million.
"""

from __future__ import annotations

import os

from hypothesis import strategies as st

from tests.support.websocket_codec import masked

NIGHTLY = os.environ.get("HEADGATE_FUZZ") == "nightly"
SCALE = 100 if NIGHTLY else 1
PER_EXAMPLE = 20
EXAMPLES = (1_000_000 if NIGHTLY else 500) // PER_EXAMPLE
# The largest message, and the close codes of refused frames.
LIMIT = 500
CODES = {1002, 1007, 1008, 1009}

FRAMES = st.builds(
    masked,
    st.integers(0, 15),
    st.binary(max_size=40) | st.text(max_size=20) | st.sampled_from([b"x" * 126, b"x" * LIMIT, b"\x03\xe8", b"\xed\xa0\x80"]),
    fin=st.booleans(),
    reserved=st.sampled_from([0, 0, 0, 0, 1, 2, 4]),
    mask=st.sampled_from([True, True, True, True, False]),
)
