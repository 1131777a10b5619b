"""Received or told, in order, once: clients, log readers and the live feed through random histories, with a naive oracle.

HEADGATE_HISTORIES sets how many histories, HEADGATE_SEED replays one. The oracle is tried on planted faults, too.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable

import pytest

from headgate.delivery.client import Client
from headgate.delivery.live_feed import LiveFeed
from headgate.delivery.log_readers import LogReaders
from headgate.delivery.state import Phase, Step
from tests.support.model_delivery import SMALL, World

HISTORIES = int(os.environ.get("HEADGATE_HISTORIES", "5000"))
STEPS = 200
# A planted fault is found within so many histories, or the oracle is no good; most within ten.
FAULT_HISTORIES = 5000


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages, chunks and turns of a pass so small that a short history meets their edges."""
    for module, name, value in SMALL:
        monkeypatch.setattr(module, name, value)


def history(seed: int) -> World:
    """Live through one history; an AssertionError carries its seed and its steps."""
    world = World(seed)
    try:
        for number in range(STEPS):
            world.step()
            if number % 5 == 0:
                world.check()
        world.settle()
    except Exception as error:
        error.add_note(f"HEADGATE_SEED={seed}: " + " ".join(world.trail))
        raise
    return world


@pytest.mark.timeout(300 + HISTORIES // 5)
def test_whatever_happens_an_event_is_received_in_order_and_once_or_told_before_anything_later() -> None:
    """Slow and polling browsers, full queues of every policy, pasts, resumes, trimmed and lost logs, lost messages."""
    one = os.environ.get("HEADGATE_SEED")
    seeds = [int(one)] if one else range(1, HISTORIES + 1)
    taken: Counter[str] = Counter()
    steps = 0
    for seed in seeds:
        world = history(seed)
        steps += world.steps
        for (_, step), count in world.taken.items():
            taken[step] += count
    print(f"{len(seeds)} histories, {steps} steps, {sum(taken.values())} steps of states: {dict(taken)}")
    if not one and HISTORIES >= 500:
        assert set(taken) == {step.value for step in Step}, "every step of the table is taken"


# The oracle bites --------------------------------------------------------------------------------------------------------

Fault = Callable[[pytest.MonkeyPatch], None]


def reads_from_one_too_late(patch: pytest.MonkeyPatch) -> None:
    """The first event that found no room is not read from the log."""
    read = Client._read

    def late(client: Client, step: Step, base: int, starts: dict[str, int]) -> None:
        read(client, step, base + (step is Step.FELL_BEHIND), starts)

    patch.setattr(Client, "_read", late)


def takes_live_events_below_the_handover_offset(patch: pytest.MonkeyPatch) -> None:
    """An event that the log has brought comes live as well."""
    reach_feed = Client.reach_feed

    def forget(client: Client) -> None:
        reach_feed(client)
        client.position = 0

    patch.setattr(Client, "reach_feed", forget)


def tells_no_gaps(patch: pytest.MonkeyPatch) -> None:
    """Events that a full queue left out are never told."""

    def forget(client: Client) -> None:
        client._gaps = None

    patch.setattr(Client, "_tell_gaps", forget)


def tells_gaps_late(patch: pytest.MonkeyPatch) -> None:
    """The event that `latest` kept comes ahead of the word of what is missing before it."""
    hand_over, tell = Client._hand_over_latest, Client._tell_gaps

    def late(client: Client) -> None:
        hand_over(client)
        tell(client)

    patch.setattr(Client, "_tell_gaps", late)


def ends_a_handover_within_a_pass(patch: pytest.MonkeyPatch) -> None:
    """A pass that began before writes past the queue, or once more."""

    def early(feed: LiveFeed, client: Client) -> None:
        client.feed_caught_up()

    patch.setattr(LiveFeed, "on_live", early)


def asks_for_a_past_within_a_pass(patch: pytest.MonkeyPatch) -> None:
    """The place of the client is not known there."""
    patch.setattr(LiveFeed, "between_passes", lambda feed, act: act())


def resumes_beside_what_waits(patch: pytest.MonkeyPatch) -> None:
    """Events that came in before the resume are in the log as well."""
    patch.setattr(Client, "forget_waiting", lambda client: None)


def is_live_while_its_patterns_are_at_different_places(patch: pytest.MonkeyPatch) -> None:
    """One pattern has reached the feed, another was further."""
    patch.setattr(Client, "even_from", 0)


def forgets_a_reader_whose_queue_has_drained(patch: pytest.MonkeyPatch) -> None:
    """It never reads on."""
    add = LogReaders.add

    def forget(readers: LogReaders, client: Client) -> None:
        if not client.connection.queue.peak_frames:
            add(readers, client)

    patch.setattr(LogReaders, "add", forget)


def keeps_readers_in_a_lost_log(patch: pytest.MonkeyPatch) -> None:
    """They go on at their offset of the old one."""
    lose_log = Client.lose_log

    def ignore(client: Client) -> None:
        if client.state.phase is not Phase.READING:
            lose_log(client)

    patch.setattr(Client, "lose_log", ignore)


FAULTS: list[Fault] = [
    reads_from_one_too_late,
    takes_live_events_below_the_handover_offset,
    tells_no_gaps,
    tells_gaps_late,
    ends_a_handover_within_a_pass,
    asks_for_a_past_within_a_pass,
    resumes_beside_what_waits,
    is_live_while_its_patterns_are_at_different_places,
    forgets_a_reader_whose_queue_has_drained,
    keeps_readers_in_a_lost_log,
]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_the_oracle_finds_a_client_that(fault: Fault, monkeypatch: pytest.MonkeyPatch) -> None:
    """A history that cannot fail proves nothing."""
    fault(monkeypatch)
    for seed in range(1, FAULT_HISTORIES + 1):
        try:
            history(seed)
        except (AssertionError, RuntimeError) as error:
            print(f"{fault.__name__}: history {seed}: {type(error).__name__}: {error}")
            return
    pytest.fail(f"{FAULT_HISTORIES} histories passed")
