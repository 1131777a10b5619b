"""`wsgi.input`: the body of one HTTP request, as the application reads it (PEP 3333). No I/O of its own.

In: pieces of the body, from the connection, which waits for them. Out: bytes and lines. It ends where the body ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator


class RequestBody:
    """See the module. `next_piece` returns nothing at the end, and may wait and raise OSError."""

    __slots__ = ("_held", "_is_over", "_next_piece")

    def __init__(self, next_piece: Callable[[], bytes]) -> None:
        self._next_piece = next_piece
        self._held = b""
        self._is_over = False

    def read(self, size: int | None = None) -> bytes:
        """Return so many bytes, or all that are left; fewer only at the end. Switches greenlets.

        Raises:
            OSError: the body did not come whole, or in time.
        """
        if size is None or size < 0:
            return self._take(None)
        pieces, missing = [self._held], size - len(self._held)
        while missing > 0 and (piece := self._more()):
            pieces.append(piece)
            missing -= len(piece)
        self._held = b"".join(pieces) if len(pieces) > 1 else self._held
        return self._take(size)

    def readline(self, size: int | None = None) -> bytes:
        """Return the next line, or so many bytes of it. Switches greenlets. Raises as `read`."""
        most = None if size is None or size < 0 else size
        pieces, length = [self._held], len(self._held)
        while b"\n" not in pieces[-1] and (most is None or length < most) and (piece := self._more()):
            pieces.append(piece)
            length += len(piece)
        self._held = b"".join(pieces)
        end = self._held.find(b"\n") + 1 or length
        return self._take(end if most is None else min(end, most))

    def readlines(self, hint: int | None = None) -> list[bytes]:
        """Return the lines, or the next ones of about `hint` bytes in all. Switches greenlets. Raises as `read`."""
        lines, size = list[bytes](), 0
        for line in self:
            lines.append(line)
            size += len(line)
            if hint and hint > 0 and size >= hint:
                break
        return lines

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.readline, b"")

    def _more(self) -> bytes:
        piece = b"" if self._is_over else self._next_piece()
        self._is_over = not piece
        return piece

    def _take(self, size: int | None) -> bytes:
        if size is None:
            pieces = [self._held]
            while piece := self._more():
                pieces.append(piece)
            self._held = b""
            return b"".join(pieces)
        taken, self._held = self._held[:size], self._held[size:]
        return taken
