"""The check of receipts: a receipt from elsewhere is counted and logged once a fence has proven it, and nothing else."""

from time import monotonic
from types import MappingProxyType
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from headgate.errors import BusUnavailable
from headgate.node.receipt_check import MAX_WAITING, ReceiptCheck
from headgate.redis.lineage import Lineage, alone
from headgate.runtime.metrics import PUBLISHED_ELSEWHERE, totals
from headgate.services.publisher import Receipt


class Bus:
    """A bus that follows a log of two epochs; the older one ends at 10."""

    epoch = "new"
    lineage = Lineage("new", MappingProxyType({"old": 10}), MappingProxyType({}))
    head = 20
    fence_began_s = 0.0


class Site:
    """A gateway, as far as receipts go."""

    def __init__(self, name: str) -> None:
        self.name, self.bus = name, Bus()
        self.check = ReceiptCheck(name, cast(Any, self.bus))

    def publish(self, *receipts: tuple[str, int]) -> None:
        self.check.published([Receipt(epoch, offset, False, "id") for epoch, offset in receipts])

    def fence(self) -> None:
        """A fence begins now, and passes."""
        self.bus.fence_began_s = monotonic()
        self.check.fenced()

    @property
    def elsewhere(self) -> float:
        return totals(PUBLISHED_ELSEWHERE).get(self.name, 0)


@pytest.fixture
def site(request: pytest.FixtureRequest) -> Site:
    return Site(request.node.name)


def test_receipts_of_an_epoch_that_a_later_fence_does_not_know_went_elsewhere(site: Site) -> None:
    """All of them are counted, and one line is logged; the feed goes on with its own log."""
    site.publish(("new", 21), ("other", 5))
    site.publish(("other", 6), ("other", 7))
    assert site.elsewhere == 0
    with capture_logs() as logs:
        site.fence()
        site.publish(("other", 8))
        site.fence()
    assert site.elsewhere == 4
    [line] = logs
    assert (line["event"], line["events"], line["epoch"], line["offset"]) == ("published to another Redis server", 3, "other", 7)


def test_a_fence_that_began_before_the_receipt_proves_nothing(site: Site) -> None:
    """The server may have begun the epoch since."""
    site.bus.fence_began_s = monotonic()
    site.publish(("next", 21))
    site.check.fenced()
    assert site.elsewhere == 0
    site.bus.epoch, site.bus.lineage = "next", alone("next")
    site.bus.head = 21
    site.fence()
    assert site.elsewhere == 0


@pytest.mark.parametrize(("offset", "elsewhere"), [(9, 0), (11, 1)], ids=["an earlier event", "the old primary"])
def test_a_receipt_of_an_older_epoch_went_elsewhere_above_its_end_only(site: Site, offset: int, elsewhere: int) -> None:
    """A known id has the receipt of its first time. Above the end, this publish has not followed the failover."""
    site.publish(("old", offset))
    site.fence()
    assert site.elsewhere == elsewhere


def test_what_redis_refused_went_nowhere(site: Site) -> None:
    """Whether it is the last of its round trip or not."""
    site.check.published([BusUnavailable("gone")])
    site.check.published([])
    site.fence()
    assert site.elsewhere == 0


def test_no_more_epochs_wait_than_are_kept(site: Site) -> None:
    """Without a fence, an address that leads to a new server each time costs no memory; each receipt counts."""
    for number in range(2 * MAX_WAITING):
        site.publish((f"epoch {number}", 1))
    site.fence()
    assert site.elsewhere == 2 * MAX_WAITING
