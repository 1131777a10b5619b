"""The listener on a real Cluster: sharded channels, a slot that moves under publishing, and a dying node.

One Cluster of three primaries, each with a replica, serves all tests; each takes a separate namespace.
"""

import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

import pytest
import redis

from headgate.delivery.bus import listener
from headgate.errors import BusUnavailable
from headgate.redis.cluster import slot_of
from headgate.redis.keys import channel, log_key
from headgate.services.publisher import Publisher, Receipt
from headgate.settings.settings import Settings
from tests.support.bus_here import BusHere, CooperativeLink
from tests.support.clusters import Cluster, start_cluster

WHOLE, EXACT = ("#",), ("orders.1", "orders.2", "users.7.#")
EITHER = pytest.mark.parametrize("patterns", [WHOLE, EXACT], ids=["whole", "exact"])
TOPICS = ("orders.1", "users.7.mail", "orders.2")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three primaries with a replica each."""
    with start_cluster(tmp_path_factory.mktemp("cluster") / "nodes", 3, 1) as cluster:
        yield cluster


StartBus = Callable[..., BusHere]


@pytest.fixture
def start_bus(monkeypatch: pytest.MonkeyPatch, cluster: Cluster) -> Iterator[StartBus]:
    """Start a listener and wait until it is up: `start_bus(namespace, "orders.*")`."""
    monkeypatch.setattr(listener, "SubscriberLink", CooperativeLink)
    started: list[BusHere] = []

    def start(namespace: str, *patterns: str) -> BusHere:
        bus = BusHere(cluster.url, patterns, Settings(fence_interval_s=0.2), namespace)
        started.append(bus)
        bus.wait_for(lambda: bus.bus.up, "the bus to be up")
        bus.told.clear()
        return bus

    yield start
    for bus in started:
        bus.bus.close()


class Publishing(threading.Thread):
    """A publisher that goes on until `stop`; a refused event is published again, with its id.

    Attributes:
        receipts: of each event.
        refused: how often one was.
    """

    def __init__(self, url: str, namespace: str) -> None:
        super().__init__(daemon=True)
        self._url, self._namespace = url, namespace
        self._stopped = threading.Event()
        self.receipts: list[Receipt] = []
        self.refused = 0

    def run(self) -> None:
        with closing(Publisher(self._url, namespace=self._namespace, timeout_s=0.3)) as publisher:
            while not self._stopped.wait(0.002):
                number = len(self.receipts)
                try:
                    self.receipts.append(publisher.publish(TOPICS[number % 3], number, id=f"e{number}"))
                except BusUnavailable:
                    self.refused += 1

    def goes_on(self, events: int = 20) -> Callable[[], bool]:
        """Return a function that checks whether more than so many further events have receipts."""
        goal = len(self.receipts) + events
        return lambda: len(self.receipts) > goal

    def is_refused_again(self) -> Callable[[], bool]:
        """Return a function that checks whether an event has been refused from now on."""
        before = self.refused
        return lambda: self.refused > before

    def stop(self) -> list[int]:
        self._stopped.set()
        self.join()
        return [receipt.offset for receipt in self.receipts]


@contextmanager
def publishing(cluster: Cluster, bus: BusHere, namespace: str) -> Iterator[Publishing]:
    """Publish during the block; after it, check that every event came once, in order, and that no loss was reported."""
    publisher = Publishing(cluster.url, namespace)
    publisher.start()
    bus.wait_for(lambda: len(publisher.receipts) > 20, "events to be published")
    yield publisher
    bus.wait_for(publisher.goes_on(), "events to be published again")
    offsets = publisher.stop()
    bus.wait_for(lambda: bus.bus.up and len(bus.events) >= len(offsets), "all events")
    bus.wait_for_fences(2)
    assert offsets == list(range(1, len(offsets) + 1))
    assert bus.offsets == offsets
    assert [data for _, _, data in bus.events] == [str(number) for number in range(len(offsets))]
    assert bus.only("missing", "log_lost") == []
    assert all(end >= 0 for _, end in bus.only("line_changed"))


@EITHER
def test_events_come_over_sharded_channels_and_no_other_node_hears_of_them(
    cluster: Cluster, start_bus: StartBus, patterns: tuple[str, ...]
) -> None:
    """Topics, users, or a glob."""
    owner = cluster.nodes[0]
    namespace = cluster.namespaces_on(owner, 1, f"flow{len(patterns)}")[0]
    bus = start_bus(namespace, *patterns)
    before = [node.call("INFO", "stats") for node in cluster.nodes[1:3]]
    with publishing(cluster, bus, namespace):
        pass
    channels = owner.call("PUBSUB", "SHARDCHANNELS", f"hg:{{{namespace}}}*")
    prefix = f"hg:{{{namespace}}}"
    with redis.Redis.from_url(cluster.nodes[1].url) as other:
        other.publish(channel(namespace, "orders.1"), b"0")
    bus.wait_for(lambda: bus.offsets[-1] is None, "a plain publish at another node")
    expected = ["/feed"] if patterns == WHOLE else [":", ":orders.1", ":orders.2", "/users.7"]
    assert sorted(channels) == sorted(f"{prefix}{name}".encode() for name in expected)
    for node, was in zip(cluster.nodes[1:3], before, strict=True):
        assert node.call("PUBSUB", "NUMPAT") == 0
        assert node.call("INFO", "stats")["pubsubshard_channels"] == was["pubsubshard_channels"]


@EITHER
@pytest.mark.parametrize("atomically", [False, True], ids=["key by key", "at once"])
def test_a_slot_moves_under_publishing_and_nothing_is_lost_doubled_or_told(
    cluster: Cluster, start_bus: StartBus, patterns: tuple[str, ...], atomically: bool
) -> None:
    """There and back. Publishers meet a passing fault, and go on."""
    if atomically and not cluster.can_move_at_once():
        pytest.skip("this Redis moves slots key by key only")
    here, there = cluster.nodes[:2]
    namespace = cluster.namespaces_on(here, 1, f"move{len(patterns)}{atomically:d}")[0]
    slot = slot_of(log_key(namespace))
    bus = start_bus(namespace, *patterns)
    with publishing(cluster, bus, namespace) as publisher:
        for target in (there, here):
            if atomically:
                cluster.move_at_once(slot, target)
            else:
                with cluster.moving(slot, target) as moving:
                    for key in ("head", "log", "epochs"):
                        moving.move_keys(f"hg:{{{namespace}}}:{key}")
                        bus.wait_for(publisher.is_refused_again(), "a publish to be refused")
            bus.wait_for(publisher.goes_on(), "events to be published again")
    assert len({receipt.epoch for receipt in publisher.receipts}) == 3
    assert all(end == was for (_, end), was in zip(bus.only("line_changed"), ends(publisher.receipts), strict=False))


def ends(receipts: list[Receipt]) -> list[int]:
    """Return the last offset of each epoch but the newest."""
    return [one.offset for one, other in itertools.pairwise(receipts) if one.epoch != other.epoch]


def test_a_replica_takes_over_from_a_node_that_dies(cluster: Cluster, start_bus: StartBus) -> None:
    """The events that the replica had go on as one line, and events flow to the same listener."""
    owner = cluster.nodes[2]
    namespace = cluster.namespaces_on(owner, 1, "dies")[0]
    bus = start_bus(namespace, *EXACT)
    replica = cluster.replica_of(owner)
    publisher = Publishing(cluster.url, namespace)
    publisher.start()
    bus.wait_for(lambda: len(publisher.receipts) > 20, "events to be published")
    owner.kill()
    cluster.promote(replica, force=True)
    bus.wait_for(publisher.goes_on(), "events to be published again")
    publisher.stop()
    last = publisher.receipts[-1].offset
    bus.wait_for(lambda: last in bus.offsets, "the last event")
    bus.wait_for_fences(2)
    new = [receipt.offset for receipt in publisher.receipts if receipt.epoch == publisher.receipts[-1].epoch]
    assert bus.offsets[-len(new) :] == new
    assert bus.only("missing", "log_lost") == []
    # Each event came, or went with the end of the log, which the listener knows by where the lines part.
    (fork,) = {end for _, end in bus.only("line_changed")}
    assert fork == new[0] - 1
    kept = [receipt.offset for receipt in publisher.receipts if receipt.epoch != publisher.receipts[-1].epoch]
    assert set(range(1, fork + 1)) <= set(bus.offsets)
    assert set(range(1, fork + 1)) <= set(kept)
