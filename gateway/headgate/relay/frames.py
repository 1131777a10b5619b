"""The frames of a link: one byte for the kind, four for the stream, four for the length, and that many bytes. No I/O."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple

_HEAD = struct.Struct("!BII")
MAX_PAYLOAD_BYTES = 16384
MAX_STREAM = 2**32 - 1


class Kind(Enum):
    """The kind of a frame. Those without a stream have stream 0."""

    OPEN = 1
    TAKEN = 2
    DATA = 3
    CREDIT = 4
    END = 5
    RESET = 6
    PING = 7
    PONG = 8


_KINDS = {kind.value: kind for kind in Kind}


class LinkViolation(Exception):
    """The peer does not keep to the protocol, or is silent: the link is over."""


class Frame(NamedTuple):
    """One frame."""

    kind: Kind
    stream: int
    payload: bytes = b""

    def to_bytes(self) -> bytes:
        """Return it as it travels."""
        return _HEAD.pack(self.kind.value, self.stream, len(self.payload)) + self.payload


class Reader:
    """Reads frames from bytes as they come. Keeps less than one frame."""

    def __init__(self) -> None:
        self._received = bytearray()

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Yield the frames that are complete.

        Raises:
            LinkViolation: an unknown kind, or a payload that is too long.
        """
        self._received += data
        at = 0
        try:
            while len(self._received) - at >= _HEAD.size:
                number, stream, size = _HEAD.unpack_from(self._received, at)
                kind = _KINDS.get(number)
                if kind is None or size > MAX_PAYLOAD_BYTES:
                    raise LinkViolation("not a frame")
                end = at + _HEAD.size + size
                if end > len(self._received):
                    break
                payload = bytes(self._received[at + _HEAD.size : end])
                at = end
                yield Frame(kind, stream, payload)
        finally:
            del self._received[:at]
