"""The subscription matcher against the plain definition of matching, whatever the order of adds, removes and matches."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from headgate.delivery import matcher as module
from headgate.delivery.matcher import MAX_VACANT_PATTERNS, Audience, SubscriptionMatcher, _Pattern, _Union
from headgate.events.topic import MAX_TOPIC_WORDS, matches
from tests.support.steps import steps_during

# Few words, so that patterns meet, overlap and share branches; `b` is never subscribed to by name alone.
words = st.sampled_from(["a", "b", "constructor"])
topics = st.lists(words, min_size=1, max_size=4).map(".".join)
patterns = st.lists(st.one_of(words, st.sampled_from(["*", "#"])), min_size=1, max_size=4).map(".".join)
subscribers = st.integers(0, 4)


def reached(audience: Audience[int]) -> list[int]:
    return list(audience.clients)


def made_of(audience: Audience[int]) -> tuple[_Pattern[int], ...]:
    """The patterns of these clients."""
    if isinstance(audience, _Union):
        return audience.patterns
    assert isinstance(audience, _Pattern)
    return (audience,)


class TrieBesideAList(RuleBasedStateMachine):
    """The matcher, with caches so small that they always overflow, beside a plain mapping of subscriptions."""

    MAX_TOPICS, MAX_CLIENTS, MAX_VACANT = 6, 12, 3

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr("headgate.delivery.matcher.MAX_VACANT_PATTERNS", self.MAX_VACANT)
        self.patch.setattr("headgate.delivery.matcher._FEW", 2)
        # As many topics as patterns, from 2 to 6.
        self.patch.setattr("headgate.delivery.matcher.MIN_CACHED_TOPICS", 2)
        self.patch.setattr("headgate.delivery.matcher.MAX_FORGOTTEN", 1)
        self.matcher: SubscriptionMatcher[int] = SubscriptionMatcher(self.MAX_TOPICS, self.MAX_CLIENTS)
        self.model: dict[str, set[int]] = {}

    def teardown(self) -> None:
        self.patch.undo()

    @rule(pattern=patterns, subscriber=subscribers)
    def add(self, pattern: str, subscriber: int) -> None:
        assert self.matcher.add(pattern, subscriber) is (pattern not in self.model)
        self.model.setdefault(pattern, set()).add(subscriber)

    @rule(pattern=patterns, subscriber=subscribers)
    def remove(self, pattern: str, subscriber: int) -> None:
        was = self.model.get(pattern, set())
        last = was == {subscriber}
        assert self.matcher.remove(pattern, subscriber) is last
        was.discard(subscriber)
        if last:
            del self.model[pattern]

    @rule(data=st.data())
    def remove_one_that_is_there(self, data: st.DataObject) -> None:
        if self.model:
            pattern = data.draw(st.sampled_from(sorted(self.model)))
            self.remove(pattern, data.draw(st.sampled_from(sorted(self.model[pattern]))))

    @rule(topic=topics, times=st.integers(1, 3))
    def match(self, topic: str, times: int = 2) -> None:
        expected = {client for pattern, clients in self.model.items() if matches(pattern, topic) for client in clients}
        for _ in range(times):  # from the second time on it is remembered
            audience = self.matcher.match(topic)
            assert sorted(reached(audience)) == sorted(expected), "all that want it, each once, and nobody else"
            assert {each.text for each in made_of(audience)} == {
                each for each in self.matcher._patterns._values if matches(each, topic)
            }

    @rule()
    def match_all_that_is_remembered(self) -> None:
        for topic in sorted(self.matcher.known):
            self.match(topic)

    @rule(data=st.data(), subscriber=subscribers)
    def change_the_subscribers_of_a_remembered_topic(self, data: st.DataObject, subscriber: int) -> None:
        if self.matcher.known:
            topic = data.draw(st.sampled_from(sorted(self.matcher.known)))
            self.add(topic, subscriber)
            self.match(topic)
            self.remove(topic, subscriber)
            self.match(topic)

    @rule(topic=topics, pattern=patterns, subscriber=subscribers)
    def change_a_pattern_beside_a_remembered_topic(self, topic: str, pattern: str, subscriber: int) -> None:
        """A topic that begins with other words than the pattern keeps the very same audience, and that its list."""
        self.match(topic)
        audience = self.matcher.match(topic)
        clients = audience.clients
        vanishing = {vacant.text for vacant in self.matcher._vacant}
        self.add(pattern, subscriber)
        self.remove(pattern, subscriber)
        if not any(matches(each, topic) for each in {pattern, *vanishing}):
            kept = self.matcher.match(topic)
            # One of several patterns may have made room for another one.
            assert kept is audience or len(made_of(audience)) > 1
            assert kept.clients == clients
            assert audience.clients is clients or len(clients) > 1, "lists of several clients may have made room"
        self.match(topic)

    @invariant()
    def counts_what_is_there(self) -> None:
        assert len(self.matcher._patterns) - len(self.matcher._vacant) == len(self.model)
        assert self.matcher.subscriptions == sum(map(len, self.model.values()))
        vacant = {pattern.text for pattern in self.matcher._vacant}
        assert not vacant & set(self.model)
        assert len(vacant) <= self.MAX_VACANT
        assert set(self.matcher._patterns._values) == vacant | set(self.model)

    @invariant()
    def remembers_no_more_than_it_may(self) -> None:
        topics, unions = self.matcher._topics, self.matcher._unions
        assert topics.audiences is self.matcher.known
        assert sorted(topics._oldest_first) == topics._sorted == sorted(topics.audiences)
        assert not topics._candidates & topics.audiences.keys()
        assert len(topics.audiences) <= self.MAX_TOPICS
        assert len(topics._candidates) <= self.MAX_TOPICS
        assert len(unions) <= self.MAX_TOPICS
        assert all(union.patterns == patterns for patterns, union in unions.items())

    @invariant()
    def counts_the_lists_that_are_held(self) -> None:
        lists = self.matcher._lists
        sizes = {holder: len(holder._clients) for holder in lists._holders if holder._clients is not None}
        assert sizes == lists._holders
        assert len(sizes) <= self.MAX_TOPICS
        assert sum(sizes.values()) == lists._clients <= self.MAX_CLIENTS


TestTrieBesideAList = pytest.mark.no_cover(TrieBesideAList.TestCase)
TestTrieBesideAList.settings = settings(stateful_step_count=50)


# Remembered matches -----------------------------------------------------------------------------------------------------


def test_a_page_that_is_loaded_anew_makes_nobody_forget_anything() -> None:
    """Its patterns have waited for it, so the audiences are the same as before."""
    matcher: SubscriptionMatcher[int] = SubscriptionMatcher()
    matcher.add("users.1.#", 1)
    matcher.add("#", 2)
    audience = matcher.match("users.1.inbox")
    assert matcher.remove("users.1.#", 1)
    assert reached(matcher.match("users.1.inbox")) == [2]

    assert matcher.add("users.1.#", 3)
    assert matcher.match("users.1.inbox") is audience
    assert sorted(audience.clients) == [2, 3]


def test_patterns_that_nobody_comes_back_for_are_given_up() -> None:
    """Clients that invent patterns and leave cannot make the matcher grow; the one left first goes first."""
    matcher: SubscriptionMatcher[int] = SubscriptionMatcher()
    for number in range(3 * MAX_VACANT_PATTERNS):
        matcher.add(f"users.{number}.#", number)
        matcher.remove(f"users.{number}.#", number)

    assert [pattern.text for pattern in matcher._vacant] == [
        f"users.{number}.#" for number in range(2 * MAX_VACANT_PATTERNS, 3 * MAX_VACANT_PATTERNS)
    ]
    assert set(matcher._patterns._values) == {pattern.text for pattern in matcher._vacant}
    assert (len(matcher._patterns), matcher.subscriptions) == (len(matcher._vacant), 0)


@pytest.mark.parametrize("limit", [2, 3, 50])
def test_remembered_topics_and_audiences_are_bounded(limit: int) -> None:
    """A publisher that invents topics, and clients that invent patterns, cannot make the cache grow."""
    matcher: SubscriptionMatcher[int] = SubscriptionMatcher(max_cached_topics=limit)
    matcher.add("#", -1)
    for number in range(4 * limit):
        matcher.add(f"topic.{number}", number)
    for number in range(4 * limit):
        assert sorted(matcher.match(f"topic.{number}").clients) == [-1, number]
        matcher.match(f"topic.{number}")
        matcher.match(f"other.{number}")
        matcher.match(f"other.{number}")
        matcher.add(f"topic.{number}.#", number)
        matcher.match(f"topic.{number}")
        assert len(matcher.known) <= limit
        assert len(matcher._topics._candidates) <= limit
        assert len(matcher._unions) <= limit
    assert len(matcher.known) == limit


def test_a_gateway_of_many_users_remembers_a_topic_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many topics as patterns; when patterns go, so do topics, with the new ones."""
    monkeypatch.setattr(module, "MIN_CACHED_TOPICS", 10)
    monkeypatch.setattr(module, "MAX_VACANT_PATTERNS", 1)
    matcher: SubscriptionMatcher[int] = SubscriptionMatcher()
    for number in range(100):
        matcher.add(f"users.{number}.#", number)
    for number in range(100):
        matcher.match(f"users.{number}.mail")
        matcher.match(f"users.{number}.mail")
    assert len(matcher.known) == 100
    for number in range(90):
        matcher.remove(f"users.{number}.#", number)
    for number in range(100):
        matcher.match(f"orders.{number}")
        matcher.match(f"orders.{number}")
    assert len(matcher.known) == 11, "ten with a client, and the vacant one"


def test_a_topic_that_comes_once_is_not_remembered() -> None:
    """An order's or a message's own topic takes no place from those that come again; its second event may."""
    matcher: SubscriptionMatcher[int] = SubscriptionMatcher()
    matcher.add("orders.*", 1)
    for number in range(100):
        matcher.match(f"orders.{number}")
    assert not matcher.known

    matcher.match("orders.7")
    assert list(matcher.known) == ["orders.7"]


def test_a_burst_of_topics_that_come_twice_does_not_push_out_the_busy_ones() -> None:
    """A topic that comes up again is remembered for at least half as many new ones as there is room for."""
    matcher: SubscriptionMatcher[int] = SubscriptionMatcher(max_cached_topics=20)
    matcher.add("busy", 1)
    matcher.add("#", 2)
    busy = matcher.match("busy")
    matcher.match("busy")
    for number in range(200):
        matcher.match(f"twice.{number}")
        matcher.match(f"twice.{number}")
        if not number % 5:
            assert matcher.match("busy") is busy


def test_lists_of_clients_that_have_left_are_let_go_though_nobody_asks_for_them() -> None:
    """A quiet topic must not keep those in memory whom it once reached."""
    matcher: SubscriptionMatcher[int] = SubscriptionMatcher()
    matcher.add("#", -1)
    for number in range(100):
        matcher.add(f"rooms.{number}", number)
        assert sorted(matcher.match(f"rooms.{number}").clients) == [-1, number]
    for number in range(100):
        matcher.remove(f"rooms.{number}", number)
    # Each departure looks at one list.
    for number in range(200):
        matcher.add("news", number)
        matcher.remove("news", number)

    kept = {client for holder in matcher._lists._holders for client in holder._clients or ()}
    assert kept <= {-1}


@pytest.mark.parametrize("count", [1, 7, 8, 9, 30])
def test_a_pattern_with_few_subscribers_and_one_with_many_behave_alike(count: int) -> None:
    """In the order in which they came, each once, until all have left."""
    matcher: SubscriptionMatcher[int] = SubscriptionMatcher()
    for number in range(count):
        matcher.add("news.#", number)
        matcher.add("news.#", number)
    assert reached(matcher.match("news")) == list(range(count))
    for number in range(count):
        assert not matcher.remove("news.#", -1)
        assert matcher.remove("news.#", number) is (number == count - 1)
        assert reached(matcher.match("news")) == list(range(number + 1, count))


# Hostile patterns ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pattern", ["#.#.#.#.#.#.#.#", "#.a.#.a.#.a.#.a", "#.*.#.*.#.*.#.*", "#.#.#.#.#.#.#.b"])
def test_a_pattern_made_of_wildcards_costs_no_more_than_its_words_times_the_topics(pattern: str) -> None:
    """One hostile subscription must not make every new topic slow for everyone."""
    matcher: SubscriptionMatcher[int] = SubscriptionMatcher()
    matcher.add(pattern, 1)
    topic = ".".join("a" * MAX_TOPIC_WORDS)

    assert steps_during(lambda: matcher.match(topic)) <= 250


def test_a_client_that_brings_its_own_wildcard_costs_nothing_per_remembered_topic() -> None:
    """Connects must stay cheap when the cache is full, with three thousand a second as the aim."""
    matcher: SubscriptionMatcher[int] = SubscriptionMatcher()
    matcher.add("users.41.#", 1)
    for number in (*range(4000), *range(4000)):
        matcher.match(f"orders.{number}")

    assert len(matcher.known) == 4000
    assert steps_during(lambda: matcher.add("users.42.#", 1)) < 150
    assert steps_during(lambda: matcher.remove("users.42.#", 1)) < 150


@pytest.mark.parametrize("pattern", ["#", "orders.*", "#.orders.*", "*.*"])
def test_a_pattern_that_matches_everything_costs_little_when_much_is_remembered(pattern: str) -> None:
    """The topics are doubted, all at once, and looked up when they come up again, without a wrong answer before or after."""
    matcher: SubscriptionMatcher[int] = SubscriptionMatcher()
    topics = [f"orders.{number}" for number in range(4000)]
    matcher.add("orders.#", 1)
    for topic in topics * 2:
        matcher.match(topic)

    assert steps_during(lambda: matcher.add(pattern, 2)) <= 800
    assert all(sorted(matcher.match(topic).clients) == [1, 2] for topic in topics)
    assert len(matcher.known) == 4000, "remembered at once: they had come up before"
    matcher.remove(pattern, 2)
    assert all(matcher.match(topic).clients == (1,) for topic in topics)


def test_a_list_with_more_clients_than_all_lists_may_have_is_made_but_not_kept() -> None:
    """The bound holds, and the lists of others stay."""
    matcher: SubscriptionMatcher[int] = SubscriptionMatcher(max_listed_clients=10)
    matcher.add("#", -1)
    matcher.add("small", 1)
    for client in range(20):
        matcher.add("large", client)
    small = matcher.match("small").clients

    assert sorted(matcher.match("large").clients) == list(range(-1, 20))
    assert matcher.match("small").clients is small
    assert matcher._lists._clients == 2


def test_a_new_list_takes_the_place_of_others_and_not_of_all() -> None:
    """The rest of them stay, so that a crowd in one room does not rebuild the lists of all others."""
    matcher: SubscriptionMatcher[int] = SubscriptionMatcher(max_listed_clients=100)
    matcher.add("#", -1)
    for room in range(50):
        matcher.add(f"rooms.{room}", room)
    lists = [matcher.match(f"rooms.{room}").clients for room in range(50)]
    for client in range(9):
        matcher.add("large", client)

    assert len(matcher.match("large").clients) == 10
    assert matcher.match("large").clients is matcher.match("large").clients
    holders = {id(holder._clients) for holder in matcher._lists._holders}
    assert sum(id(clients) in holders for clients in lists) == 45
