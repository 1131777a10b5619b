"""The last words of polling sessions, stored for the poll that may be on its way when a session ends.

An answer of 400 to that poll would lose the frames before the end, and socket.io-client would reconnect after a goodbye. The
store is bounded in time and in bytes. Without room for its words, a session is unknown to its next poll.
"""

from __future__ import annotations

from headgate.protocol.frames import Frame

from .timers import Deadlines

STORED_S = 5.0
MAX_BYTES = 4 * 1024 * 1024
# What an entry takes beyond its frames, about, so that empty goodbyes are bounded too.
ENTRY_BYTES = 512

# Frames, or the words about a session that ended without a goodbye.
LastWords = list[Frame] | str


class FinalFrames:
    """Last words by session id."""

    def __init__(self, deadlines: Deadlines) -> None:
        self._deadlines = deadlines
        self._words: dict[str, LastWords] = {}
        self._bytes = 0

    def store(self, sid: str, words: LastWords) -> None:
        """Store the last words of a session, if there is room."""
        size = _size(words)
        if self._bytes + size <= MAX_BYTES and sid not in self._words:
            self._words[sid] = words
            self._bytes += size
            self._deadlines.after(STORED_S, self.take, sid)

    def take(self, sid: str, *, by_poll: bool = True) -> LastWords | None:
        """Remove and return the last words of a session, if any. Frames are for a poll alone."""
        words = self._words.get(sid)
        if words is None or not (by_poll or isinstance(words, str)):
            return None
        self._bytes -= _size(words)
        return self._words.pop(sid)


def _size(words: LastWords) -> int:
    return ENTRY_BYTES + (0 if isinstance(words, str) else sum(len(frame.wire) for frame in words))
