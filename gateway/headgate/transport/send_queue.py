"""The bounded queue of frames of one connected browser. Only here may Headgate drop an event. No I/O.

There are two lanes. *Data* has events and is bounded in frames and in bytes. When `offer` refuses one, the caller follows its
overflow policy. *Control* has the handshake, pings, notices and acknowledgements. It goes out first and has a separate bound. A
client with a full control lane does not read, and is closed. Control waits only for the attachments of a packet already sent.

A frame belongs to an `owner`, one namespace on the connection. The owner's `sent` counts the frames sent. Each deque is made
when first needed, because most clients are idle and an empty deque takes 600 bytes.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol

from headgate.events.wire.frames import Frame

# A reading client needs far less. A burst of subscribes causes 128 acknowledgements of about 60 bytes.
MAX_CONTROL_FRAMES = 512
MAX_CONTROL_BYTES = 256 * 1024
# More than any queue holds.
ALL_BYTES = 1 << 62
HIGH_WATER = 0.75
LOW_WATER = 0.25


class FrameOwner(Protocol):
    """The owner of queued frames."""

    sent: int


class ClientQueue:
    """Frames that wait for one client. For every owner, offered = taken + discarded + waiting."""

    __slots__ = ("_control", "_data", "bytes", "control_bytes", "frames", "max_bytes", "max_frames")

    def __init__(self, max_frames: int, max_bytes: int) -> None:
        self.max_frames, self.max_bytes = max_frames, max_bytes
        self.frames = self.bytes = self.control_bytes = 0
        self._data: deque[tuple[Frame, FrameOwner | None]] | None = None
        self._control: deque[Frame] | None = None

    def __bool__(self) -> bool:
        return bool(self.frames or self.control_bytes)

    @property
    def level(self) -> float:
        """How full the data lane is, from 0 to 1, by frames or by bytes, whichever is more."""
        return max(self.frames / self.max_frames, self.bytes / self.max_bytes)

    @property
    def oldest_ms(self) -> int | None:
        """When the first waiting event was published; None if none waits."""
        return next((frame.time_ms for frame, _ in self._data or () if frame.time_ms), None)

    def offer(self, frame: Frame, owner: FrameOwner | None = None) -> bool:
        """Append to the data lane; return False when there is no room. An empty lane takes a frame of any size."""
        size = len(frame.wire)
        if self.frames and (self.frames >= self.max_frames or self.bytes + size > self.max_bytes):
            return False
        self.put(frame, owner)
        return True

    def put(self, frame: Frame, owner: FrameOwner | None = None) -> None:
        """Append to the data lane even if it is full. For the one notice that must keep its order among events."""
        if self._data is None:
            self._data = deque()
        self._data.append((frame, owner))
        self.frames += 1
        self.bytes += len(frame.wire)

    def offer_control(self, frame: Frame) -> bool:
        """Append to the control lane; return False if it is full, which means that the client has stopped reading."""
        if self._control is None:
            self._control = deque()
        size = len(frame.wire)
        if self._control and (len(self._control) >= MAX_CONTROL_FRAMES or self.control_bytes + size > MAX_CONTROL_BYTES):
            return False
        self._control.append(frame)
        self.control_bytes += size
        return True

    def take(self, max_bytes: int, *, data: bool = True) -> list[Frame]:
        """Remove and return the next frames, control first, up to `max_bytes` but at least one if any waits."""
        taken: list[Frame] = []
        size = 0
        if self._data and self._data[0][0].attachment:
            size = self._take_data(taken, size, max_bytes, attachments_only=True)
            if self._data and self._data[0][0].attachment:
                return taken
        while self._control:
            if taken and size + len(self._control[0].wire) > max_bytes:
                return taken
            frame = self._control.popleft()
            size += len(frame.wire)
            self.control_bytes -= len(frame.wire)
            taken.append(frame)
        self._control = None
        if data and self._data:
            self._take_data(taken, size, max_bytes, attachments_only=False)
        return taken

    def _take_data(self, taken: list[Frame], size: int, max_bytes: int, *, attachments_only: bool) -> int:
        while self._data:
            frame, owner = self._data[0]
            if attachments_only and not frame.attachment:
                return size
            if taken and size + len(frame.wire) > max_bytes:
                return size
            self._data.popleft()
            size += len(frame.wire)
            self.bytes -= len(frame.wire)
            self.frames -= 1
            if owner is not None:
                owner.sent += 1
            taken.append(frame)
        self._data = None
        return size

    def discard(self, owner: FrameOwner) -> list[Frame]:
        """Remove and return the data frames of one owner, in order."""
        if not self._data:
            return []
        removed = [frame for frame, whose in self._data if whose is owner]
        self._data = deque(entry for entry in self._data if entry[1] is not owner)
        self.frames -= len(removed)
        self.bytes -= sum(len(frame.wire) for frame in removed)
        return removed

    def withdraw(self, owner: FrameOwner, topic: str) -> int:
        """Remove the data frames of one owner and topic, to make way for a newer one; return how many there were."""
        if not self._data:
            return 0
        stale = [frame for frame, whose in self._data if whose is owner and frame.topic == topic]
        for frame in stale:
            if frame.tally is not None:
                frame.tally.queued -= 1
                frame.tally.conflated += 1
        if stale:
            self._data = deque(entry for entry in self._data if entry[1] is not owner or entry[0].topic != topic)
            self.frames -= len(stale)
            self.bytes -= sum(len(frame.wire) for frame in stale)
        return len(stale)

    def clear(self) -> None:
        """Drop everything, because the connection is gone."""
        for frame, _ in self._data or ():
            if frame.tally is not None:
                frame.tally.queued -= 1
                frame.tally.gone += 1
        self._control = self._data = None
        self.frames = self.bytes = self.control_bytes = 0
