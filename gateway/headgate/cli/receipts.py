"""The receipts of a file published by `headgate publish --file` record which of its lines are in which log.

In: each batch before it is sent, and its receipts after. Out: the lines in a log, and the unanswered batches. One JSON object
per line, only ever appended, so a run killed at any moment leaves everything needed to continue. A batch is on disk before it
is sent.

An epoch belongs to one log, so one file of receipts serves several logs, and records the lines in each.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import stat
from collections.abc import Iterable
from itertools import islice
from secrets import token_hex
from typing import Annotated

import msgspec

from headgate.errors import HeadgateError
from headgate.redis.event_ids import LogState
from headgate.redis.lineage import Lineage

# Each line takes a byte of memory.
MAX_LINES = 2**30


def file_fault(message: str, next_step: str | None = None) -> HeadgateError:
    """Return the error for a file that cannot be published, or no further. A note has the next step, if there is one."""
    error = HeadgateError(message)
    error.code = "failed"
    if next_step is not None:
        error.add_note(next_step)
    return error


_Line = Annotated[int, msgspec.Meta(ge=1, le=MAX_LINES)]
# (first line, events, epoch, first offset) for consecutive events of consecutive lines.
_Run = tuple[_Line, _Line, str, int]


class _Begun(msgspec.Struct, tag="begun", tag_field="step"):
    """`run` is a part of each id of this run, or empty if lines keep their ids. `file` is a part of each missing id."""

    run: str
    file: str = ""


class Batch(msgspec.Struct, tag="sending", tag_field="step"):
    """Lines `first` to `last` are sent to a log at position `before`. `sha256` covers all lines up to `last`."""

    number: int
    first: _Line
    last: _Line
    sha256: str
    before: LogState


class _Sent(msgspec.Struct, tag="sent", tag_field="step"):
    """The events of a batch in the log. Its other lines were refused."""

    number: int
    runs: list[_Run]


class _Done(msgspec.Struct, tag="done", tag_field="step"):
    """The last line was reached."""


_decode = msgspec.json.Decoder(_Begun | Batch | _Sent | _Done).decode


def digested(line: bytes) -> bytes:
    """Return a line for a digest, without surrounding white space, so a line end at the end of the file changes nothing."""
    return line.strip() + b"\n"


class Receipts:
    """See the module. Locked while it is open.

    Raises HeadgateError if the file cannot be opened or locked, or is of another kind.

    Args:
        path: of the file, created if missing.
        new_ids: whether to begin a run with new ids, or continue an unfinished one.
    """

    def __init__(self, path: str, *, new_ids: bool = False) -> None:
        self.path, self.run, self.file = path, "", ""
        self._runs: list[_Run] = []
        self._unsettled: dict[int, Batch] = {}
        self._furthest: Batch | None = None
        self._batches = 0
        self._is_done = False
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK, 0o666)
            try:
                self._begin(new_ids)
            except BaseException:
                self.close()
                raise
        except OSError as error:
            raise file_fault(f"{path}: {_reason(error)}; --receipts puts the receipts elsewhere") from error

    def check_unchanged(self, lines: Iterable[bytes]) -> None:
        """Raise HeadgateError unless the file still begins with the sent lines."""
        if self._furthest is None:
            return
        digest, last = hashlib.sha256(), self._furthest.last
        for line in islice(lines, last):
            digest.update(digested(line))
        if digest.hexdigest() != self._furthest.sha256:
            raise file_fault(
                f"the file has changed since its lines 1 to {last} were published ({self.path}): nothing more was published."
                " Give new events a file of their own, or remove the receipts to publish all lines"
            )

    def epochs(self) -> set[str]:
        """Return the epochs of all receipts and unanswered batches."""
        return {epoch for _, _, epoch, _ in self._runs} | {each.before.epoch for each in self._unsettled.values()}

    def published(self, line: Lineage, newest: int) -> tuple[bytearray, int]:
        """Return a 1 at the number of each line that a log still has, and the number of lines with other receipts.

        Args:
            line: the lineage of the log.
            newest: its newest offset.
        """
        has = bytearray(max((first + count for first, count, _, _ in self._runs), default=0))
        sent = bytearray(len(has))
        for first, count, epoch, offset in self._runs:
            end = line.end_of(epoch, newest)
            kept = 0 if end is None else max(0, min(count, end - offset + 1))
            has[first : first + kept], sent[first : first + count] = b"\1" * kept, b"\1" * count
        return has, sent.count(1) - has.count(1)

    def unsettled(self, line: Lineage, newest: int) -> list[Batch]:
        """Return the unanswered batches sent to a log. `line` and `newest` are as in `published`."""
        return [
            each for each in self._unsettled.values()
            if each.before.epoch == "" or line.end_of(each.before.epoch, newest) is not None
        ]  # fmt: skip

    def send(self, first: int, last: int, sha256: str, before: LogState) -> Batch:
        """Record on disk that a batch is about to be sent, and return it. After HeadgateError, do not send it."""
        batch = Batch(self._batches, first, last, sha256, before)
        self._append(batch)
        try:
            os.fsync(self._file)
        except OSError as error:
            raise file_fault(f"{self.path}: {_reason(error)}") from error
        return batch

    def settle(self, batch: Batch, positions: Iterable[tuple[int, str, int]]) -> None:
        """Record the line, epoch and offset of each event of a batch in the log. Raises HeadgateError."""
        runs: list[_Run] = []
        for line, epoch, offset in positions:
            if runs and (line - runs[-1][0], epoch, offset - runs[-1][3]) == (runs[-1][1], runs[-1][2], runs[-1][1]):
                runs[-1] = (runs[-1][0], runs[-1][1] + 1, *runs[-1][2:])
            else:
                runs.append((line, 1, epoch, offset))
        self._append(_Sent(batch.number, runs))

    def finish(self) -> None:
        """Record that the last line was reached. Raises HeadgateError."""
        self._append(_Done())

    def close(self) -> None:
        """Unlock the file for other commands."""
        os.close(self._file)

    # -- private ------------------------------------------------------------------------------------------------------

    def _begin(self, new_ids: bool) -> None:
        if not stat.S_ISREG(os.fstat(self._file).st_mode):
            raise file_fault(f"{self.path} is no regular file; --receipts names another")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise file_fault(f"{self.path}: another headgate publish is at work on this file") from error
        with open(self._file, "rb", closefd=False) as file:
            whole = 0
            for line in file:
                if whole and not line.endswith(b"\n"):  # the command was killed during a write
                    break
                whole += len(line)
                try:
                    self._take(_decode(line))
                except (msgspec.DecodeError, UnicodeDecodeError) as error:
                    raise file_fault(
                        f"{self.path} is no file of receipts, and stays as it is; --receipts names another"
                    ) from error
        os.ftruncate(self._file, whole)
        if not whole or (new_ids and (self._is_done or not self.run)):
            os.ftruncate(self._file, 0)
            self._runs, self._unsettled, self._furthest, self._batches = [], {}, None, 0
            self._append(_Begun(token_hex(8) if new_ids else "", token_hex(8)))

    def _append(self, step: _Begun | Batch | _Sent | _Done) -> None:
        data = msgspec.json.encode(step) + b"\n"
        try:
            if os.write(self._file, data) < len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            raise file_fault(f"{self.path}: {_reason(error)}") from error
        self._take(step)

    def _take(self, step: _Begun | Batch | _Sent | _Done) -> None:
        match step:
            case _Begun():
                self.run, self.file = step.run, step.file
            case Batch():
                self._unsettled[step.number] = step
                self._batches, self._is_done = step.number + 1, False
                if self._furthest is None or step.last >= self._furthest.last:
                    self._furthest = step
            case _Sent():
                self._unsettled.pop(step.number, None)
                self._runs += step.runs
            case _Done():
                self._is_done = True


def _reason(error: OSError) -> str:
    return error.strerror or str(error)
