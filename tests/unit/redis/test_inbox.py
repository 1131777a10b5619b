"""Inboxes: a page is never older than the events of its client."""

from collections.abc import Callable
from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.errors import BusUnavailable
from headgate.redis.inbox import READ_AGAIN_S, InboxPage, read_current
from headgate.redis.lineage import Lineage, alone

E1, E2 = alone("e1"), Lineage("e2", MappingProxyType({"e1": 7}), MappingProxyType({"e0": alone("e0")}))


def page(epoch: str, offset: int) -> InboxPage:
    return InboxPage(epoch, offset, 0, 0, [], None, {})


def reading(*pages: InboxPage) -> Callable[[], InboxPage]:
    return iter(pages).__next__


def test_a_page_with_every_event_that_the_client_has_had_is_read_once() -> None:
    """It may be newer, and of an epoch that the feed has not met yet."""
    pauses: list[float] = []
    for each in (page("e1", 5), page("e1", 9), page("e2", 5)):
        assert read_current(reading(each), 5, E1, pauses.append) is each
    assert not pauses


@pytest.mark.parametrize("old", [page("e1", 4), page("e1", 7), page("e2", 7), page("e0", 99)], ids=str)
def test_a_page_of_a_server_that_a_failover_has_left_behind_is_read_again(old: InboxPage) -> None:
    """Until the connection leads to the new one, after a pause each time."""
    pauses: list[float] = []
    assert read_current(reading(old, old, page("e2", 8)), 8, E2, pauses.append).offset == 8
    assert tuple(pauses) == READ_AGAIN_S[:2]


def test_pages_that_stay_too_old_are_refused_and_the_client_tries_again() -> None:
    """A page without a shown item would take it away, and show it once more later."""
    pauses: list[float] = []
    with pytest.raises(BusUnavailable) as refused:
        read_current(lambda: page("e1", 7), 8, E2, pauses.append)
    assert refused.value.retry
    assert tuple(pauses) == READ_AGAIN_S


@given(
    st.lists(st.tuples(st.sampled_from(["e0", "e1", "e2", "e3"]), st.integers(0, 20)), min_size=4, max_size=4), st.integers(0, 20)
)
def test_whatever_servers_answer_no_item_is_taken_away(answers: list[tuple[str, int]], least: int) -> None:
    try:
        taken = read_current(reading(*(page(*each) for each in answers)), least, E2, lambda _: None)
    except BusUnavailable:
        assert all(offset < least or epoch in ("e0", "e1") for epoch, offset in answers)
    else:
        assert taken.offset >= least
        assert taken.epoch in ("e2", "e3")
