"""The concurrent subscription trie: the product's answers, also when operations meet in the middle of each other."""

from __future__ import annotations

import functools
import itertools
import random
import sys
import threading
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.topics import concurrent
from bench.topics.concurrent import ConcurrentTrie, Snapshot
from bench.topics.persistent_map import PersistentMap
from headgate.delivery.matcher import SubscriptionMatcher
from headgate.events.topic import matches

words = st.sampled_from(["a", "b"])
topics = st.lists(words, min_size=1, max_size=4).map(".".join)
patterns = st.lists(st.one_of(words, st.sampled_from(["*", "#"])), min_size=1, max_size=4).map(".".join)
changes = st.tuples(st.sampled_from(["subscribe", "unsubscribe"]), patterns, st.integers(0, 2))
ALL_TOPICS = [".".join(each) for count in (1, 2, 3, 4) for each in itertools.product("ab", repeat=count)]


def change(trie: ConcurrentTrie, verb: str, pattern: str, subscriber: int) -> None:
    """Subscribe or unsubscribe."""
    (trie.subscribe if verb == "subscribe" else trie.unsubscribe)(pattern, subscriber)


def answers(trie: ConcurrentTrie | Snapshot) -> list[set[int]]:
    """All that can be asked."""
    return [trie.match(topic) for topic in ALL_TOPICS]


class Model:
    """A set of subscriptions."""

    def __init__(self) -> None:
        self.there: set[tuple[str, int]] = set()

    def change(self, verb: str, pattern: str, subscriber: int) -> None:
        (self.there.add if verb == "subscribe" else self.there.discard)((pattern, subscriber))

    def answers(self) -> list[set[int]]:
        return [{subscriber for pattern, subscriber in self.there if matches(pattern, topic)} for topic in ALL_TOPICS]


@settings(deadline=None)
@given(st.lists(st.one_of(changes, st.just("snapshot")), max_size=40))
def test_it_gives_the_answers_of_the_gateways_matcher(steps: list[tuple[str, str, int] | str]) -> None:
    """One thread, any order; each snapshot keeps the answers of its moment; nothing is left at the end."""
    trie, product = ConcurrentTrie(), SubscriptionMatcher[int]()
    snapshots: list[tuple[Snapshot, list[set[int]]]] = []
    there: set[tuple[str, int]] = set()
    for step in steps:
        if isinstance(step, str):
            snapshots.append((trie.snapshot(), answers(trie)))
            continue
        verb, pattern, subscriber = step
        change(trie, verb, pattern, subscriber)
        if verb == "subscribe":
            product.add(pattern, subscriber)
            there.add((pattern, subscriber))
        else:
            product.remove(pattern, subscriber)
            there.discard((pattern, subscriber))
        assert answers(trie) == [set(product.match(topic).clients) for topic in ALL_TOPICS]
    assert all(answers(snapshot) == then for snapshot, then in snapshots)
    for pattern, subscriber in there:
        trie.unsubscribe(pattern, subscriber)
    assert trie.empty


# In the middle of each other, one thread --------------------------------------------------------------------------------------


class Interruption:
    """Runs something before or behind the compare-and-swap with a given number: as a thread that comes between."""

    def __init__(self, number: int, work: Callable[[], None], *, behind: bool) -> None:
        self.left = number
        self.work = work
        self.behind = behind
        self.swap = concurrent._swap

    def __call__(self, cell: object, name: str, expected: object, new: object) -> bool:
        self.left -= 1
        its_turn = self.left == -1
        if its_turn and not self.behind:
            self.work()
        swapped = self.swap(cell, name, expected, new)
        if its_turn and self.behind:
            self.work()
        return swapped


@settings(max_examples=150, deadline=None)
@given(
    st.lists(changes, max_size=8),
    changes,
    st.integers(0, 3),
    st.booleans(),
    st.lists(st.one_of(changes, st.just("snapshot")), min_size=1, max_size=3),
)
def test_a_change_between_the_steps_of_another_is_lost_in_neither(
    before: list[tuple[str, str, int]],
    interrupted: tuple[str, str, int],
    at: int,
    behind: bool,
    between: list[tuple[str, str, int] | str],
) -> None:
    """The interrupted change takes effect at one moment: before, within, or after those that come between."""
    trie, model = ConcurrentTrie(), Model()
    for step in before:
        change(trie, *step)
        model.change(*step)
    taken: list[tuple[Snapshot, list[set[int]]]] = []

    def interrupt() -> None:
        for step in between:
            if isinstance(step, str):
                snapshot = trie.snapshot()
                taken.append((snapshot, answers(snapshot)))
            else:
                change(trie, *step)

    # Each moment at which it may have taken effect, with what the snapshots and the trie then answer.
    possible = []
    for moment in range(len(between) + 1):
        other = Model()
        other.there = set(model.there)
        seen = []
        for number, event in enumerate([*between, "end"]):
            if number == moment:
                other.change(*interrupted)
            if event == "snapshot":
                seen.append(other.answers())
            elif not isinstance(event, str):
                other.change(*event)
        possible.append((seen, other.answers()))
    interruption = Interruption(at, interrupt, behind=behind)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(concurrent, "_swap", interruption)
        change(trie, *interrupted)
    if interruption.left >= 0:
        interrupt()  # it was over before that: they come behind it
    assert ([then for _, then in taken], answers(trie)) in possible
    assert all(answers(snapshot) == then for snapshot, then in taken), "a snapshot has changed"


@settings(deadline=None)
@given(st.lists(changes, max_size=8), st.lists(changes, min_size=1, max_size=3), st.integers(0, 2), st.booleans())
def test_a_snapshot_that_meets_a_change_has_all_of_it_or_nothing(
    before: list[tuple[str, str, int]], between: list[tuple[str, str, int]], at: int, behind: bool
) -> None:
    """It is the state at one moment between its beginning and its end."""
    trie, model = ConcurrentTrie(), Model()
    for step in before:
        change(trie, *step)
        model.change(*step)
    states = [model.answers()]

    def interrupt() -> None:
        for step in between:
            change(trie, *step)
            model.change(*step)
            states.append(model.answers())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(concurrent, "_swap", Interruption(at, interrupt, behind=behind))
        snapshot = trie.snapshot()
    then = answers(snapshot)
    assert then in states
    assert answers(trie) == states[-1]
    trie.subscribe("#", 9)
    assert answers(snapshot) == then


# Threads ---------------------------------------------------------------------------------------------------------------------


class Stay(NamedTuple):
    """One subscription, in numbers of the common order: between which it may be there, and between which it surely is."""

    pattern: str
    subscriber: int
    may_from: int
    sure_from: int
    sure_to: int
    may_to: int


class Match(NamedTuple):
    """One answer, and when it was asked for and given."""

    topic: str
    begun: int
    ended: int
    found: set[int]


@pytest.fixture
def rapid_switches() -> Iterator[None]:
    """Threads take turns as often as the interpreter lets them."""
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval_s)


@pytest.mark.usefixtures("rapid_switches")
def test_threads_find_what_is_there_and_nothing_else() -> None:
    """A match finds every pattern that is there all the while, and none that never is; snapshots never change."""
    trie = ConcurrentTrie()
    order = itertools.count()  # its next number is one step, whoever asks
    stays: list[Stay] = []
    found: list[Match] = []
    snapshots: list[tuple[Snapshot, list[set[int]]]] = []
    few = ["a", "a.b", "a.*", "#", "#.b", "b.#", "*.b.#", "a.#.b", "*.*", "#.a.#"]
    writing = threading.Event()
    writing.set()

    def write(number: int) -> None:
        draw = random.Random(number)
        for _ in range(150):
            # A subscriber of this thread alone, so that nobody else ends its subscriptions.
            pattern, subscriber = draw.choice(few), number * 4 + draw.randrange(4)
            may_from = next(order)
            trie.subscribe(pattern, subscriber)
            sure_from = next(order)
            if draw.random() < 0.5:
                trie.subscribe(draw.choice(few), -1)
                trie.unsubscribe(draw.choice(few), -1)
            sure_to = next(order)
            trie.unsubscribe(pattern, subscriber)
            stays.append(Stay(pattern, subscriber, may_from, sure_from, sure_to, next(order)))

    def read(number: int) -> None:
        draw = random.Random(-number)
        while writing.is_set():
            topic = draw.choice(ALL_TOPICS)
            begun = next(order)
            answer = trie.match(topic)
            found.append(Match(topic, begun, next(order), answer))

    def take() -> None:
        while writing.is_set():
            snapshot = trie.snapshot()
            snapshots.append((snapshot, answers(snapshot)))

    writers = [threading.Thread(target=write, args=(number,)) for number in range(3)]
    others = [*(threading.Thread(target=read, args=(number,)) for number in (1, 2)), threading.Thread(target=take)]
    for thread in [*others, *writers]:
        thread.start()
    for thread in writers:
        thread.join()
    writing.clear()
    for thread in others:
        thread.join()

    assert found
    assert snapshots
    for match in found[:: max(1, len(found) // 2000)]:
        near = [
            stay
            for stay in stays
            if stay.may_from < match.ended and stay.may_to > match.begun and matches(stay.pattern, match.topic)
        ]
        possible = {stay.subscriber for stay in near}
        certain = {stay.subscriber for stay in near if stay.sure_from < match.begun and stay.sure_to > match.ended}
        assert certain <= match.found <= possible | {-1}
    for snapshot, then in snapshots[:: max(1, len(snapshots) // 50)]:
        assert answers(snapshot) == then
    for pattern in few:
        trie.unsubscribe(pattern, -1)
    assert trie.empty


@pytest.mark.usefixtures("rapid_switches")
def test_threads_lose_no_subscription_to_each_other() -> None:
    """Eight threads at the same nodes: all of them are there, and then none."""
    trie = ConcurrentTrie()

    def at_once(work: Callable[[str, int], None]) -> None:
        def each(number: int) -> None:
            for turn in range(60):
                work(f"users.{turn}.#", number)
                work("#", number * 1000 + turn)

        threads = [threading.Thread(target=each, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    at_once(trie.subscribe)
    watching = {number * 1000 + turn for number in range(8) for turn in range(60)}
    assert trie.match("other") == watching
    assert all(trie.match(f"users.{turn}") == watching | set(range(8)) for turn in range(60))
    at_once(trie.unsubscribe)
    assert trie.empty


class Call(NamedTuple):
    """One change, or one snapshot with what it answers; and when it began and ended, in numbers of the common order."""

    begun: int
    ended: int
    step: tuple[str, str, int] | None
    found: list[set[int]] | None


def linearizable(calls: list[Call]) -> bool:
    """Return whether each call can have had its effect at one moment between its beginning and its end."""

    @functools.cache
    def from_here(left: frozenset[int], there: frozenset[tuple[str, int]]) -> bool:
        if not left:
            return True
        first_end = min(calls[number].ended for number in left)
        for number in left:
            call = calls[number]
            if call.begun > first_end:
                continue  # another one was over before it began
            model = Model()
            model.there = set(there)
            if call.step is not None:
                model.change(*call.step)
            elif model.answers() != call.found:
                continue
            if from_here(left - {number}, frozenset(model.there)):
                return True
        return False

    return from_here(frozenset(range(len(calls))), frozenset())


def test_the_check_of_histories_knows_an_order_from_none() -> None:
    """A snapshot behind a change that is over has it; one during the change may have it or not; two agree."""
    nothing, one = Model(), Model()
    one.change("subscribe", "a", 1)
    change_ = Call(1, 4, ("subscribe", "a", 1), None)
    without, having = nothing.answers(), one.answers()
    assert linearizable([change_, Call(2, 3, None, without), Call(5, 6, None, having)])
    assert linearizable([change_, Call(2, 3, None, having)])
    assert not linearizable([change_, Call(5, 6, None, without)])
    assert not linearizable([change_, Call(0, 2, None, having), Call(3, 5, None, without)])


@pytest.mark.usefixtures("rapid_switches")
def test_random_histories_of_threads_have_an_order_that_explains_them() -> None:
    """Changes of the same subscriptions and snapshots, by three threads at once, as if they had come one by one."""
    draw = random.Random(6)
    few = [("a", 0), ("a.b", 0), ("a.b", 1), ("#.b", 0), ("a.*", 1)]
    for _ in range(60):
        trie, order = ConcurrentTrie(), itertools.count()
        calls: list[Call] = []
        plans = [
            [None if draw.random() < 0.4 else (draw.choice(["subscribe", "unsubscribe"]), *draw.choice(few)) for _ in range(5)]
            for _ in range(3)
        ]
        together = threading.Barrier(len(plans))

        def follow(
            plan: list[tuple[str, str, int] | None],
            trie: ConcurrentTrie = trie,
            order: Iterator[int] = order,
            calls: list[Call] = calls,
            together: threading.Barrier = together,
        ) -> None:
            together.wait()
            for step in plan:
                begun = next(order)
                if step is not None:
                    change(trie, *step)
                    calls.append(Call(begun, next(order), step, None))
                else:
                    snapshot = trie.snapshot()
                    ended = next(order)
                    calls.append(Call(begun, ended, None, answers(snapshot)))

        threads = [threading.Thread(target=follow, args=(plan,)) for plan in plans]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        calls.append(Call(next(order), next(order), None, answers(trie)))
        assert linearizable(calls), calls


# The map -----------------------------------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 400)), max_size=300), st.integers(0, 400))
def test_the_map_is_one_and_earlier_ones_stay_as_they_were(steps: list[tuple[bool, int]], at_first: int) -> None:
    """At every size: its keys are spread over more and fewer dicts."""
    map_: PersistentMap[int, int] = PersistentMap()
    model: dict[int, int] = {}
    for key in range(at_first):
        map_ = map_.including(key, -key)
        model[key] = -key
    earlier, then = map_, dict(model)
    for number, (add, key) in enumerate(steps):
        if add:
            map_ = map_.including(key, number)
            model[key] = number
        elif key in model:
            map_ = map_.without(key)
            del model[key]
    for each, expected in ((map_, model), (earlier, then)):
        assert sorted(each) == sorted(expected)
        assert len(each) == len(expected)
        assert sorted(each.values()) == sorted(expected.values())
        assert all(each.get(key) == expected.get(key) for key in range(401))
