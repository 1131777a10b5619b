"""Grants and deliveries together: no event outside a client's grants ever arrives. Brute force, without processes and Redis."""

from __future__ import annotations

import itertools
import random

import pytest

from headgate.auth.identity import Identity
from headgate.settings.settings import Settings
from tests.support.bus_position import stand_at
from tests.support.wired_client import EPOCH, NAMESPACE, WiredClient, event
from tests.unit.node.connections import namespace_of

WORDS = [".".join(words) for length in (1, 2, 3) for words in itertools.product("ab*#", repeat=length)]
TOPICS = [".".join(words) for length in (1, 2, 3, 4) for words in itertools.product("ab", repeat=length)]


def naive_match(pattern: list[str], topic: list[str]) -> bool:
    """The definition: `*` is one word, `#` is any number."""
    if not pattern:
        return not topic
    if pattern[0] == "#":
        return any(naive_match(pattern[1:], topic[skip:]) for skip in range(len(topic) + 1))
    return bool(topic) and pattern[0] in ("*", topic[0]) and naive_match(pattern[1:], topic[1:])


REACH = {pattern: {topic for topic in TOPICS if naive_match(pattern.split("."), topic.split("."))} for pattern in WORDS}


@pytest.mark.parametrize("seed", range(8))
def test_no_event_outside_a_clients_grants_ever_arrives(seed: int) -> None:
    """Clients with random grants ask for every pattern over a small alphabet; the arrivals are held against brute force.

    Each accepted pattern must lie inside the grants; each that lies inside a single grant must be accepted.
    """
    chance = random.Random(seed)
    namespace = namespace_of(NAMESPACE, Settings(max_subscriptions=512))
    stand_at(namespace.bus, EPOCH, 10, 1)
    clients = []
    for number in range(6):
        grants = chance.sample(WORDS, chance.randint(1, 3))
        wired = WiredClient({})
        client = namespace.join(f"s{number}", Identity(f"u{number}", tuple(grants)), wired.connection)
        wired.connection.owners = (client,)
        outcomes = namespace.subscriptions.add_all(client, [{"pattern": pattern} for pattern in WORDS])
        namespace.resume(client, None)
        accepted = {outcome for outcome in outcomes if isinstance(outcome, str)}
        granted = set().union(*(REACH[grant] for grant in grants))
        assert all(REACH[pattern] <= granted for pattern in accepted), (grants, accepted)
        # Topics of four words distinguish patterns of up to three, wildcards included.
        assert accepted == {pattern for pattern in WORDS if any(REACH[pattern] <= REACH[grant] for grant in grants)}
        clients.append((wired, set().union(*(REACH[pattern] for pattern in accepted))))
    offsets = range(11, 11 + len(TOPICS))
    stand_at(namespace.bus, EPOCH, offsets[-1])
    namespace.route([event(offset, topic) for offset, topic in zip(offsets, TOPICS, strict=True)])
    for wired, expected in clients:
        wired.drain()
        assert [topic for topic, *_ in wired.events] == [topic for topic in TOPICS if topic in expected]
        wired.close()
    namespace.close()
