"""Bulk: lines into batches, without Redis."""

import io
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from headgate.cli import bulk_file
from headgate.cli.bulk import MAX_BATCH_EVENTS, MAX_LISTED, Bulk, LineFault
from headgate.cli.receipts import Receipts
from headgate.errors import BusRefused, BusUnavailable, HeadgateError
from headgate.services.publisher import Durable, Prepared, Publisher, Receipt


class Recording(Publisher):
    """A publisher without a connection: it keeps batches, knows ids, and refuses the topics `refused.#`."""

    def __init__(self) -> None:
        super().__init__("redis://127.0.0.1:1", max_payload_bytes=100)
        self.batches: list[list[str]] = []
        self.known: list[str] = []
        self.fails_at = 0

    def publish_prepared(self, events: Sequence[Prepared], *, durable: Durable = None) -> list[Receipt | HeadgateError]:
        if len(self.batches) + 1 == self.fails_at:
            raise BusUnavailable("gone")
        self.batches.append([event.id for event in events])
        return [self._answer(event) for event in events]

    def _answer(self, event: Prepared) -> Receipt | HeadgateError:
        if str(event.command[4]).startswith("refused"):
            return BusRefused("no")
        duplicate = event.id in self.known
        self.known += () if duplicate else (event.id,)
        return Receipt("e", self.known.index(event.id) + 1, duplicate, event.id)


@pytest.fixture
def publisher() -> Recording:
    return Recording()


def lines(count: int) -> list[bytes]:
    return [b'{"topic":"a.%d","data":%d}\n' % (number, number) for number in range(count)]


def test_lines_go_in_batches_in_their_order(publisher: Recording) -> None:
    """Blank ones do not count; ids of lines that have one are kept."""
    told: list[int] = []
    given = [b'{"topic":"a","data":1,"id":"first","time":5,"epoch":"e","offset":9}\n', b"\n", *lines(MAX_BATCH_EVENTS)]
    outcome = Bulk(publisher).publish(given, told.append)
    assert [len(batch) for batch in publisher.batches] == [MAX_BATCH_EVENTS, 1]
    assert publisher.batches[0][0] == "first"
    assert told == [MAX_BATCH_EVENTS + 1, MAX_BATCH_EVENTS + 2]
    assert (outcome.published, outcome.duplicates, outcome.first_offset, outcome.last_offset) == (501, 0, 1, 501)


def test_the_same_file_again_adds_nothing_unless_ids_are_to_be_new(publisher: Recording) -> None:
    """Two equal lines of one file are two events."""
    given = [*lines(3), *lines(3)]
    bulk = Bulk(publisher)
    assert bulk.publish(given).duplicates == 0
    again = bulk.publish(given)
    assert (again.published, again.duplicates, again.first_offset) == (6, 6, None)
    assert Bulk(publisher, run="another").publish(given).duplicates == 0


def test_equal_lines_of_two_files_are_two_events(publisher: Recording, tmp_path: Path) -> None:
    """As the hourly files of a cron job, whose first lines may be equal. An id in a line counts in both."""
    given = [*lines(2), b'{"topic":"a","data":1,"id":"own"}\n']
    files = []
    for name in ("9.receipts", "10.receipts", "9.receipts"):
        with closing(Receipts(str(tmp_path / name))) as receipts:
            files.append(receipts.file)
    assert [Bulk(publisher, file=file).publish(given).duplicates for file in files] == [0, 1, 3]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (b"nope", "as JSON"),
        (b"[1]", "as JSON"),
        (b'{"data":1}', "topic"),
        (b'{"topic":"a"}', "data"),
        (b'{"topic":5,"data":1}', "topic"),
        (b'{"topic":"a","data":1,"user":"ana"}', "unknown field `user`"),
        (b'{"topic":"a..b","data":1}', "invalid topic"),
        (b'{"topic":"a","data":1,"id":"a b"}', "invalid event id"),
        (b'{"topic":"a","data":"' + b"x" * 99 + b'"}', "above the limit of 100 bytes"),
        (b'{"topic":"a","data":"\xff"}', "UTF-8"),
        (b'{"topic":"a","data":' + b"[" * 20_000, "as JSON"),
    ],
)
def test_a_bad_line_is_named_by_its_number(publisher: Recording, line: bytes, says: str) -> None:
    """By the check, before anything is sent, and when the others are published."""
    given = [*lines(2), line + b"\n", *lines(1)]
    bulk = Bulk(publisher)
    for outcome in (bulk.check(given), bulk.publish(given)):
        [fault] = outcome.faults
        assert fault.line == 3
        assert says in fault.reason
    assert outcome.published == 3


def test_faults_are_bounded_and_counted(publisher: Recording) -> None:
    """A file of another kind does not fill the memory."""
    outcome = Bulk(publisher).check([b"nope\n"] * 1000)
    assert (outcome.refused, len(outcome.faults)) == (1000, MAX_LISTED)


def test_what_redis_refuses_is_named_by_its_line_and_the_others_are_published(publisher: Recording) -> None:
    outcome = Bulk(publisher).publish([*lines(1), b'{"topic":"refused.a","data":1}\n', *lines(1)])
    assert (outcome.published, outcome.refused) == (2, 1)
    assert outcome.faults == [LineFault(2, "the bus refused: no")]


def test_without_redis_it_says_from_which_line_on_to_go_on(publisher: Recording) -> None:
    publisher.fails_at = 2
    with pytest.raises(HeadgateError, match=f"line {MAX_BATCH_EVENTS + 1} and later: the bus is unavailable: gone") as raised:
        Bulk(publisher).publish(lines(MAX_BATCH_EVENTS + 10))
    assert raised.value.lines()[1].endswith(f"continue with --from-line {MAX_BATCH_EVENTS + 1}")
    publisher.fails_at = 0
    outcome = Bulk(publisher, from_line=MAX_BATCH_EVENTS + 1).publish(lines(MAX_BATCH_EVENTS + 10))
    assert (outcome.published, outcome.duplicates) == (10, 0)


def test_a_line_without_end_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is bounded; the next line is whole."""
    monkeypatch.setattr(bulk_file, "_MAX_LINE_BYTES", 10)
    assert list(bulk_file._lines(io.BytesIO(b"x" * 35 + b"\nnext\n\nlast"))) == [b"x" * 10, b"next\n", b"\n", b"last"]
