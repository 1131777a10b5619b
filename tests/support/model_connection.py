"""A model of one session: a socket that takes as many bytes as it has room for, and a poll at any time. No I/O.

In: calls of a client (delivery/client.py has the contract). Out: whole frames, to the browser. The queue is the real one.
`holds` and `corks` are counted, so that a test can compare them with the states of the clients.
"""

from collections.abc import Callable, Sequence
from typing import Any

from headgate.delivery.client import Client
from headgate.events.wire.frames import Frame
from headgate.transport.send_queue import LOW_WATER, ClientQueue
from tests.support.socket_record import SocketRecord
from tests.support.websocket_codec import TEXT, frames_in

# One write's worth of the waiting frames; a few frames here.
JOIN_BYTES = 400


class ModelConnection:
    """See the module. `room` bytes go through before the socket blocks; a polling session has no socket at all.

    Once it `breaks`, the next write finds the socket broken. `record` has the socket's bytes.
    """

    def __init__(self, browser: Callable[[bytes], None], frames: int, size: int, record: SocketRecord, *, polling: bool) -> None:
        self.queue = ClientQueue(frames, size)
        self.owners: list[Client] = []
        self.wire: Any = None if polling else self
        self.ready = self.awaits_drain = self.closed = False
        self.room = 0
        self.breaks = False
        self._record = record
        self.holds = self.corks = 0
        self._browser = browser
        self._unparsed = b""
        self._rest = b""  # of a frame that the socket has cut
        self.writing = self._pumping = False

    # -- the contract ---------------------------------------------------------------------------------------------

    @property
    def idle(self) -> bool:
        return not self.closed and not self.queue and not self.awaits_drain and not self.writing

    def offer(self, frame: Frame, owner: Client | None = None) -> bool:
        if self.closed:
            return True
        if not self.queue.offer(frame, owner):
            return False
        self.flush()
        return True

    def offer_control(self, frame: Frame) -> None:
        if not self.closed:
            assert self.queue.offer_control(frame), "a history is too short to fill the control lane"
            self.flush()

    def stream(self, frames: Sequence[Frame], owner: Client) -> int:
        if self.closed:
            return len(frames)
        accepted = 0
        if self.wire is not None and not self.writing and not self.queue and not self.corks:
            data = b"".join([frame.wire for frame in frames])
            try:
                sent = self._send(data)
            except OSError as error:
                self.lose(error)
                return len(frames)
            accepted = len(frames) if sent == len(data) else self.written_in_part(frames, sent)
            owner.direct += accepted
            self._record.streamed(frames[:accepted], to_socket=True)
        for frame in frames[accepted:]:
            if not self.queue.offer(frame, owner):
                break
            accepted += 1
            owner.offered += 1
            self._record.streamed((frame,), to_socket=False)
        if self.queue:
            self.flush()
        return accepted

    def written_in_part(self, frames: Sequence[Frame], sent: int) -> int:
        self.ready = False
        self.writing = True
        for index, frame in enumerate(frames):
            if sent < len(frame.wire):
                self._rest = frame.wire[sent:] if sent else b""
                return index + bool(sent)
            sent -= len(frame.wire)
        raise AssertionError("nothing was cut")

    def flush(self) -> None:
        if self.wire is not None and not self.writing and not self._pumping and not self.closed:
            self._pump()

    def hold_direct(self, is_held: bool) -> None:
        assert is_held or self.holds, "released, and not held"
        self.holds += 1 if is_held else -1
        if is_held:
            self.ready = False
        elif not self.holds:
            self.flush()

    def lose(self, error: OSError) -> None:
        assert self.breaks, "this socket blocks, and is not broken"
        self.close()

    def end(self, reason: str) -> None:
        self.close()

    # -- for the fan-out, as `wire` -------------------------------------------------------------------------------

    def send(self, data: bytes) -> int:
        assert self.ready, "written past a queue, a cork or a hold"
        if not self.room and not self.breaks:
            raise BlockingIOError
        sent = self._send(data)
        self._record.wrote(data, sent)
        return sent

    # -- its events ---------------------------------------------------------------------------------------------

    def cork(self) -> None:
        self.corks += 1
        self.ready = False

    def uncork(self) -> None:
        self.corks -= 1
        self.flush()

    def make_room(self, size: int) -> None:
        """The browser reads so many bytes; a poll takes whatever waits."""
        if self.closed:
            return
        if self.wire is None:
            while (self.queue.control_bytes if self.corks else self.queue) or (
                self.awaits_drain and self.queue.level <= LOW_WATER
            ):
                self._receive(self._next_chunk())
            return
        self.room += size
        self._pump()

    def close(self) -> None:
        self.closed = True
        self.ready = self.writing = False
        self._rest = b""
        self.queue.clear()

    def _pump(self) -> None:
        self._pumping = True
        try:
            while data := self._rest or self._next_chunk():
                try:
                    sent = self._send(data)
                except OSError as error:
                    self.lose(error)
                    return
                self._rest = data[sent:]
                self.writing = bool(self._rest)
                if self.writing:
                    return
            self.writing = False
            self.ready = not self.queue and not self.corks and not self.holds
        finally:
            self._pumping = False

    def _next_chunk(self) -> bytes:
        self.ready = False
        frames = self.queue.take(JOIN_BYTES, data=not self.corks)
        self._record.took(frames)
        if self.awaits_drain and self.queue.level <= LOW_WATER:
            self.awaits_drain = False
            for owner in tuple(self.owners):
                owner.drained()
            if not frames:
                frames = self.queue.take(JOIN_BYTES, data=not self.corks)
                self._record.took(frames)
        return b"".join([frame.wire for frame in frames])

    def _send(self, data: bytes) -> int:
        if self.breaks:
            raise ConnectionResetError
        sent = min(self.room, len(data))
        self.room -= sent
        if sent:
            self._receive(data[:sent])
        return sent

    def _receive(self, data: bytes) -> None:
        """Hand over whole frames."""
        frames, self._unparsed = frames_in(self._unparsed + data)
        for opcode, packet in frames:
            assert opcode == TEXT
            self._browser(packet)
