"""Dead letters in a real Redis: pages, one, tried again, dropped."""

from collections.abc import Iterator

import msgspec
import pytest

from headgate.consumers.work.dead_letters import PAGE_LETTERS, DeadLetters
from headgate.consumers.work.store import Store, dead
from headgate.consumers.work.task import Task
from headgate.errors import InvalidRequest
from headgate.redis.client import Client, call

LOG, GROUP = "hg:{notifications}:log", "hg:{notifications}:group:mail"
TASK = Task(
    "0123456789abcdef", 1, "orders.1.failed", "an-id", 1_700_000_000_000, b'{"a":1}', "ada", True,
    attempt=7, failures=3, faults=2, failing_since_ms=5, deferred=True, together=True, reason="refused",
)  # fmt: skip


@pytest.fixture
def store(redis_client: Client, redis_url: str) -> Iterator[Store]:
    """The consumer's group, open."""
    store = Store(redis_client, redis_url, "notifications", "mail", 65536)
    store.open("new")
    yield store
    store.close()


@pytest.fixture
def letters(redis_client: Client) -> DeadLetters:
    """Its dead letters."""
    return DeadLetters(redis_client, "notifications", "mail")


def bury(store: Store, count: int, why: str = "rejected") -> None:
    store.settle(
        [dead(msgspec.structs.replace(TASK, offset=number), why, f"no {number}", 10000) for number in range(1, count + 1)]
    )


def count_leased(store: Store) -> list[Task]:
    page = store.take(1000, 60_000, 10000, lambda topic: True)
    assert page is not None
    return [taken.task for taken in page.work]


def test_pages_go_from_the_oldest_to_the_newest(store: Store, letters: DeadLetters) -> None:
    """Each goes on after the last of the one before."""
    bury(store, 250)
    assert letters.count() == 250

    first = letters.page()
    second = letters.page(after=first[-1].id)
    third = letters.page(after=second[-1].id, limit=60)

    assert [letter.task.offset for letter in (*first, *second, *third)] == list(range(1, 251))
    assert letters.page(after=third[-1].id) == []


def test_a_letter_says_what_it_was_and_why(store: Store, letters: DeadLetters) -> None:
    """Everything of the task is there."""
    bury(store, 1)
    (listed,) = letters.page()

    shown = letters.show(listed.id)

    assert shown == listed
    assert (listed.why, listed.reason, listed.task) == ("rejected", "no 1", TASK)
    assert listed.at_ms > 1_700_000_000_000
    assert letters.show("1-1") is None


def test_a_letter_that_is_tried_again_is_due_now_as_if_never_tried(store: Store, letters: DeadLetters) -> None:
    """And not among the dead letters any more. Named twice, it counts once."""
    bury(store, 3)
    ids = [letter.id for letter in letters.page()]

    assert letters.retry([ids[1], "1-1", ids[1]]) == 1

    assert count_leased(store) == [Task("0123456789abcdef", 2, TASK.topic, "an-id", TASK.time_ms, TASK.data, "ada", True)]
    assert [letter.id for letter in letters.page()] == [ids[0], ids[2]]


def test_a_letter_that_two_try_again_at_once_is_tried_once(store: Store, letters: DeadLetters) -> None:
    """The second finds it gone, also when it had read it before."""
    bury(store, 1)
    (letter,) = letters.page()
    assert letters.retry([letter.id]) == 1
    assert len(count_leased(store)) == 1

    letters._put_back([letter])

    assert count_leased(store) == []


def test_all_are_tried_again_page_by_page_but_the_unreadable_stay(store: Store, letters: DeadLetters) -> None:
    """There is nothing to try about those."""
    bury(store, 2, why="unreadable")
    bury(store, PAGE_LETTERS + 20, why="gave_up")

    assert letters.retry_all() == PAGE_LETTERS + 20

    assert {letter.why for letter in letters.page()} == {"unreadable"}
    assert letters.count() == 2
    assert letters.retry([letter.id for letter in letters.page()]) == 0


def test_dropped_letters_are_gone(store: Store, letters: DeadLetters, redis_client: Client) -> None:
    """These, or all."""
    bury(store, PAGE_LETTERS + 5)
    first, second = letters.page(limit=2)

    assert letters.drop([first.id, second.id, "1-1"]) == 2
    assert letters.drop([]) == 0
    assert letters.count() == PAGE_LETTERS + 3
    assert letters.drop_all() == PAGE_LETTERS + 3
    assert letters.page() == []
    assert call(redis_client, "ZCARD", "hg:{notifications}:group:mail:held") == 0


def test_a_letter_that_cannot_be_read_is_shown_as_that(store: Store, letters: DeadLetters, redis_client: Client) -> None:
    """It does not keep the others from being listed, nor is it tried again."""
    call(redis_client, "XADD", "hg:{notifications}:group:mail:dead", "*", "why", "rejected", "body", b"\xff")
    bury(store, 1)

    broken, whole = letters.page()

    assert (broken.why, whole.why) == ("unreadable", "rejected")
    assert letters.retry_all() == 1


@pytest.mark.parametrize("wrong", ["", "x", "1", "1-", "1-2 ", "(1-2", "-", "+", "1" * 16 + "-0"])
def test_a_text_that_is_no_id_is_refused(letters: DeadLetters, wrong: str) -> None:
    """Above all a text that would mean all of them to Redis."""
    for attempt in (letters.show, lambda each: letters.drop([each]), lambda each: letters.retry([each]), letters.page):
        with pytest.raises(InvalidRequest, match="dead letter's id"):
            attempt(wrong)


@pytest.mark.parametrize("limit", [0, -1, PAGE_LETTERS + 1])
def test_pages_are_bounded(letters: DeadLetters, limit: int) -> None:
    """A consumer that had a bad day does not fill an operator's memory."""
    with pytest.raises(InvalidRequest, match="1 to 100"):
        letters.page(limit=limit)


# Their bounds ------------------------------------------------------------------------------------------------------------


def bury_one(store: Store, number: int, size: int, max_dead: int = 10_000, max_bytes: int = 100_000) -> int:
    """Set a task aside with a payload of `size` bytes; return how many older letters it has pushed out."""
    task = msgspec.structs.replace(TASK, offset=number, data=b'"' + b"x" * (size - 2) + b'"')
    return store.settle([dead(task, "rejected", "no", max_dead, max_bytes)])[1]


def weights(client: Client) -> int:
    """Return the weights of all letters, added up."""
    return sum(int(fields.get(b"weight", 0)) for _, fields in call(client, "XRANGE", f"{GROUP}:dead", "-", "+"))


def counted(client: Client) -> tuple[int, int]:
    """Return (bytes, dropped) as the group's hash has them."""
    return tuple(int(value or 0) for value in call(client, "HMGET", GROUP, "dead_bytes", "dead_dropped"))  # type: ignore[return-value]


def test_letters_are_bounded_by_bytes(store: Store, letters: DeadLetters, redis_client: Client) -> None:
    """The oldest go, no more of them than must, and each is reported and counted; small and large ones mixed."""
    sizes = [2_000, 40_000, 100, 9_000, 60_000, 100, 100, 30_000, 20_000, 50_000, 70_000, 10, 10]
    dropped = 0
    for number, size in enumerate(sizes, 1):
        dropped += bury_one(store, number, size)
        held, _ = counted(redis_client)
        assert held == weights(redis_client) <= 100_000

    assert [letter.task.offset for letter in letters.page()] == list(range(dropped + 1, len(sizes) + 1))
    assert dropped == counted(redis_client)[1]
    oldest_dropped = sizes[dropped - 1]
    assert held + oldest_dropped > 100_000


def test_a_letter_that_is_heavier_than_the_limit_is_kept(store: Store, letters: DeadLetters) -> None:
    """Alone, because it is the newest, and an operator is to look at it."""
    assert [bury_one(store, number, size) for number, size in enumerate([100, 100, 200_000], 1)] == [0, 0, 2]
    assert letters.count() == 1


def test_the_bytes_of_letters_taken_out_are_given_back(store: Store, letters: DeadLetters, redis_client: Client) -> None:
    """Dropped, or tried again, and nothing is dropped for them later."""
    for number in range(1, 7):
        bury_one(store, number, 10_000)
    first, second, third, *_ = letters.page()
    letters.drop([first.id, third.id, third.id])
    letters.retry([second.id])

    assert counted(redis_client) == (weights(redis_client), 0)
    assert letters.drop_all() == 3
    assert counted(redis_client) == (0, 0)
