"""Events in batches: bounded calls in order, and a reply for each event out of the lines that a batch answers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.errors import BusRefused, BusUnavailable, HeadgateError, InvalidTopic
from headgate.redis.connections import Command
from headgate.services.log_writer import MAX_BATCH_BYTES, MAX_BATCH_EVENTS, Batch, in_batches

KEY = "hg:{n}:log"
COMMAND = ("FCALL", "headgate_append_batch", 1, KEY)


def calls(*sizes: int, by: bool = False) -> list[Command]:
    return [
        ("FCALL", "headgate_append", 1, KEY, f"t{number}", b"x" * size, f"i{number}", *(["me"] if by and number % 2 else []))
        for number, size in enumerate(sizes)
    ]


@given(
    st.lists(st.sampled_from((0, 1, 1000, MAX_BATCH_BYTES // 2, MAX_BATCH_BYTES, 2 * MAX_BATCH_BYTES)), min_size=1, max_size=300)
)
def test_each_event_is_in_one_batch_in_order_and_batches_are_bounded(sizes: list[int]) -> None:
    """In events and in bytes; an event that is larger than a batch is one by itself."""
    sent = calls(*sizes, by=True)

    found = in_batches(sent)

    words = [word for batch in found for word in batch.command[4:]]
    assert words == [word for call in sent for word in (*call[4:7], call[7] if len(call) > 7 else "")]
    for batch in found:
        payloads = batch.command[5::4]
        assert batch.command[:4] == ("FCALL", "headgate_append_batch", 1, KEY)
        assert 1 <= batch.events == len(payloads) <= MAX_BATCH_EVENTS
        assert batch.events == 1 or sum(len(payload) for payload in payloads if isinstance(payload, bytes)) <= MAX_BATCH_BYTES


def test_a_line_is_a_run_of_new_events_or_one_that_was_known_or_an_error() -> None:
    """Each event gets the answer of the function for one."""
    batch = Batch(COMMAND, 6)

    *replies, refused = batch.replies(b'e2 7 3\n-HEADGATE invalid_topic {"topic":"a b","reason":"a blank"}\ne1 2 0\n-NOPERM no')

    assert [reply for reply in replies if not isinstance(reply, HeadgateError)] == [
        (b"e2", 7, 0),
        (b"e2", 8, 0),
        (b"e2", 9, 0),
        (b"e1", 2, 1),
    ]
    assert isinstance(replies[3], InvalidTopic)
    assert isinstance(refused, BusRefused)
    assert refused.redis_code == "NOPERM"


def test_an_error_of_the_call_is_that_of_each_event() -> None:
    """Nothing of the batch has been written."""
    error = BusUnavailable("READONLY")

    assert Batch(COMMAND, 3).replies(error) == [error] * 3


@pytest.mark.parametrize("answer", [b"e 1 2", b"e 1 4", b"e 1 2\ne 3 0\ne 4 1", b"", b"e 1", b"e one 3", b"-"])
def test_an_answer_that_is_not_for_these_events_is_no_answer(answer: bytes) -> None:
    """The library is of another kind; a receipt is never invented."""
    with pytest.raises(BusRefused):
        Batch(COMMAND, 3).replies(answer)
