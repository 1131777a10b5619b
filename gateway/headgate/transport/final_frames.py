"""Last words: what a polling session that has ended still had to say, kept for the one poll that may be on its way.

A session can end between two polls. To answer the next one with 400 would lose what was sent before the end, and tell the
browser of an error where there was a goodbye (socket.io-client would then reconnect). Bounded in time and in bytes; what
finds no room is not kept, and the poll is answered like any of an unknown session.
"""

from __future__ import annotations

from headgate.protocol.frames import Frame

from .timers import Deadlines

# A living browser's next poll is on its way already.
KEPT_S = 5.0
MAX_BYTES = 4 * 1024 * 1024
# What an entry costs beyond its frames, roughly: so that many empty goodbyes are bounded too.
ENTRY_BYTES = 512


class LastWords:
    """Frames by session id."""

    def __init__(self, deadlines: Deadlines) -> None:
        self._deadlines = deadlines
        self._frames: dict[str, list[Frame]] = {}
        self._bytes = 0

    def keep(self, sid: str, frames: list[Frame]) -> None:
        """Keep what a session still had to say, if there is room."""
        size = _size(frames)
        if self._bytes + size > MAX_BYTES or sid in self._frames:
            return
        self._frames[sid] = frames
        self._bytes += size
        self._deadlines.after(KEPT_S, self.take, sid)

    def take(self, sid: str) -> list[Frame] | None:
        """Return and forget what was kept; None when nothing was."""
        frames = self._frames.pop(sid, None)
        if frames is not None:
            self._bytes -= _size(frames)
        return frames


def _size(frames: list[Frame]) -> int:
    return ENTRY_BYTES + sum(len(frame.wire) for frame in frames)
