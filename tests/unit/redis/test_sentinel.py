"""The URL of a Redis with Sentinels."""

import pytest

from headgate.errors import BusRefused, SettingsError
from headgate.redis.connections import connection_pool, is_open, redacted_address
from headgate.redis.sentinel import Answer, newest_of, read_answer
from headgate.settings.addresses.redis_url import read_url
from headgate.settings.settings import Settings


def test_all_that_a_url_may_say() -> None:
    """Credentials are Redis' own; those of the Sentinels, and their TLS, are options; other options are Redis'."""
    address = read_url(
        "rediss+sentinel://ana:pa%40ss@s1:26380,s2,[::1]:7000/my%20master/3"
        "?sentinel_username=sam&sentinel_password=s%26cret&sentinel_tls=no&ssl_ca_certs=ca.pem"
    )

    assert address.hosts == (("s1", 26380), ("s2", 26379), ("::1", 7000))
    assert (address.primary, address.tls, address.database) == ("my master", True, 3)
    assert (address.username, address.password, address.options) == ("ana", "pa@ss", (("ssl_ca_certs", "ca.pem"),))
    assert dict(address.sentinel) == {"username": "sam", "password": "s&cret", "tls": False}


def test_the_least_that_a_url_must_say() -> None:
    """A Sentinel and the name of the primary; TLS is as the scheme says."""
    address = read_url("redis+sentinel://s1/mymaster")

    assert (address.hosts, address.primary, address.database) == ((("s1", 26379),), "mymaster", 0)
    assert not address.tls
    assert read_url("rediss+sentinel://s1/mymaster").tls


@pytest.mark.parametrize(
    "url",
    [
        *("redis+sentinel://s1", "redis+sentinel:///mymaster", "redis+sentinel://s1:0/m", "redis+sentinel://s1:99999/m"),
        *("redis+sentinel://s1:x/m", "redis+sentinel://s1,,s2/m", "redis+sentinel://s1/m/zero", "redis+sentinel://s1,/m"),
        "redis+sentinel://s1/m?sentinel_tls=maybe",
    ],
)
def test_another_form_is_refused(url: str) -> None:
    """With the expected form, and at the start with the name of the setting."""
    with pytest.raises(BusRefused, match=r"the Redis URL .*expected"):
        read_url(url)
    with pytest.raises(SettingsError, match=r"HEADGATE_REDIS_URL=\(hidden\): the Redis URL .*expected"):
        Settings.read({"HEADGATE_REDIS_URL": url})


def test_no_secret_is_shown() -> None:
    """Logs and errors name the primary and the Sentinels."""
    url = "redis+sentinel://ana:secret@s1,s2:1/mymaster?sentinel_password=hidden"

    assert redacted_address(url) == "mymaster of the Sentinels s1:26379, s2:1"
    assert "secret" not in repr(connection_pool(read_url(url), 1))
    assert "hidden" not in repr(connection_pool(read_url(url), 1))


def test_a_redis_on_other_machines_without_a_password_is_open() -> None:
    """The Sentinels' own password does not count."""
    assert is_open("redis+sentinel://s1/m?sentinel_password=x")
    assert not is_open("redis+sentinel://:secret@s1/m")
    assert not is_open("redis+sentinel://127.0.0.1,localhost/m")


OLD, NEW, OTHER = Answer(1, ("old", 6379)), Answer(2, ("new", 6379)), Answer(2, ("other", 6379))


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
def test_the_newest_failover_counts(known: Answer | None, answers: list[Answer], counts: Answer | None) -> None:
    """Of three Sentinels that disagree, some may lag, and some not answer."""
    assert newest_of(known, answers, 3) == counts


def test_a_sentinel_names_the_new_primary_as_soon_as_it_is_promoted() -> None:
    """The state is the old one's for a second more, be it up or not; an old primary without a connection is none."""
    state = {"ip": "old", "port": 6379, "config-epoch": 2, "is_master": True, "is_sdown": False, "is_odown": False}
    down = {**state, "is_sdown": True}
    assert read_answer(state, (b"old", b"6379")) == Answer(2, ("old", 6379))
    assert read_answer(down, ("old", 6379)) is None
    assert read_answer(down, ["new", 6379]) == Answer(2, ("new", 6379))
    assert read_answer({**state, "is_master": False}, ("old", 6379)) is None
    for broken in (None, (), ValueError("no such master")):
        assert read_answer(state, broken) is None
        assert read_answer(broken, ("old", 6379)) is None
