"""The final frames of polling sessions: stored for the one poll that may be on its way when a session ends.

A session can end between two polls. An answer of 400 to the next one would lose the frames that were sent before the end, and
tell the browser of an error where there was a goodbye (socket.io-client would then reconnect). Bounded in time and in bytes;
frames that find no room are not stored, and the poll is answered like that of an unknown session.
"""

from __future__ import annotations

from headgate.protocol.frames import Frame

from .timers import Deadlines

# A living browser's next poll is on its way already.
STORED_S = 5.0
MAX_BYTES = 4 * 1024 * 1024
# An entry's cost beyond its frames, roughly: so that many empty goodbyes are bounded too.
ENTRY_BYTES = 512


class FinalFrames:
    """Frames by session id; for a session that had no goodbye, the reason."""

    def __init__(self, deadlines: Deadlines) -> None:
        self._deadlines = deadlines
        self._frames: dict[str, list[Frame]] = {}
        self._reasons: dict[str, str] = {}
        self._bytes = 0

    def store(self, sid: str, frames: list[Frame]) -> None:
        """Store the final frames of a session, if there is room."""
        size = _size(frames)
        if self._bytes + size > MAX_BYTES or sid in self._frames:
            return
        self._frames[sid] = frames
        self._bytes += size
        self._deadlines.after(STORED_S, self.take, sid)

    def store_reason(self, sid: str, told: str) -> None:
        """Store the words for a browser whose session has ended without a goodbye, if there is room."""
        if self._bytes + ENTRY_BYTES <= MAX_BYTES and sid not in self._reasons:
            self._reasons[sid] = told
            self._bytes += ENTRY_BYTES
            self._deadlines.after(STORED_S, self.take_reason, sid)

    def take_reason(self, sid: str) -> str | None:
        """Remove and return why a session has ended; None when nothing is stored."""
        told = self._reasons.pop(sid, None)
        if told is not None:
            self._bytes -= ENTRY_BYTES
        return told

    def take(self, sid: str) -> list[Frame] | None:
        """Remove and return the final frames of a session; None when none are stored."""
        frames = self._frames.pop(sid, None)
        if frames is not None:
            self._bytes -= _size(frames)
        return frames


def _size(frames: list[Frame]) -> int:
    return ENTRY_BYTES + sum(len(frame.wire) for frame in frames)
