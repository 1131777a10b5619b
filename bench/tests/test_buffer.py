"""The byte buffer of the load generator: what goes in comes out, and a long content is not moved for each append."""

from __future__ import annotations

import ctypes
import random

import pytest

from bench.tests.compiled import compiled


class Buffer(ctypes.Structure):
    """`struct buffer`."""

    _fields_ = (
        ("bytes", ctypes.c_void_p),
        ("start", ctypes.c_size_t),
        ("length", ctypes.c_size_t),
        ("room", ctypes.c_size_t),
        ("limit", ctypes.c_size_t),
    )

    def content(self) -> bytes:
        return ctypes.string_at(self.bytes + self.start, self.length) if self.length else b""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """The buffer's functions."""
    found = compiled("buffer", tmp_path_factory.mktemp("buffer"))
    found.buffer_append.restype = ctypes.c_bool
    return found


def test_what_is_appended_is_consumed_in_order(library: ctypes.CDLL) -> None:
    """After any appends and consumptions the content is what was appended and not consumed."""
    draw = random.Random(1)
    buffer, model = Buffer(limit=4096), b""
    for _ in range(20_000):
        piece = draw.randbytes(draw.randrange(200))
        if library.buffer_append(ctypes.byref(buffer), piece, ctypes.c_size_t(len(piece))):
            model += piece
        else:
            assert len(model) + len(piece) > 4096
        taken = draw.randrange(min(len(model), 220) + 1)
        library.buffer_consume(ctypes.byref(buffer), ctypes.c_size_t(taken))
        model = model[taken:]
        assert buffer.content() == model
    library.buffer_free(ctypes.byref(buffer))


def test_a_long_content_is_seldom_moved(library: ctypes.CDLL) -> None:
    """A queue of 4 MiB that loses and gets 1 KiB 100,000 times is moved once for each time that it was consumed as a whole.

    Moving it for each append took half of a core from Redis, and the load then reported it as too slow.
    """
    buffer, piece = Buffer(), bytes(1024)
    for _ in range(4096):
        library.buffer_append(ctypes.byref(buffer), piece, ctypes.c_size_t(len(piece)))
    moves = 0
    for _ in range(100_000):
        library.buffer_consume(ctypes.byref(buffer), ctypes.c_size_t(len(piece)))
        before = buffer.start
        library.buffer_append(ctypes.byref(buffer), piece, ctypes.c_size_t(len(piece)))
        moves += buffer.start < before
    library.buffer_free(ctypes.byref(buffer))
    assert moves <= 100_000 // 4096
