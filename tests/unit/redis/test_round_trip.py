"""Commands as the bytes that Redis reads: each word with its own size."""

from __future__ import annotations

import pytest

from headgate.redis.connections import Command
from headgate.redis.round_trip import _pack

# Around the sizes whose text is made beforehand.
SIZES = (0, 1, 9, 10, 99, 100, 999, 1000, 1023, 1024, 1025, 65536)


def packed(*words: bytes) -> bytes:
    """Return a command as the protocol says it."""
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n" % len(word) + word + b"\r\n" for word in words)


@pytest.mark.parametrize("size", SIZES)
def test_words_of_any_size_are_packed_one_behind_the_other(size: int) -> None:
    """As the first, the last and a middle one behind the names of a command."""
    word = b"x" * size
    command: Command = ("FCALL", "function", 1, "key", word, "\r\n", word, "", word)
    pieces, count = _pack([command])
    assert count == 1
    assert b"".join(pieces) == packed(b"FCALL", b"function", b"1", b"key", word, b"\r\n", word, b"", word)


def test_a_size_is_that_of_the_bytes() -> None:
    """Of a text in UTF-8, of a number in its digits; the words of commands that are short end with their names."""
    commands: list[Command] = [("FCALL", "f", 1, "k", "é", 1024, "日本" * 200), ("WAIT", 1, 100), ("FCALL", "f", 1, "k")]
    pieces, count = _pack(commands)
    assert count == 3
    assert b"".join(pieces) == (
        packed(b"FCALL", b"f", b"1", b"k", "é".encode(), b"1024", ("日本" * 200).encode())
        + packed(b"WAIT", b"1", b"100")
        + packed(b"FCALL", b"f", b"1", b"k")
    )
