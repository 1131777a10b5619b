"""F14: ten times as much is published as usual, by back ends into Redis and by one caller over HTTP."""

import http.client
import json
import time
from collections.abc import Callable
from dataclasses import replace

from tests.fault.checker import History
from tests.fault.figures import Figures
from tests.fault.many_clients import Swarm
from tests.fault.sightings import disconnects
from tests.fault.site import TOPICS, Publishing, Site, wait_for, wait_until_had
from tests.fault.until_stopped import UntilStopped
from tests.fault.usage import resident_bytes

TIMES = 10
# As long as clients in one Python process can follow, which at full load is 50,000 deliveries a second.
FLOOD_S = 3


class HttpFlood(UntilStopped):
    """Publishes over HTTP as fast as it is answered, in a separate thread, until it ends.

    Attributes:
        refused: the ids of those that were answered with 429.
        errors: any other answer.
    """

    def __init__(self, site: Site, history: History) -> None:
        super().__init__()
        self._address, self._history = site.urls[0].removeprefix("http://"), history
        self.published = 0
        self.refused: list[str] = []
        self.errors: list[str] = []

    def _work(self) -> None:
        connection = http.client.HTTPConnection(self._address, timeout=30)
        number = 0
        while not self._stopped.is_set():
            number += 1
            topic, event_id = f"load.t{number % TOPICS}.changed", f"http-{number}-{id(self)}"
            body = json.dumps({"topic": topic, "data": {"id": event_id, "at_s": time.monotonic()}, "id": event_id})
            connection.request("POST", "/api/v1/events", body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            answer = json.load(response)
            if response.status == 201:
                self.published += 1
                self._history.published(answer["epoch"], answer["offset"], topic, event_id)
            elif response.status == 429 and response.headers["Retry-After"]:
                self.refused.append(event_id)
            else:
                self.errors.append(f"{response.status} {answer}")
                break
        connection.close()


def test_a_flood_is_delivered_or_refused_and_over_when_it_ends(
    site: Site, start_swarm: Callable[..., Swarm], figures: Figures
) -> None:
    """Every event with a receipt reaches every client once and in order, a refused one none; memory stays where it was."""
    swarm = start_swarm()
    memory = [resident_bytes(gateway.pid) for gateway in site.gateways]
    flood = Publishing(site.redis.url, replace(site.load, per_s=TIMES * site.load.per_s))
    with flood, HttpFlood(site, flood.history) as over_http:
        flood.wait_for(int(TIMES * site.load.per_s * min(FLOOD_S, site.load.offline_s)), 60)
        wait_for(lambda: len(over_http.refused) >= 20 or over_http.errors, "the caller to be refused")
    history = flood.stop()
    normal_s = wait_until_had(swarm, history, *site.head(), 60)
    grown = max(resident_bytes(gateway.pid) - before for gateway, before in zip(site.gateways, memory, strict=True))
    site.come_to_rest(swarm, history)
    logged = {event.id for event in history.events.values()}
    assert not over_http.errors
    assert over_http.published
    assert not logged.intersection(over_http.refused)
    assert not disconnects(swarm)
    figures("F14", "over HTTP: refused with 429", len(over_http.refused), "", "all above the limit, none in the log (checked)")
    figures(
        "F14", f"{TIMES} × 50 events/s: growth of a gateway per client", grown / len(swarm.clients) / 2**20, "MiB", "≤ 1.2 MiB"
    )
    figures("F14", "after the flood, until every client had everything", normal_s, "s", "≤ 10 s")
