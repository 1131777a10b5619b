"""F8: a burst of large events to browsers that read as fast as they can."""

import contextlib
import time

from tests.fault.checker import History
from tests.fault.figures import Figures
from tests.fault.many_clients import Swarm
from tests.fault.sightings import disconnects
from tests.fault.site import Site, publish_burst

EVENTS, PAYLOAD_BYTES = 500, 65_000


def test_a_healthy_reader_is_never_cut(site: Site, figures: Figures) -> None:
    """More than its queue holds, faster than it is read, so at worst it catches up from the log."""
    readers = Swarm(site.urls, 4, lambda index: ["load.#"], name="reader").open()
    history = History()
    with contextlib.closing(readers):
        began_s = time.monotonic()
        publish_burst(site.redis.url, history, EVENTS, PAYLOAD_BYTES)
        site.come_to_rest(readers, history)
        took_s = time.monotonic() - began_s
        assert not disconnects(readers)
        assert not any(record.gaps() for record in readers.records)
    figures("F8", "500 × 64 KB to 4 browsers: until each had them all", took_s, "s", "0 lost, 0 disconnects (checked)")
