"""Standard output and error of a serving process. A write never blocks the event loop and never raises.

In: any text written to `sys.stdout` or `sys.stderr`, such as log lines, `print`, and tracebacks of gevent and threads. Out: the
same text on the descriptor, written by one thread of the operating system per stream.

Without this, a write to a pipe without a reader blocks after 64 KiB on Linux, a write to a stopped terminal (Ctrl-S) blocks at
once, a full disk refuses it, and a remote disk may stall it. MAX_QUEUED_BYTES bounds the waiting text of each stream. Lines
beyond it, and lines that the descriptor refused, are dropped and counted. A line reports them as soon as the stream accepts
text again.
"""

from __future__ import annotations

import atexit
import io
import os
import sys
from _queue import Empty, SimpleQueue
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from select import PIPE_BUF
from time import monotonic
from typing import Any, TypeAlias

from headgate.runtime.metrics import OUTPUT_LINES_DROPPED

from . import operator_lines

MAX_QUEUED_BYTES = 1 << 20
# A line without an end is written in parts of this size.
MAX_PART_BYTES = 1 << 16
# The time for waiting lines when the process ends. A log without a reader must not keep it from ending.
DRAIN_S = 1.0
# The pause before another attempt on a descriptor that another process has set to non-blocking.
BUSY_PAUSE_S = 0.05

# Lines, or an entry that is answered when everything before it is written.
_Queued: TypeAlias = "bytes | SimpleQueue[None]"


def never_block() -> None:
    """Make writes to `sys.stdout` and `sys.stderr` return at once from now on. Idempotent.

    Call it before anything, such as a handler of `logging`, keeps a reference to either. It also applies in forked children. It
    does not change a replaced stream, such as a test's.
    """
    for descriptor, name in ((1, "stdout"), (2, "stderr")):
        if _leads_to(getattr(sys, name), descriptor):
            setattr(sys, name, QueuedStream(descriptor, name))
    atexit.unregister(drain)
    atexit.register(drain)


def drain(within_s: float = DRAIN_S) -> None:
    """Wait until all text so far is written, at most `within_s` seconds in all. Blocks the loop."""
    until_s = monotonic() + within_s
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, QueuedStream):
            stream.drain(max(0.0, until_s - monotonic()))


class QueuedStream(io.TextIOBase):
    """A text stream whose `write` returns at once. Any thread or greenlet may write. The lines of one write stay together.

    Args:
        descriptor: the destination, in UTF-8. It stays open.
        name: of the stream, for the metric.
    """

    encoding = "utf-8"
    errors = "backslashreplace"

    def __init__(self, descriptor: int, name: str) -> None:
        self._descriptor = descriptor
        self._full, self._failed = (OUTPUT_LINES_DROPPED.of(f"{name}_{reason}") for reason in ("full", "failed"))
        self.buffer = _Bytes(self)
        self._begin()
        os.register_at_fork(after_in_child=self._begin)

    def _begin(self) -> None:
        """Reset to an empty queue. A forked child has no thread yet, and its parent writes the waiting text."""
        self._lock: Any = _native("_thread", "RLock")()
        self._queue: SimpleQueue[_Queued] = SimpleQueue()
        self._part = bytearray()
        self._queued_bytes = self._dropped = 0
        self._has_thread = False

    def write(self, text: str) -> int:
        """Queue text and return its length. A part without a line end waits for its end or for `flush`."""
        self.write_bytes(text.encode(self.encoding, self.errors))
        return len(text)

    def write_bytes(self, data: bytes) -> None:
        """Queue bytes, as `write` does."""
        with self._lock:
            self._part += data
            end = len(self._part) if len(self._part) > MAX_PART_BYTES else self._part.rfind(b"\n") + 1
            if end:
                self._put(bytes(self._part[:end]))
                del self._part[:end]

    def flush(self) -> None:
        """Queue the part without a line end. Does not wait."""
        with self._lock:
            if self._part:
                self._put(bytes(self._part))
                self._part.clear()

    def drain(self, within_s: float) -> bool:
        """Wait, blocking, until everything is written, at most `within_s` seconds; return whether it is."""
        self.flush()
        if not self._has_thread:  # nothing is queued, or the system has had no thread for it
            while not self._queue.empty():
                data = self._queue.get()
                if isinstance(data, bytes):
                    self._write(data, _native("time", "sleep"))
            return True
        written: SimpleQueue[None] = SimpleQueue()
        self._queue.put(written)
        try:
            written.get(timeout=within_s)
        except Empty:
            return False
        return True

    def writable(self) -> bool:
        """Return True."""
        return True

    def isatty(self) -> bool:
        """Return whether the descriptor is a terminal."""
        return os.isatty(self._descriptor)

    def fileno(self) -> int:
        """Return the descriptor."""
        return self._descriptor

    # -- private ------------------------------------------------------------------------------------------------------

    def _put(self, data: bytes) -> None:
        if self._queued_bytes + len(data) > MAX_QUEUED_BYTES:
            lines = data.count(b"\n") or 1
            self._dropped += lines
            self._full.total += lines
            return
        self._queued_bytes += len(data)
        self._queue.put(data)
        if not self._has_thread:
            with suppress(RuntimeError):  # the system has no more threads, so the next write tries again
                _native("_thread", "start_new_thread")(self._run, (self._queue,))
                self._has_thread = True

    def _run(self, queue: SimpleQueue[_Queued]) -> None:
        sleep: Callable[[float], None] = _native("time", "sleep")
        following: _Queued | None = None
        while True:
            first = queue.get() if following is None else following
            if isinstance(first, bytes):
                data, following = _batch(first, queue)
                failed = self._write(data, sleep)
                with self._lock:
                    self._queued_bytes -= len(data)
                    self._dropped += failed
            else:
                following = None
                failed = 0
            # Lines may have come while it was written. They were queued before others were dropped.
            is_last = queue.empty() if following is None else not isinstance(following, bytes)
            if self._dropped and not failed and is_last:
                self._report(sleep)
            if not isinstance(first, bytes):
                first.put(None)

    def _report(self, sleep: Callable[[float], None]) -> None:
        dropped = self._dropped
        text = f"{dropped} line(s) before this one were dropped: this output was not read in time, or could not be written"
        if not self._write(operator_lines.text("warning", text).encode(), sleep):
            with self._lock:
                self._dropped -= dropped

    def _write(self, data: bytes, sleep: Callable[[float], None]) -> int:
        """Write everything; return the number of refused lines."""
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[os.write(self._descriptor, rest) :]
            except BlockingIOError:
                sleep(BUSY_PAUSE_S)
            except OSError:
                lines = bytes(rest).count(b"\n") or 1
                self._failed.total += lines
                return lines
        return 0


class _Bytes(io.RawIOBase):
    """The `buffer` of a stream, for writers of bytes."""

    def __init__(self, stream: QueuedStream) -> None:
        self._stream = stream

    def write(self, data: Any) -> int:
        self._stream.write_bytes(bytes(data))
        return len(data)

    def writable(self) -> bool:
        return True

    def flush(self) -> None:
        self._stream.flush()


def _batch(first: bytes, queue: SimpleQueue[_Queued]) -> tuple[bytes, _Queued | None]:
    """Return the bytes for one call, and the entry taken from the queue after them, if any.

    After each call the thread waits up to 5 ms for the interpreter while the loop is busy, so one call per line would be slow.
    Up to PIPE_BUF bytes are not mixed with those of other processes (pipe(7)).
    """
    parts, size = [first], len(first)
    while True:
        try:
            item = queue.get_nowait()
        except Empty:
            return b"".join(parts), None
        if not isinstance(item, bytes) or size + len(item) > PIPE_BUF:
            return b"".join(parts), item
        parts.append(item)
        size += len(item)


def _leads_to(stream: object, descriptor: int) -> bool:
    """Return whether a stream blocks and writes to this descriptor."""
    try:
        return isinstance(stream, io.TextIOWrapper) and stream.fileno() == descriptor
    except (OSError, ValueError):  # it has no descriptor, or is closed
        return False


def _native(module: str, name: str) -> Any:
    """Return a function of the standard library before gevent's patch, because our thread has no event loop."""
    monkey = sys.modules.get("gevent.monkey")
    return monkey.get_original(module, name) if monkey is not None else getattr(import_module(module), name)
