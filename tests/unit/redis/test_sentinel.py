"""A Redis with Sentinels: its address without secrets, and the answer that counts."""

import pytest

from headgate.redis.connections import connection_pool, redacted_address
from headgate.redis.sentinel import SentinelAnswer, newest_of, read_answer
from headgate.settings.addresses.redis_url import read_url


def test_no_secret_is_shown() -> None:
    """Logs and errors name the primary and the Sentinels."""
    url = "redis+sentinel://ana:secret@s1,s2:1/mymaster?sentinel_password=hidden"

    assert redacted_address(url) == "mymaster of the Sentinels s1:26379, s2:1"
    assert "secret" not in repr(connection_pool(read_url(url), 1))
    assert "hidden" not in repr(connection_pool(read_url(url), 1))


OLD, NEW, OTHER = SentinelAnswer(1, ("old", 6379)), SentinelAnswer(2, ("new", 6379)), SentinelAnswer(2, ("other", 6379))


@pytest.mark.parametrize(
    ("known", "answers", "counts"),
    [
        (None, [], None),
        (None, [OLD], OLD),
        (None, [OLD, NEW], NEW),
        (OLD, [NEW], NEW),
        (NEW, [NEW], NEW),
        (NEW, [OLD], NEW),  # one that lags leads no connection back
        (NEW, [OLD, OLD], NEW),  # nor do two, which have not heard yet from the one that leads the failover
        (NEW, [OLD, OLD, OLD], OLD),  # all of them, because they were set up again
        (NEW, [OLD, NEW, OLD], NEW),
        (NEW, [], NEW),
        (None, [NEW, OTHER, OTHER], OTHER),  # they watch two servers under one name
        (NEW, [OTHER], NEW),
        (NEW, [OTHER, NEW], NEW),
        (NEW, [OTHER, OTHER], OTHER),
        (OTHER, [OTHER, NEW, OTHER], OTHER),
        (NEW, [OTHER, OLD, OLD], NEW),
    ],
)
def test_the_newest_failover_counts(
    known: SentinelAnswer | None, answers: list[SentinelAnswer], counts: SentinelAnswer | None
) -> None:
    """Of three Sentinels that disagree, some may lag, and some not answer."""
    assert newest_of(known, answers, 3) == counts


def test_a_sentinel_names_the_new_primary_as_soon_as_it_is_promoted() -> None:
    """The state is the old one's for a second more, be it up or not; an old primary without a connection is none."""
    state = {"ip": "old", "port": 6379, "config-epoch": 2, "is_master": True, "is_sdown": False, "is_odown": False}
    down = {**state, "is_sdown": True}
    assert read_answer(state, (b"old", b"6379")) == SentinelAnswer(2, ("old", 6379))
    assert read_answer(down, ("old", 6379)) is None
    assert read_answer(down, ["new", 6379]) == SentinelAnswer(2, ("new", 6379))
    assert read_answer({**state, "is_master": False}, ("old", 6379)) is None
    for broken in (None, (), ValueError("no such master")):
        assert read_answer(state, broken) is None
        assert read_answer(broken, ("old", 6379)) is None
