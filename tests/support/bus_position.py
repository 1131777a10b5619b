"""A bus without a start, at a position that a test chooses."""

from headgate.delivery.bus.listener import Bus
from headgate.redis.lineage import alone


def stand_at(bus: Bus, epoch: str | None, offset: int, first: int | None = None) -> None:
    """Put the feed at a position, with nothing under way; `first` is the oldest offset of the log (None: as it was)."""
    feed = bus.feed
    feed.epoch, feed.offset, feed.reached = epoch, offset, offset
    feed.lineage = alone(epoch or "")
    if first is not None:
        feed.first = first
