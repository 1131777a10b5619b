"""A connection in memory with another end that follows a script on a separate clock: no I/O, and no time but the script's."""

from collections.abc import Iterable, Iterator

from tests.support.held_clock import HeldClock


class ScriptedSocket:
    """The part of a socket that http_exchange.py uses.

    Args:
        clock: moves while the other end is waited for.
        script: bytes that come in, seconds until the next of them, or an error; after the last one the stream ends.
        reads: how many bytes the other end takes; it never takes more.
        broken: it closes the stream then.
    """

    def __init__(
        self,
        clock: HeldClock,
        script: Iterable[bytes | float | OSError] = (),
        reads: float = float("inf"),
        broken: bool = False,
    ) -> None:
        self.sent = bytearray()
        self.closed = False
        self._clock, self._reads, self._broken = clock, reads, broken
        self._script: Iterator[bytes | float | OSError] = iter(script)
        self._incoming = b""
        self._wait_s = 0.0
        self._timeout_s = 0.0

    def settimeout(self, timeout_s: float) -> None:
        """As socket.settimeout; every call that may wait must have a positive one."""
        assert timeout_s > 0
        self._timeout_s = timeout_s

    def setsockopt(self, *option: int) -> None:
        """As socket.setsockopt; does nothing."""

    def send(self, data: memoryview) -> int:
        """Take as much as the other end reads; wait for nothing if it does not read more."""
        room = self._reads - len(self.sent)
        if room <= 0 and self._broken:
            raise BrokenPipeError
        if room <= 0:
            self._pass(self._timeout_s)
            raise TimeoutError
        taken = bytes(data[: int(min(room, len(data)))])
        self.sent += taken
        return len(taken)

    def recv(self, most: int) -> bytes:
        """Return the next bytes of the script, b"" at its end; wait as it says."""
        while not self._incoming:
            if self._wait_s:
                if self._wait_s >= self._timeout_s:
                    self._wait_s -= self._timeout_s
                    self._pass(self._timeout_s)
                    raise TimeoutError
                self._pass(self._wait_s)
                self._wait_s = 0.0
            match next(self._script, b""):
                case OSError() as error:
                    raise error
                case float() as seconds:
                    self._wait_s = seconds
                case b"":
                    return b""
                case bytes() as data:
                    self._incoming = data
        data, self._incoming = self._incoming[:most], self._incoming[most:]
        return data

    def close(self) -> None:
        self.closed = True

    def _pass(self, seconds: float) -> None:
        self._clock.now_s += seconds
