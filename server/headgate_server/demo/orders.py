"""The demo's orders: an in-memory book in which every change is published before it counts.

In: changes from the demo's routes. Out: an event per change, `orders.<id>.<verb>` with the whole order as data, in the
order of the versions. The book is bounded and seeded. It is forgotten when the process ends, unless the process is restarted
(trouble.py): then the next one takes it over. A deleted order can be restored for a while: both are events, so that every
board and every consumer is told what happened, when it happened.

Publish first, save second, both under one lock: a change whose publish raised is not saved, so the person who made it
is told and nobody's board shows what the book does not hold. If the bus took the event and only its answer was lost,
boards are ahead of the book until the next change of that order: versions come from one counter and are never used
twice, so that next change wins everywhere.
"""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, TypedDict, cast

from headgate.errors import HeadgateError, InvalidRequest, LimitReached

STATUSES = ("new", "packed", "shipped", "failed")
MAX_ORDERS = 200
# Deleted orders that can be restored, and for how long: several times what a page offers it for.
MAX_DELETED = 50
RESTORE_WITHIN_S = 120.0
# The fields that a person may edit, and how long it may be in characters.
TEXT_LIMITS = {"carrier": 40, "note": 140}
# Statuses that people want to be alerted about have a verb of their own; other changes are `updated`.
_VERB_BY_STATUS = {"shipped": "shipped", "failed": "failed"}

_SEED = (
    ("new", 37, "Okafor Textiles", 12, "", 48_250, ""),
    ("new", 41, "Lindqvist & Co", 3, "", 12_990, "Gift wrap, please"),
    ("new", 44, "Café Miravent", 6, "", 8_640, ""),
    ("packed", 42, "Haruto Tanaka", 1, "DHL", 34_900, "Fragile"),
    ("packed", 39, "Moreau Frères", 8, "GLS", 21_430, ""),
    ("shipped", 35, "Bright Day Nursery", 24, "UPS", 61_200, "Ring at the side door"),
    ("shipped", 33, "A. Kowalska", 2, "FedEx", 5_980, ""),
    ("failed", 31, "Dune Bikes", 1, "DPD", 129_900, "Nobody home, twice"),
)
_CUSTOMERS = ("Nordlicht Books", "Priya Raman", "Studio Halcyon", "Esperanza Vega", "Tidewater Tools", "J. van Dijk")


class OrderNotFound(HeadgateError):
    """There is no order with this number (any more)."""

    code = "not_found"

    def __init__(self, order_id: str) -> None:
        super().__init__(f"there is no order {order_id[:20]}", id=order_id[:20])


class OrderConflict(HeadgateError):
    """Someone else changed the order first; `current` is what it is now."""

    code = "conflict"

    def __init__(self, current: Order) -> None:
        super().__init__(
            f"order {current.id} was changed by {current.by} in the meantime", id=current.id, current=asdict(current)
        )


class OrderNotRestorable(HeadgateError):
    """This order is not among those that were deleted lately."""

    code = "not_found"

    def __init__(self, order_id: str) -> None:
        super().__init__(
            f"order {order_id[:20]} can no longer be restored: only the last {MAX_DELETED} deleted ones can, "
            f"for {RESTORE_WITHIN_S:g} s",
            id=order_id[:20],
            max_deleted=MAX_DELETED,
            within_s=RESTORE_WITHIN_S,
        )


class OrderDeletedAgain(HeadgateError):
    """Someone else restored the order and deleted it again: theirs is the deletion that can be undone."""

    code = "conflict"

    def __init__(self, gone: Order) -> None:
        super().__init__(f"order {gone.id} was deleted again by {gone.by} in the meantime", id=gone.id, by=gone.by)


@dataclass(frozen=True, slots=True)
class Order:
    """One order as people see it. `version` grows with every change; `by` made the last one."""

    id: str
    status: str
    customer: str
    items: int
    carrier: str
    total_cents: int
    note: str
    scans: int
    version: int
    by: str


class Edits(TypedDict, total=False):
    """The fields of an order that people change."""

    status: str
    carrier: str
    note: str


class OrderBook:
    """All orders, at most MAX_ORDERS. Every method is atomic, and may switch greenlets.

    Attributes:
        since: the first version of this book. A page that knows another one has orders of a server that was restarted: events
            with a version below `since` are about those.
    """

    def __init__(
        self,
        publish: Callable[[str, object], object],
        *,
        seed: int = 1,
        now_s: Callable[[], float] = time.monotonic,
        clock_s: Callable[[], float] = time.time,
    ) -> None:
        self._publish = publish
        self._now_s = now_s
        self._lock = threading.Lock()
        self._random = random.Random(seed)
        # Milliseconds since 1970: above every version of a book before this one, which grew by fewer than one a millisecond.
        self.since = int(clock_s() * 1000)
        self._versions = itertools.count(self.since)
        self._orders: dict[str, Order] = {}
        # Oldest first, each with when it was deleted.
        self._deleted: dict[str, tuple[Order, float]] = {}
        for status, number, customer, items, carrier, total_cents, note in _SEED:
            order = Order(str(number), status, customer, items, carrier, total_cents, note, 0, next(self._versions), "the shop")
            self._orders[order.id] = order
        self._numbers = itertools.count(max(map(int, self._orders)) + 1)

    def handed_over(self) -> Mapping[str, object]:
        """Return the book for the process after this one, as JSON can hold it. Nothing may change here afterwards."""
        with self._lock:
            return {
                "since": self.since,
                "version": next(self._versions),
                "number": next(self._numbers),
                "orders": [asdict(order) for order in self._orders.values()],
                "deleted": [(asdict(order), at_s) for order, at_s in self._deleted.values()],
            }

    def take_over(self, book: Mapping[str, Any]) -> None:
        """Become the book that the process before this one has handed over."""
        with self._lock:
            self.since = book["since"]
            self._versions, self._numbers = itertools.count(book["version"]), itertools.count(book["number"])
            self._orders = {order["id"]: Order(**order) for order in book["orders"]}
            self._deleted = {order["id"]: (Order(**order), at_s) for order, at_s in book["deleted"]}

    def all(self) -> list[Order]:
        """Return every order, oldest first.

        Waits for a change that is being published (and may switch greenlets): a caller that has seen the event of a
        change must find that change saved.
        """
        with self._lock:
            return list(self._orders.values())

    def create(self, by: str) -> Order:
        """Add a made-up order and return it.

        Raises:
            LimitReached: the book is full.
            BusUnavailable, BusRefused: nothing was added.
        """
        with self._lock:
            if len(self._orders) >= MAX_ORDERS:
                raise LimitReached("orders", MAX_ORDERS)
            pick = self._random
            items = pick.randint(1, 20)
            total_cents = items * pick.randint(900, 6_500)
            customer = pick.choice(_CUSTOMERS)
            order = Order(str(next(self._numbers)), "new", customer, items, "", total_cents, "", 0, next(self._versions), by)
            return self._commit(order, "created")

    def change(self, order_id: str, fields: Mapping[str, object], by: str) -> Order:
        """Change status, carrier or note of an order whose `version` the caller has seen; return the order.

        Raises:
            InvalidRequest: a field is unknown, of the wrong type or too long; the version is missing.
            OrderNotFound, OrderConflict: it is gone, or no longer what the caller saw.
            BusUnavailable, BusRefused: nothing was changed.
        """
        edits = _check_edits(fields)
        with self._lock:
            before = self._seen(order_id, fields.get("version"))
            after = replace(before, **edits, version=next(self._versions), by=by)
            moved = after.status != before.status
            return self._commit(after, _VERB_BY_STATUS.get(after.status, "updated") if moved else "updated")

    def delete(self, order_id: str, version: object, by: str) -> Order:
        """Remove an order whose version the caller has seen, and return it as deleted. Raises as `change` does."""
        with self._lock:
            before = self._seen(order_id, version)
            gone = replace(before, version=next(self._versions), by=by)
            self._publish(f"orders.{order_id}.deleted", asdict(gone))
            del self._orders[order_id]
            self._forget_deleted()
            self._deleted[order_id] = (gone, self._now_s())
            return gone

    def restore(self, order_id: str, version: object, by: str) -> Order:
        """Undo a deletion that made `version`: put the order back as it was, and return it.

        Raises:
            InvalidRequest: the version is missing.
            OrderConflict: it is back already.
            OrderDeletedAgain: it was, and another deletion came after it.
            OrderNotRestorable: it was never deleted, or too long ago.
            LimitReached: the book has been filled meanwhile.
            BusUnavailable, BusRefused: nothing was restored.
        """
        _check_version(version)
        with self._lock:
            if (present := self._orders.get(order_id)) is not None:
                raise OrderConflict(present)
            self._forget_deleted(room_for=0)
            if order_id not in self._deleted:
                raise OrderNotRestorable(order_id)
            gone, _ = self._deleted[order_id]
            if gone.version != version:
                raise OrderDeletedAgain(gone)
            if len(self._orders) >= MAX_ORDERS:
                raise LimitReached("orders", MAX_ORDERS)
            restored = self._commit(replace(gone, version=next(self._versions), by=by), "restored")
            del self._deleted[order_id]
            return restored

    def scan(self, turn: int, by: str, burst: Mapping[str, object]) -> Order:
        """Scan the parcel whose turn it is, round the orders; the event says in `burst` which one of a burst it is.

        The lock is held for this one change, so that people go on editing while a burst runs.

        Raises:
            OrderNotFound: the book is empty.
            BusUnavailable, BusRefused: nothing was changed.
        """
        with self._lock:
            if not self._orders:
                raise OrderNotFound("(the board is empty)")
            before = self._orders[list(self._orders)[turn % len(self._orders)]]
            after = replace(before, scans=before.scans + 1, version=next(self._versions), by=by)
            return self._commit(after, "updated", burst=burst)

    def _commit(self, order: Order, verb: str, **beside: object) -> Order:
        self._publish(f"orders.{order.id}.{verb}", {**asdict(order), **beside})
        self._orders[order.id] = order
        return order

    def _forget_deleted(self, room_for: int = 1) -> None:
        """Let go of orders that were deleted too long ago, and of the oldest until there is room for so many more."""
        while self._deleted:
            oldest = next(iter(self._deleted))
            if len(self._deleted) + room_for <= MAX_DELETED and self._deleted[oldest][1] > self._now_s() - RESTORE_WITHIN_S:
                return
            del self._deleted[oldest]

    def _seen(self, order_id: str, version: object) -> Order:
        """Return the order if `version` is its present one (optimistic locking: nobody waits for anybody)."""
        _check_version(version)
        if (order := self._orders.get(order_id)) is None:
            raise OrderNotFound(order_id)
        if order.version != version:
            raise OrderConflict(order)
        return order


def _check_version(version: object) -> None:
    if isinstance(version, bool) or not isinstance(version, int):
        raise InvalidRequest("version: expected the version of the order that you saw")


def _check_edits(fields: Mapping[str, object]) -> Edits:
    edits = {name: value for name, value in fields.items() if name != "version"}
    if unknown := sorted(set(edits) - {"status", *TEXT_LIMITS}):
        raise InvalidRequest(f"{unknown[0][:40]}: not a field that can be changed")
    if not edits:
        raise InvalidRequest("nothing to change: expected status, carrier or note")
    if "status" in edits and edits["status"] not in STATUSES:
        raise InvalidRequest(f"status: expected one of {', '.join(STATUSES)}")
    for name, limit in TEXT_LIMITS.items():
        text = edits.get(name, "")
        if not isinstance(text, str) or len(text) > limit:
            raise InvalidRequest(f"{name}: expected text of at most {limit} characters")
    return cast(Edits, edits)
