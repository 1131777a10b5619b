"""The workload of a gateway: many clients that come and go, and events for some of them.

A client has four subscriptions: its own topics (`users.<id>.#`), its inbox (`inbox.<id>`), the shipped orders of one of 500
shops (`shops.<shop>.orders.*.shipped`), and one of 1,000 rooms (`rooms.<room>.#`). One in a thousand is a console that
watches `#` besides. The client that has been there for longest leaves, another one comes; between two changes there is one
match, or 99. Every other one that comes is one that left a hundred clients ago: a page that is loaded anew. All others have
never been here. Matches are of topics that somebody gets: half of them are about rooms, a quarter about orders, of which
every other one is an order that nobody has seen before, and a quarter are for a single client. The clients that came last get
the most.
"""

from __future__ import annotations

import itertools
import random
from collections import deque
from collections.abc import Iterator

SHOPS, ROOMS = 500, 1000
CONSOLE_EVERY = 1000
RELOAD_AFTER_CLIENTS = 100
# (kind, pattern or topic, client)
Operation = tuple[str, str, int]
MATCH, SUBSCRIBE, UNSUBSCRIBE = "match", "subscribe", "unsubscribe"


def subscriptions(client: int, consoles: bool = True) -> list[str]:
    """Return the patterns of a client; without consoles nobody watches `#`."""
    patterns = [
        f"users.{client}.#",
        f"inbox.{client}",
        f"shops.s{client % SHOPS}.orders.*.shipped",
        f"rooms.r{client * 7 % ROOMS}.#",
    ]
    return [*patterns, "#"] if consoles and client % CONSOLE_EVERY == 0 else patterns


def hot_topics(clients: int) -> list[str]:
    """Return a thousand topics that the first clients get."""
    return [topic for client in range(min(clients, 250)) for topic in _topics(client, 1)]


def operations(clients: int, seed: int, matches_per_change: int = 1, consoles: bool = True) -> Iterator[Operation]:
    """Yield operations without end, beginning when the first `clients` clients are there."""
    draw = random.Random(seed)
    present, away = deque(range(clients)), deque[int]()
    fresh = itertools.count(clients)
    order = itertools.count(10)
    for turn in itertools.count():
        leaving = present.popleft()
        away.append(leaving)
        coming = away.popleft() if len(away) > RELOAD_AFTER_CLIENTS and turn % 2 else next(fresh)
        if len(away) > 2 * RELOAD_AFTER_CLIENTS:
            away.popleft()
        changes = [(UNSUBSCRIBE, pattern, leaving) for pattern in subscriptions(leaving, consoles)]
        changes += [(SUBSCRIBE, pattern, coming) for pattern in subscriptions(coming, consoles)]
        present.append(coming)
        for change in changes:
            yield change
            for _ in range(matches_per_change):
                # The newest are the busiest: the square of a uniform number, so that a tenth of them gets a third of the events.
                busy = present[-1 - int(len(present) * draw.random() ** 2)]
                topics = _topics(busy, next(order) if draw.random() < 0.5 else 1)
                yield MATCH, draw.choices(topics, (1, 1, 2, 4))[0], busy


def _topics(client: int, order: int) -> list[str]:
    return [
        f"users.{client}.alerts",
        f"inbox.{client}",
        f"shops.s{client % SHOPS}.orders.{order}.shipped",
        f"rooms.r{client * 7 % ROOMS}.chat",
    ]
