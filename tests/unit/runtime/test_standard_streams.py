"""Standard output and error of a serving process: no write waits, and dropped lines are counted and reported."""

import fcntl
import os
import re
from collections.abc import Iterator
from unittest.mock import Mock

import pytest

from headgate.runtime import standard_streams
from headgate.runtime.metrics import OUTPUT_LINES_DROPPED
from headgate.runtime.standard_streams import MAX_QUEUED_BYTES, QueuedStream

DEADLINE_S = 30.0
LINE = "x" * 99 + "\n"


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reading, writing = os.pipe()
    yield reading, writing
    os.close(writing)


def dropped(reason: str) -> int:
    """Return how many lines were dropped so far."""
    return OUTPUT_LINES_DROPPED.of(f"test_{reason}").total


def read(descriptor: int, until: bytes) -> str:
    data = b""
    while until not in data:
        data += os.read(descriptor, 1 << 16)
    return data.decode()


@pytest.mark.parametrize("waits_with_all", [False, True])
def test_a_pipe_that_nobody_reads_holds_up_no_write(pipe: tuple[int, int], waits_with_all: bool) -> None:
    """The queue is bounded; its lines come in order once they are read, and a last one says exactly how many are missing."""
    reading, writing = pipe
    stream = QueuedStream(writing, "test")
    before = dropped("full")
    number = 3 * MAX_QUEUED_BYTES // len(LINE)
    page = os.sysconf("SC_PAGE_SIZE")  # a line is never split over two pages of the pipe
    full = fcntl.fcntl(writing, fcntl.F_GETPIPE_SZ) // page * (page // len(LINE))
    for each in range(number):
        stream.write(f"{each:099}\n")
        if waits_with_all and each <= full:  # one by one, as the room that a larger write takes depends on those before it
            while not stream._queue.empty():
                os.sched_yield()
    assert not stream.drain(0)
    lines = read(reading, b"dropped").splitlines()
    missing = int(re.findall(r"^headgate: (\d+) line", lines[-1])[0])
    there = [int(line) for line in lines[:-1]]
    assert there == sorted(set(there))
    assert (len(there) + missing, missing) == (number, dropped("full") - before)
    assert missing > 0
    stream.write("on again\n")
    assert read(reading, b"on again\n").splitlines()[-1] == "on again"


@pytest.mark.parametrize("full", [True, False], ids=["full disk", "closed pipe"])
def test_lines_that_cannot_be_written_are_counted(pipe: tuple[int, int], full: bool) -> None:
    """Nothing raises, neither here nor in the thread."""
    reading, writing = pipe
    os.close(reading)
    before = dropped("failed")
    descriptor = os.open("/dev/full", os.O_WRONLY) if full else writing
    stream = QueuedStream(descriptor, "test")
    for _ in range(10):
        stream.write(LINE)
    assert stream.drain(DEADLINE_S)
    # The report of them cannot be written either.
    assert dropped("failed") - before >= 10


def test_a_descriptor_that_does_not_block_gets_everything(pipe: tuple[int, int]) -> None:
    """Another process that shares it may have set it so; a full pipe is then tried again."""
    reading, writing = pipe
    os.set_blocking(writing, False)
    stream = QueuedStream(writing, "test")
    for _ in range(2000):
        stream.write(LINE)
    stream.write("end\n")
    assert read(reading, b"end\n") == LINE * 2000 + "end\n"


def test_the_parts_of_a_line_are_written_together(pipe: tuple[int, int]) -> None:
    """`print` writes a line and its end apart; a prompt without an end waits for `flush`; bytes and odd text get through."""
    reading, writing = pipe
    stream = QueuedStream(writing, "test")
    print("a", "b", file=stream)
    stream.write("\ud800 c")
    stream.buffer.write(b"\xff")
    assert stream.drain(DEADLINE_S)
    assert not stream.isatty()
    assert os.read(reading, 100) == b"a b\n\\ud800 c\xff"
    assert stream.fileno() == writing


@pytest.mark.parametrize("is_lasting", [True, False])
def test_where_no_thread_can_be_started_text_waits_for_one_or_for_the_end(
    pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch, *, is_lasting: bool
) -> None:
    """The system has a limit of them. No write raises."""
    reading, writing = pipe
    stream = QueuedStream(writing, "test")
    with monkeypatch.context() as patch:
        patch.setattr(standard_streams, "_native", Mock(return_value=Mock(side_effect=RuntimeError("can't start new thread"))))
        stream.write("a\n")
        stream.write("b\n")
        assert not is_lasting or stream.drain(DEADLINE_S)
    stream.write("c\n")
    assert stream.drain(DEADLINE_S)
    assert read(reading, b"c\n") == "a\nb\nc\n"


def test_a_forked_child_writes_its_own_lines_only(pipe: tuple[int, int]) -> None:
    """The parent's waiting lines are written once, and the child, which has no thread of the parent's, starts one."""
    reading, writing = pipe
    stream = QueuedStream(writing, "test")
    for _ in range(1000):
        stream.write(LINE)
    child = os.fork()
    if child == 0:
        stream.write("child\n")
        os._exit(0 if stream.drain(DEADLINE_S) else 1)
    lines: list[str] = []
    while len(lines) < 1001:
        lines += os.read(reading, 1 << 16).decode().splitlines(keepends=True)
    assert os.waitpid(child, 0)[1] == 0
    assert sorted(lines) == sorted([*[LINE] * 1000, "child\n"])
