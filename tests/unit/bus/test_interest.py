"""The sources of a gateway: enough for its clients, no source inside another, and no moment without one during a change."""

import copy
import fnmatch
from collections.abc import Iterable
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.delivery.bus import interest as module
from headgate.delivery.bus.interest import LINGER_S, MAX_GLOBS, Interest, Source, by_command, sources
from headgate.events.topic import matches
from headgate.redis.keys import channel, user_channel
from tests.support.steps import steps_during

N = "n"
EVERY_TOPIC: Source = (b"psubscribe", b"hg:{n}:*")
ANY_USER: Source = (b"psubscribe", b"hg:{n}/users.*")
EVERYTHING = {EVERY_TOPIC, ANY_USER}
ANCHOR: Source = (b"subscribe", b"hg:{n}:")
WORDS = ["a", "b", "users"]
TOPICS = [".".join(words) for count in (1, 2, 3, 4) for words in product(WORDS, repeat=count)]
# Some lie in others, as they stand.
NESTED = ["a.b", "a.a", "a.*", "a.#", "#.b", "a.*.b", "*.b", "#", "b", "users.a.#", "users.b.#", "users.*", "users.*.a"]
PATTERNS = st.lists(st.sampled_from([*WORDS, "*", "#"]), min_size=1, max_size=4).map(".".join)


def topic_source(topic: str) -> Source:
    return b"subscribe", channel(N, topic).encode()


def glob(text: str) -> Source:
    return b"psubscribe", channel(N, text).encode()


def user(name: str) -> Source:
    return b"subscribe", user_channel(N, name).encode()


def channels(topic: str, *, is_older_there: bool = False) -> list[str]:
    """The channels on which the function library publishes a logged event."""
    first, *rest = topic.split(".")
    if first != "users" or not rest:
        return [channel(N, topic)]
    return [channel(N, topic)] * is_older_there + [user_channel(N, rest[0])]


def brings(source: Source, name: str) -> bool:
    """Whether Redis sends the events of a channel through this source."""
    command, own = source[0], source[1].decode()
    return fnmatch.fnmatchcase(name, own) if command == b"psubscribe" else name == own


def settled(interest: Interest, now_s: float = 0.0) -> set[Source]:
    """Let Redis acknowledge everything, and fences pass, until nothing changes; return the requested sources."""
    for _ in range(3):
        interest.to_subscribe()
        for source in interest.requested:
            interest.acknowledge(*source)
        interest.mark_synced(interest.acknowledged)
        dropped(interest, now_s)
    return set(interest.requested)


def dropped(interest: Interest, now_s: float) -> list[Source]:
    """Unsubscribe from sources, let Redis acknowledge that, and return them."""
    sources = interest.to_unsubscribe(now_s)
    for command, name in sources:
        interest.end(command.replace(b"subscribe", b"unsubscribe"), name)
    return sources


def attached(*patterns: str) -> Interest:
    """Return an interest in these patterns on a connection where every source is synced."""
    interest = Interest(N)
    for pattern in patterns:
        interest.acquire(pattern)
    interest.attach()
    settled(interest)
    return interest


# Sources -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("orders.42", {topic_source("orders.42")}),
        ("orders.*", {glob("orders.*")}),
        ("orders.#", {glob("orders*")}),
        ("orders.*.#", {glob("orders.*")}),
        ("#.shipped", {glob("*shipped"), ANY_USER}),
        ("#.a.#", {glob("*a*"), ANY_USER}),
        ("a.#.b", {glob("a.*b")}),
        ("a.#.#.b", {glob("a.*b")}),
        ("a.#.#", {glob("a*")}),
        ("#", EVERYTHING),
        ("*.#", EVERYTHING),
        ("*", {EVERY_TOPIC}),
        ("*.7", {glob("*.7"), user("7")}),
        ("*.7.*", {glob("*.7.*"), user("7")}),
        ("*.*.mail", {glob("*.*.mail"), ANY_USER}),
        ("users", {topic_source("users")}),
        ("users.7", {topic_source("users.7"), user("7")}),
        ("users.7.mail", {topic_source("users.7.mail"), user("7")}),
        ("users.7.#", {user("7")}),
        ("users.7.*.new", {user("7")}),
        ("users.*", {glob("users.*"), ANY_USER}),
        ("users.#.mail", {glob("users.*mail"), ANY_USER}),
        ("usersX.7.#", {glob("usersX.7*")}),
    ],
)
def test_the_sources_of_a_pattern_are_narrow(pattern: str, found: set[Source]) -> None:
    """A topic needs no glob, a glob keeps every word that it can, and a user's topics need the channel of that user."""
    assert set(sources(N, pattern)) == found


@given(st.lists(PATTERNS, max_size=8), st.booleans())
def test_an_event_comes_whatever_patterns_and_older_gateways_there_are(patterns: list[str], is_older_there: bool) -> None:
    """Every topic that a pattern matches is brought by a source; no source lies in another; none is there for nothing."""
    requested = settled(attached(*patterns))

    for topic in TOPICS:
        if any(matches(pattern, topic) for pattern in patterns):
            names = channels(topic, is_older_there=is_older_there)
            assert any(brings(source, name) for source in requested for name in names), topic
    globs = [source for source in requested if source[0] == b"psubscribe"]
    for source in requested:
        assert not any(source != other and fnmatch.fnmatchcase(source[1].decode(), other[1].decode()) for other in globs)
    needed = {source for pattern in patterns for source in sources(N, pattern)}
    assert requested <= needed | {ANCHOR}


# On the way --------------------------------------------------------------------------------------------------------------


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("acquire"), PATTERNS),
            st.tuples(st.just("release"), st.integers(0, 20)),
            st.tuples(st.just("acknowledge"), st.integers(1, 3)),
            st.tuples(st.sampled_from(["subscribe", "begin fence", "pass fence", "unsubscribe", "reconnect"]), st.none()),
        ),
        max_size=60,
    )
)
def test_an_active_pattern_stays_active_and_always_has_a_source(steps: list[tuple[str, str | int | None]]) -> None:
    """A pattern has a source at every moment, in any order of acquiring, acknowledging, fences and releasing."""
    interest = Interest(N)
    interest.attach()
    acquired: list[str] = []
    active: set[str] = set()
    fence: frozenset[Source] | None = None  # the sources that it covers, if it passes on the connection it began on
    now_s = 0.0
    for step, argument in steps:
        if step == "acquire":
            interest.acquire(str(argument))
            acquired.append(str(argument))
        elif step == "release" and acquired:
            pattern = acquired.pop(int(argument or 0) % len(acquired))
            interest.release(pattern, now_s)
        elif step == "begin fence" and fence is None:
            fence = interest.acknowledged
        elif step == "pass fence" and fence is not None:
            interest.mark_synced(fence)
            fence = None
        elif step == "unsubscribe":
            now_s += LINGER_S / 2
            dropped(interest, now_s)
        elif step == "subscribe":
            interest.to_subscribe()
        elif step == "acknowledge":
            for source in sorted(interest.requested)[:: int(argument or 1)]:
                interest.acknowledge(*source)
        elif step == "reconnect":
            interest.detach()
            interest.attach()
            active.clear()
            fence = None
        active &= set(acquired)
        of_topics = [command for command, name in interest.requested if not name.startswith(b"hg:{n}/")]
        assert interest.overlapping == (len(of_topics) > 1 and b"psubscribe" in of_topics)
        assert all(interest.active(pattern) for pattern in active)
        active = {pattern for pattern in acquired if interest.active(pattern)}
        assert active == set(acquired) or not interest.all_active
        for pattern in active:
            for topic in TOPICS:
                if matches(pattern, topic):
                    assert any(brings(source, name) for source in interest.requested for name in channels(topic)), (
                        pattern,
                        topic,
                    )
    for pattern in acquired:
        interest.release(pattern, now_s)
    assert settled(interest, now_s + LINGER_S) == {ANCHOR}


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("acquire"), st.sampled_from(NESTED)),
            st.tuples(st.just("release"), st.integers(0, 20)),
            st.tuples(st.sampled_from(["settle", "request"]), st.none()),
        ),
        min_size=10,
        max_size=40,
    ),
    st.booleans(),
)
def test_changes_add_up_to_what_all_sources_give(steps: list[tuple[str, str | int | None]], in_cluster: bool) -> None:
    """In any order, also when the whole feed is taken and left on the way."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "MAX_GLOBS", 4)
        patch.setattr(module, "MAX_CHANNELS", 8)
        patch.setattr(module, "MAX_LINGERING", 0)
        interest = Interest(N, sharded=in_cluster)
        interest.attach()
        held: list[str] = []
        for step, argument in steps:
            if step == "acquire":
                held.append(str(argument))
                interest.acquire(held[-1])
            elif step == "release" and held:
                interest.release(held.pop(int(argument or 0) % len(held)), 0.0)
            elif step == "request":
                interest.to_subscribe()
            else:
                settled(interest)
            if not interest._dirty:
                anew = copy.deepcopy(interest)
                anew._retarget()
                assert (interest._target, interest._fresh) == (anew._target, anew._fresh)
                assert (interest._excess, interest._broad) == (anew._excess, anew._broad)


@pytest.mark.parametrize("globs", [0, MAX_GLOBS - 2, 2 * MAX_GLOBS])
def test_a_glob_costs_the_same_however_many_sources_there_are(globs: int) -> None:
    """Coming and going, it is held against those of the same first word only; against none when the whole feed is taken."""

    def steps(users: int) -> int:
        interest = attached(*(f"users.{number}.#" for number in range(users)), *wildcards(globs))
        interest.to_unsubscribe(0)

        def come_and_go() -> None:
            interest.acquire("orders.*.paid")
            interest.to_subscribe()
            interest.release("orders.*.paid", 0)
            interest._forget(interest._lingering.popitem(last=False)[0])
            interest.to_subscribe()

        come_and_go()  # compiled once, for any number
        return steps_during(come_and_go)

    assert steps(2000) <= steps(20) + 20


def test_a_pattern_is_active_after_a_fence_that_began_behind_its_acknowledgement() -> None:
    """A fence does not cover it if its head was read before."""
    interest = attached()
    interest.acquire("orders.*")
    assert interest.to_subscribe() == [glob("orders.*")]
    early = interest.acknowledged
    interest.acknowledge(*glob("orders.*"))
    interest.mark_synced(early)
    assert not interest.active("orders.*")
    interest.mark_synced(interest.acknowledged)
    assert interest.active("orders.*")


def test_a_source_inside_a_new_glob_is_dropped_after_the_glob_is_synced() -> None:
    """It is requested again, and synced, before the glob is dropped."""
    interest = attached("orders.1")
    interest.acquire("orders.*")
    assert interest.to_subscribe() == [glob("orders.*")]
    assert interest.to_unsubscribe(0) == []
    interest.acknowledge(*glob("orders.*"))
    interest.mark_synced(interest.acknowledged)
    assert interest.to_unsubscribe(0) == [topic_source("orders.1")]

    interest.release("orders.*", 0)
    assert interest.to_unsubscribe(LINGER_S) == []
    assert interest.to_subscribe() == [topic_source("orders.1")]
    assert interest.active("orders.1")
    interest.acknowledge(*topic_source("orders.1"))
    interest.mark_synced(interest.acknowledged)
    assert interest.to_unsubscribe(LINGER_S) == [glob("orders.*")]


def test_a_source_outlives_its_last_client_by_a_moment() -> None:
    """A page that is loaded again does not wait for Redis."""
    interest = attached("orders.1")
    interest.release("orders.1", 10)
    assert interest.to_unsubscribe(10 + LINGER_S - 0.1) == []
    interest.acquire("orders.1")
    assert interest.to_subscribe() == []
    assert interest.active("orders.1")
    interest.release("orders.1", 20)
    assert interest.to_unsubscribe(20 + LINGER_S) == [topic_source("orders.1")]


def test_only_so_many_sources_linger(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that subscribes and leaves again without end costs Redis no more than that."""
    monkeypatch.setattr(module, "MAX_LINGERING", 3)
    topics = [f"t.{number}" for number in range(10)]
    interest = attached(*topics)
    for topic in topics:
        interest.release(topic, 0)
    assert set(interest.to_unsubscribe(0)) == {topic_source(topic) for topic in topics[:7]}


# The whole feed ----------------------------------------------------------------------------------------------------------


def wildcards(count: int) -> list[str]:
    """So many patterns that do not cover each other."""
    return [f"board{number}.*" for number in range(count)]


def test_above_so_many_globs_the_whole_feed_is_taken_until_they_are_half() -> None:
    """Redis compares every event of every namespace with every glob."""
    patterns = wildcards(MAX_GLOBS + 1)
    interest = attached("orders.1", *patterns[:-1])
    assert not interest.whole
    interest.acquire(patterns[-1])
    assert settled(interest) == EVERYTHING
    assert interest.whole
    for pattern in patterns[MAX_GLOBS // 2 + 1 :]:
        interest.release(pattern, 0)
    assert settled(interest, LINGER_S) == EVERYTHING
    interest.release(patterns[0], 0)
    assert settled(interest, LINGER_S) == {ANCHOR, topic_source("orders.1"), *map(glob, patterns[1 : MAX_GLOBS // 2 + 1])}
    assert not interest.whole


def test_above_so_many_channels_the_whole_feed_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each costs Redis memory, for every gateway."""
    monkeypatch.setattr(module, "MAX_CHANNELS", 3)
    interest = attached("t.1", "users.2.#")  # and the channel of no topic
    interest.acquire("t.4")
    assert settled(interest) == EVERYTHING


# Sharded channels -----------------------------------------------------------------------------------------------------------

FEED: Source = (b"ssubscribe", b"hg:{n}/feed")
# They bring a plain PUBLISH, which a Cluster forwards to every node.
PLAIN = EVERYTHING


def sharded(*names: str) -> set[Source]:
    """The sources of sharded channels, with the anchor, and the globs for plain ones."""
    return {*PLAIN, *((b"ssubscribe", name.encode()) for name in ("hg:{n}:", *names))}


def in_a_cluster(*patterns: str) -> Interest:
    """Return an interest in these patterns on a connection to a Cluster where every source is synced."""
    interest = Interest(N, sharded=True)
    for pattern in patterns:
        interest.acquire(pattern)
    interest.attach()
    settled(interest)
    return interest


@pytest.mark.parametrize(
    ("patterns", "requested"),
    [
        ([], sharded()),
        (["orders.1", "users.7.#"], sharded("hg:{n}:orders.1", "hg:{n}/users.7")),
        (["users.7.mail", "users"], sharded("hg:{n}:users", "hg:{n}/users.7")),
        (["*.7.mail"], {FEED, *PLAIN}),
        (["orders.1", "orders.*", "users.7.#"], {FEED, *PLAIN}),
        (["#"], {FEED, *PLAIN}),
        (["*.paid", "users.*"], {FEED, *PLAIN}),
    ],
)
def test_in_a_cluster_a_glob_takes_the_whole_feed(patterns: list[str], requested: set[Source]) -> None:
    """There are no sharded patterns."""
    interest = in_a_cluster(*patterns)
    assert settled(interest) == requested
    assert interest.whole == (FEED in requested)
    assert not interest.overlapping


def test_the_end_of_a_source_says_whether_it_was_asked_for() -> None:
    """Redis ends sharded subscriptions by itself when the slot leaves."""
    interest = in_a_cluster("orders.1", "orders.2")
    interest.release("orders.2", 0)
    assert interest.to_unsubscribe(LINGER_S) == [(b"ssubscribe", b"hg:{n}:orders.2")]
    assert interest.end(b"sunsubscribe", b"hg:{n}:orders.2")
    assert not interest.end(b"sunsubscribe", b"hg:{n}:orders.2")
    assert not interest.end(b"sunsubscribe", b"hg:{n}:orders.1")


def test_a_cluster_that_allows_nothing_else_gives_the_feed_channel() -> None:
    """Rights for globs are compared letter by letter, so that the one for plain channels may be refused."""
    interest = Interest(N, sharded=True)
    interest.acquire("orders.1")
    interest.attach()
    assert interest.narrow_refused()
    interest.detach()
    assert interest.attach() == [FEED]


# Commands ----------------------------------------------------------------------------------------------------------------


def flat(sources: Iterable[Source], **options: bool) -> list[tuple[bytes, ...]]:
    return sorted(by_command(sources, **options))


def test_sources_of_a_kind_go_in_one_command() -> None:
    """However many clients have come in one turn of the loop."""
    sources = [topic_source("a"), glob("b.*"), topic_source("c")]
    assert flat(sources) == [(b"PSUBSCRIBE", b"hg:{n}:b.*"), (b"SUBSCRIBE", b"hg:{n}:a", b"hg:{n}:c")]
    assert flat(sources, undo=True) == [(b"PUNSUBSCRIBE", b"hg:{n}:b.*"), (b"UNSUBSCRIBE", b"hg:{n}:a", b"hg:{n}:c")]
    assert by_command([]) == []
