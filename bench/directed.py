"""Events for few clients out of many: a user's own, and topics that a few listen to. The load generator draws the address of each
event at random, evenly, the same for every server, and accounts for each client apart (load/audience.h).
"""

from __future__ import annotations

from .scenario import Row, Run, checked, latency
from .stage import Audience, stage
from .variants import Variant


def own(users: int) -> Audience:
    """As many clients as users, each listening to what is its own."""
    return Audience("own", [(user,) for user in range(users)])


def topics(clients: int, each: int, of: int) -> Audience:
    """Clients that listen to `each` exact topics out of `of`, each topic with equally many (if they add up)."""
    return Audience("topics", [[(client * each + nth) % of for nth in range(each)] for client in range(clients)])


def wildcards(clients: int, each: int, of: int) -> Audience:
    """The same with patterns that hold a wildcard instead of exact topics."""
    return Audience("wildcards", topics(clients, each, of).clients)


def capacity(audience: Audience, size_bytes: int, window: int) -> Run:
    """Closed loop: `window` events under way; events per second of the server's CPU."""

    def run(variant: Variant, quick: bool) -> Row:
        warm_s, measure_s = (1, 3) if quick else (2, 8)
        with stage(variant, size_bytes=size_bytes, room=len(audience.clients), audience=audience) as on:
            on.generator.connects(len(audience.clients))
            answer = on.generator.ask("window", window, warm_s * 1000, measure_s * 1000, takes_s=warm_s + measure_s)
            row = checked(answer)
            server_cpu_s = max(answer["server_cpu_s"], 1e-3)
            row["events_per_cpu_s"] = round(answer["published"] / server_cpu_s)
            row["deliveries_per_cpu_s"] = round(answer["deliveries"] / server_cpu_s)
            row["events_per_s"] = round(answer["published"] / answer["seconds"])
            return row

    return run


def schedule(audience: Audience, size_bytes: int, events_per_s: float) -> Run:
    """Open loop at a fixed rate: the latency of every delivery, from the planned time of its event."""

    def run(variant: Variant, quick: bool) -> Row:
        warm_s, measure_s = (1, 5) if quick else (3, 20)
        with stage(variant, size_bytes=size_bytes, room=len(audience.clients), audience=audience) as on:
            on.generator.connects(len(audience.clients))
            on.generator.ask("open", events_per_s, warm_s * 1000, takes_s=warm_s)
            answer = on.generator.ask("open", events_per_s, measure_s * 1000, takes_s=measure_s)
            return checked(answer) | latency(answer)

    return run
