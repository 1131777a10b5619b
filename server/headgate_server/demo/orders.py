"""The demo's orders: a book in which every change is published before it counts.

In: changes from the demo's routes. Out: an event per change, `orders.<id>.<verb>` with the whole order as data, in the order of
the versions; an item in the inbox of every other user for a shipped or failed order; and the changed order for `Keep`. The book
is bounded, filled with examples if nothing is saved, and reads saved orders on first use. A deleted order can be restored for a
while, until a restart.

Publish first, save second, both under one lock. A change whose publish raised is not saved: the user gets the error, and no
board shows anything that the book does not have. If the bus took the event and only its answer was lost, boards are ahead of
the book until the next change of that order. A version is the time of its change in milliseconds, or one above the last, so it
is never used twice, and that next change wins everywhere. An order that could not be saved is logged, and this process goes on.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Protocol, TypedDict, cast

import structlog

from headgate.errors import HeadgateError, InvalidRequest, LimitReached

STATUSES = ("new", "packed", "shipped", "failed")
MAX_ORDERS = 200
# Deleted orders that can be restored, and for how long, several times the time on the page.
MAX_DELETED = 50
RESTORE_WITHIN_S = 120.0
# The editable fields, with their maximum length in characters.
TEXT_LIMITS = {"note": 140}
# Statuses worth an alert have their own verb; other changes are `updated`.
_VERB_BY_STATUS = {"shipped": "shipped", "failed": "failed"}

_SEED = (
    ("new", 37, "Okafor Textiles", 48_250, ""),
    ("new", 41, "Lindqvist & Co", 12_990, "Gift wrap, please"),
    ("new", 44, "Café Miravent", 8_640, ""),
    ("packed", 42, "Haruto Tanaka", 34_900, "Fragile"),
    ("packed", 39, "Moreau Frères", 21_430, ""),
    ("shipped", 35, "Bright Day Nursery", 61_200, "Ring at the side door"),
    ("shipped", 33, "A. Kowalska", 5_980, ""),
    ("failed", 31, "Dune Bikes", 129_900, "Nobody home, twice"),
)
_CUSTOMERS = ("Nordlicht Books", "Priya Raman", "Studio Halcyon", "Esperanza Vega", "Tidewater Tools", "J. van Dijk")

_log = structlog.get_logger("headgate.server")


class Keep(Protocol):
    """Storage for orders beyond the process. Each method may raise a HeadgateError."""

    def load(self) -> list[dict[str, Any]]: ...
    def save(self, orders: Iterable[Mapping[str, Any]]) -> None: ...
    def forget(self, order_id: str) -> None: ...


class OrderNotFound(HeadgateError):
    """There is no order with this number (any more)."""

    code = "not_found"

    def __init__(self, order_id: str) -> None:
        super().__init__(f"there is no order {order_id[:20]}", id=order_id[:20])


class OrderConflict(HeadgateError):
    """Someone else changed the order first; `current` is its present state."""

    code = "conflict"

    def __init__(self, current: Order) -> None:
        super().__init__(
            f"order {current.id} was changed by {current.by} in the meantime", id=current.id, current=asdict(current)
        )


class OrderNotRestorable(HeadgateError):
    """This order is not among the recently deleted ones."""

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
    """Someone else restored the order and deleted it again, so only their deletion can be undone."""

    code = "conflict"

    def __init__(self, gone: Order) -> None:
        super().__init__(f"order {gone.id} was deleted again by {gone.by} in the meantime", id=gone.id, by=gone.by)


@dataclass(frozen=True, slots=True)
class Order:
    """One order as users see it. `version` grows with every change; `by` made the last one."""

    id: str
    status: str
    customer: str
    total_cents: int
    note: str
    version: int
    by: str


class Edits(TypedDict, total=False):
    """The editable fields of an order."""

    status: str
    note: str


class OrderBook:
    """All orders, at most MAX_ORDERS. Every method is atomic, may switch greenlets, and raises BusUnavailable or BusRefused if
    the saved orders cannot be read.

    Args:
        publish: a topic and its data; raises if the bus did not take it.
        users: the users who get an inbox item for the changes of others.
        keep: None: the orders last as long as the process.
    """

    def __init__(
        self,
        publish: Callable[[str, object], object],
        *,
        users: Iterable[str] = (),
        keep: Keep | None = None,
        now_s: Callable[[], float] = time.monotonic,
        clock_s: Callable[[], float] = time.time,
    ) -> None:
        self._publish, self._users, self._keep = publish, tuple(users), keep
        self._now_s, self._clock_s = now_s, clock_s
        self._lock = threading.Lock()
        self._random = random.Random(1)
        self._version = self._number = 0
        # By id, oldest first; None: not read yet.
        self._orders_or_none: dict[str, Order] | None = None
        # Oldest first, each with the time of its deletion.
        self._deleted: dict[str, tuple[Order, float]] = {}

    @property
    def _orders(self) -> dict[str, Order]:
        if self._orders_or_none is None:
            kept = _readable(self._keep.load()) if self._keep else []
            orders = sorted(kept, key=lambda order: int(order.id)) or [
                Order(str(number), status, customer, cents, note, self._next_version(), "the shop")
                for status, number, customer, cents, note in _SEED
            ]
            if self._keep and not kept:
                self._keep.save(map(asdict, orders))
            self._version = max(self._version, *(order.version for order in orders))
            self._number = max(int(order.id) for order in orders)
            self._orders_or_none = {order.id: order for order in orders}
        return self._orders_or_none

    def _next_version(self) -> int:
        """Return the time in milliseconds since 1970, or one above the last version, even of an earlier process."""
        self._version = max(self._version + 1, int(self._clock_s() * 1000))
        return self._version

    def keep_all(self) -> None:
        """Save every order: after a burst, or when Redis has lost its newest writes."""
        with self._lock:
            if self._keep and self._orders:
                self._kept(lambda keep: keep.save(map(asdict, self._orders.values())))

    def _kept(self, change: Callable[[Keep], None]) -> None:
        if self._keep is None:
            return
        try:
            change(self._keep)
        except HeadgateError as error:
            _log.warning("order of the demo not kept", code=error.code, effect="a restart would bring the one before")

    def all(self) -> list[Order]:
        """Return every order, oldest first.

        Waits for a change in progress (and may switch greenlets), since a caller that has seen the event of a change must find
        the change saved.
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
            total_cents, customer = pick.randint(9, 1_300) * 100, pick.choice(_CUSTOMERS)
            self._number += 1
            order = Order(str(self._number), "new", customer, total_cents, "", self._next_version(), by)
            return self._commit(order, "created")

    def change(self, order_id: str, fields: Mapping[str, object], by: str) -> Order:
        """Change status or note of an order whose `version` the caller has seen; return the order.

        Raises:
            InvalidRequest: a field is unknown, of the wrong type or too long; the version is missing.
            OrderNotFound, OrderConflict: it is gone, or changed since.
            BusUnavailable, BusRefused: nothing was changed.
        """
        edits = _check_edits(fields)
        with self._lock:
            before = self._seen(order_id, fields.get("version"))
            after = replace(before, **edits, version=self._next_version(), by=by)
            moved = after.status != before.status
            return self._commit(after, _VERB_BY_STATUS.get(after.status, "updated") if moved else "updated")

    def delete(self, order_id: str, version: object, by: str) -> Order:
        """Remove an order whose version the caller has seen, and return it as deleted. Raises as `change` does."""
        with self._lock:
            before = self._seen(order_id, version)
            gone = replace(before, version=self._next_version(), by=by)
            self._publish(f"orders.{order_id}.deleted", asdict(gone))
            del self._orders[order_id]
            self._kept(lambda keep: keep.forget(order_id))
            self._forget_deleted()
            self._deleted[order_id] = (gone, self._now_s())
            return gone

    def restore(self, order_id: str, version: object, by: str) -> Order:
        """Undo the deletion with `version`: put the order back, and return it.

        Raises:
            InvalidRequest: the version is missing.
            OrderConflict: it is already back.
            OrderDeletedAgain: it was back, and was deleted again.
            OrderNotRestorable: it was never deleted, or too long ago.
            LimitReached: the book is full again.
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
            restored = self._commit(replace(gone, version=self._next_version(), by=by), "restored")
            del self._deleted[order_id]
            return restored

    def scan(self, turn: int, by: str, burst: Mapping[str, object]) -> Order:
        """Scan the parcel of the next order in turn. `burst` in the event has its number in a burst.

        The lock is held for this one change, so users can edit during a burst. `keep_all` saves a whole burst: saving each scan
        makes a burst four times as long.

        Raises:
            OrderNotFound: the book is empty.
            BusUnavailable, BusRefused: nothing was changed.
        """
        with self._lock:
            if not self._orders:
                raise OrderNotFound("(the board is empty)")
            before = self._orders[list(self._orders)[turn % len(self._orders)]]
            after = replace(before, version=self._next_version(), by=by)
            return self._commit(after, "updated", burst=burst)

    def _commit(self, order: Order, verb: str, **beside: object) -> Order:
        self._publish(f"orders.{order.id}.{verb}", {**asdict(order), **beside})
        self._orders[order.id] = order
        if not beside:
            self._kept(lambda keep: keep.save([asdict(order)]))
        if verb in _VERB_BY_STATUS:
            self._notify(order, verb)
        return order

    def _notify(self, order: Order, verb: str) -> None:
        """Put an item into the inboxes of the others. A failure here does not undo the published change."""
        item = {"order": order.id, "customer": order.customer, "by": order.by}
        try:
            for user in self._users:
                if user != order.by:
                    self._publish(f"users.{user}.inbox.orders.{verb}", item)
        except HeadgateError as error:
            _log.warning("notification of the demo not published", code=error.code)

    def _forget_deleted(self, room_for: int = 1) -> None:
        """Forget orders that were deleted too long ago, and the oldest until there is room for so many more."""
        while self._deleted:
            oldest = next(iter(self._deleted))
            if len(self._deleted) + room_for <= MAX_DELETED and self._deleted[oldest][1] > self._now_s() - RESTORE_WITHIN_S:
                return
            del self._deleted[oldest]

    def _seen(self, order_id: str, version: object) -> Order:
        """Return the order if `version` is its present one (optimistic locking, without waiting)."""
        _check_version(version)
        if (order := self._orders.get(order_id)) is None:
            raise OrderNotFound(order_id)
        if order.version != version:
            raise OrderConflict(order)
        return order


def _readable(rows: Iterable[Mapping[str, Any]]) -> list[Order]:
    """Return the saved orders, without those that another release has saved in another form."""
    orders = []
    for row in rows:
        try:
            orders.append(Order(**row))
        except TypeError as error:
            _log.warning("kept order of the demo not readable", reason=str(error))
    return orders[:MAX_ORDERS]


def _check_version(version: object) -> None:
    if isinstance(version, bool) or not isinstance(version, int):
        raise InvalidRequest("version: expected the version of the order that you saw")


def _check_edits(fields: Mapping[str, object]) -> Edits:
    edits = {name: value for name, value in fields.items() if name != "version"}
    if unknown := sorted(set(edits) - {"status", *TEXT_LIMITS}):
        raise InvalidRequest(f"{unknown[0][:40]}: not a field that can be changed")
    if not edits:
        raise InvalidRequest("nothing to change: expected status or note")
    if "status" in edits and edits["status"] not in STATUSES:
        raise InvalidRequest(f"status: expected one of {', '.join(STATUSES)}")
    for name, limit in TEXT_LIMITS.items():
        text = edits.get(name, "")
        if not isinstance(text, str) or len(text) > limit:
            raise InvalidRequest(f"{name}: expected text of at most {limit} characters")
    return cast(Edits, edits)
