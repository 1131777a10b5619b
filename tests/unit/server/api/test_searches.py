"""Present searches: one for each caller, some in all."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from headgate.errors import LimitReached
from headgate_server.api import shares
from headgate_server.api.shares import MAX_SEARCHES, RETRY_S
from headgate_server.api.v1.services import MAX_CONNECTIONS


def test_a_caller_has_one_search_at_a_time() -> None:
    """The second is refused, until the first is over; another caller is not concerned."""
    searches = shares.searches()
    with searches.lend("ana"):
        with pytest.raises(LimitReached) as refused, searches.lend("ana"):
            pass
        with searches.lend("ben"):
            pass
    assert (refused.value.parts["name"], refused.value.retry_after_s) == ("searches", RETRY_S)
    with searches.lend("ana"):
        pass


def test_searches_never_have_all_connections() -> None:
    """One more than there is room for is refused, for any caller; a connection is left for other requests."""
    searches = shares.searches()
    with ExitStack() as stack:
        for number in range(MAX_SEARCHES):
            stack.enter_context(searches.lend(f"user{number}"))
        with pytest.raises(LimitReached), searches.lend("one more"):
            pass
    assert MAX_SEARCHES < MAX_CONNECTIONS
