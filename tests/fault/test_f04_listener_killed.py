"""F4: Redis cuts the gateway's listening connection, by hand or because its output buffer is full."""

import contextlib
import time
from collections.abc import Callable, Iterator

from tests.fault.figures import Figures
from tests.fault.many_clients import Swarm
from tests.fault.sightings import disconnects, since, told_by_all
from tests.fault.site import DEADLINE_S, Site, publish_burst, topics_of, wait_for, wait_until_had
from tests.support.redis_server import wait_until


def test_killed_connections_are_repaired_from_the_log(site: Site, start_swarm: Callable[..., Swarm], figures: Figures) -> None:
    """CLIENT KILL, again and again, in the middle of the load."""
    swarm = start_swarm()
    kills = 100 if site.load.name == "full" else 10
    repairs_s: list[float] = []
    with site.publishing() as publishing:
        for _ in range(kills):
            publishing.wait_for(2)
            wait_for(lambda: len(_listening(site)) >= len(site.gateways), "every gateway to listen")
            killed_s = time.monotonic()
            assert site.redis.call("CLIENT", "KILL", "TYPE", "pubsub") > 0
            swarm.wait(lambda killed_s=killed_s: told_by_all(swarm, "bus up", killed_s), "the listeners to be back")  # type: ignore[misc]
            repairs_s.append(max(since(record, "bus up", killed_s) for record in swarm.records))
        history = publishing.stop()
    site.come_to_rest(swarm, history)
    assert not disconnects(swarm)
    figures(
        "F4",
        f"CLIENT KILL × {kills}: longest until all clients were told that the bus is up",
        1000 * max(repairs_s),
        "ms",
        "≤ 500 ms",
    )


def test_an_output_buffer_that_overflowed_is_repaired_from_the_log(
    site: Site, start_swarm: Callable[..., Swarm], figures: Figures
) -> None:
    """A gateway does not take Redis' messages, and Redis keeps only so much for a listener."""
    swarm = start_swarm()
    filler = topics_of(0)[-1].replace("*", "more.filler")  # in the glob of a client of the first gateway, not in its pattern
    with small_output_buffers(site), site.publishing() as publishing:
        publishing.wait_for(5)
        # Which they are, not how many, as one that broke by itself may come back in between. (It listens for revocations, too.)
        listeners = wait_until(lambda: site.proxies[0].dialled_from() & _listening(site), "the gateway to listen", DEADLINE_S)
        site.proxies[0].pause()
        # Listened to and unwanted, so that they cost the clients nothing; the load's own events come between them. More than the
        # kernel holds (4.5 MB) and Redis may (2 MB); small ones, as Valkey 9 counts large ones by reference only.
        publish_burst(site.redis.url, publishing.history, 8000, 1024, topic=filler)
        wait_for(lambda: listeners - _listening(site), "Redis to cut the listener")
        site.proxies[0].heal()
        went_on_s = time.monotonic()
        epoch, head = site.head()
        wait_until_had(swarm, publishing.history, epoch, head)
        repaired_s = time.monotonic() - went_on_s
        history = publishing.stop()
    site.come_to_rest(swarm, history)
    figures("F4", "output buffer overflowed, 8 MB: until every client had all events", repaired_s, "s", "0 lost")


@contextlib.contextmanager
def small_output_buffers(site: Site) -> Iterator[None]:
    """Redis keeps little for a listener; as much as before for those of the next test."""
    name, limits = site.redis.call("CONFIG", "GET", "client-output-buffer-limit")
    site.redis.call("CONFIG", "SET", name, "pubsub 2mb 1mb 5")
    try:
        yield
    finally:
        site.redis.call("CONFIG", "SET", name, limits)


def _listening(site: Site) -> set[int]:
    """Return the ports that listeners have connected from."""
    words = site.redis.call("CLIENT", "LIST", "TYPE", "pubsub").decode().split()
    return {int(word.rpartition(":")[2]) for word in words if word.startswith("addr=")}
