"""The demo's orders, a book in which every change is published before it counts.

In: changes from the demo's routes. Out: an event per change, `orders.<id>.<verb>` with the whole order as data, in the order of
the versions; an item in the inbox of every other user for a shipped or failed order; and the whole book for `Keep`. The book is
bounded, and filled with examples if nothing is saved.

One lock over all processes covers reading, publishing and saving, so that workers and gateways have one book. A change refused
by the bus is not saved. The user gets the error, and no board shows a change that the book does not have. If the bus took the
event but its answer was lost, boards are ahead of the book until the next change of that order. A version is the time of its
change in milliseconds, or one above the last, so it is never used twice, and that next change wins everywhere. If a book cannot
be saved, this is logged, and this process keeps using it until another one has saved a newer one.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any, Protocol

import structlog

from headgate.errors import HeadgateError, InvalidRequest
from headgate_server.api.v1.problems import not_found

STATUSES = ("new", "packed", "shipped", "failed")
# Beyond it, a new order takes the place of the oldest.
MAX_ORDERS = 40
# Statuses worth an alert have their own verb. Other changes are `updated`.
_ALERTS = frozenset(("shipped", "failed"))
_SEED = (
    ("31", "failed", "Dune Bikes", 129_900),
    ("33", "shipped", "A. Kowalska", 5_980),
    ("35", "shipped", "Bright Day Nursery", 61_200),
    ("37", "new", "Okafor Textiles", 48_250),
    ("39", "packed", "Moreau Frères", 21_430),
    ("41", "new", "Lindqvist & Co", 12_990),
    ("42", "packed", "Haruto Tanaka", 34_900),
    ("44", "new", "Café Miravent", 8_640),
)
_CUSTOMERS = ("Nordlicht Books", "Priya Raman", "Studio Halcyon", "Esperanza Vega", "Tidewater Tools", "J. van Dijk")

_log = structlog.get_logger("headgate.server")


class Keep(Protocol):
    """Storage for the book beyond the process, for one process at a time. Every method may raise a HeadgateError."""

    def locked(self) -> AbstractContextManager[None]: ...
    def load(self) -> list[dict[str, Any]]: ...
    def save(self, orders: list[dict[str, Any]]) -> None: ...


@dataclass(frozen=True, slots=True)
class Order:
    """One order as users see it. `version` grows with every change. `by` is the user of the last one."""

    id: str
    status: str
    customer: str
    total_cents: int
    version: int
    by: str


class OrderBook:
    """All orders, at most MAX_ORDERS. Every method is atomic, may switch greenlets, and raises BusUnavailable or BusRefused if
    the saved orders cannot be read.

    Args:
        publish: takes (topic, data, id or None) of each event, and returns a receipt or an error for each, or raises.
        users: the users that get an inbox item for the changes of others.
        keep: stores the orders. With None they last as long as the process.
    """

    def __init__(
        self,
        publish: Callable[[Sequence[tuple[str, object, str | None]]], Sequence[object]],
        *,
        users: Iterable[str] = (),
        keep: Keep | None = None,
        clock_s: Callable[[], float] = time.time,
    ) -> None:
        self._publish, self._users, self._keep, self._clock_s = publish, tuple(users), keep, clock_s
        self._lock = threading.Lock()
        self._random = random.Random(1)
        self._version = 0
        self._orders: dict[str, Order] = {}  # by id, oldest first; empty until the first use

    @contextmanager
    def _opened(self) -> Iterator[None]:
        """Lock the book for the time of the block, and read the newest one first."""
        with self._lock, ExitStack() as held:
            try:
                if self._keep is not None:
                    held.enter_context(self._keep.locked())
                    self._read(self._keep.load())
            except HeadgateError:
                if not self._orders:
                    raise
            if not self._orders:
                self._orders = {row[0]: Order(*row, self._next_version(), "") for row in _SEED}
                self.save()  # otherwise another process's later examples would be newer than our changes
            yield

    def _read(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Use the saved book, unless it is older than ours because Redis did not save a change or has lost it."""
        saved = {order.id: order for order in _readable(rows)}
        newest = max((order.version for order in saved.values()), default=0)
        if newest >= max((order.version for order in self._orders.values()), default=1):
            self._orders, self._version = saved, max(self._version, newest)

    def _next_version(self) -> int:
        """Return the time in milliseconds since 1970, or one above the last version, even of an earlier process."""
        self._version = max(self._version + 1, int(self._clock_s() * 1000))
        return self._version

    def all(self) -> list[Order]:
        """Return every order, oldest first. Waits for a change in progress, so that a caller with its event finds it saved."""
        with self._opened():
            return list(self._orders.values())

    def create(self, by: str) -> Order:
        """Add a made-up order, in place of the oldest if the book is full, and return it.

        Raises BusUnavailable, BusRefused: nothing was changed.
        """
        with self._opened():
            number, pick = str(max(map(int, self._orders)) + 1), self._random
            order = Order(number, "new", pick.choice(_CUSTOMERS), pick.randint(9, 1_300) * 100, self._next_version(), by)
            oldest = list(self._orders.values())[: max(0, len(self._orders) + 1 - MAX_ORDERS)]
            gone = [("deleted", replace(each, version=order.version, by=by)) for each in oldest]
            self._commit([*gone, ("created", order)])
            return order

    def move(self, order_id: str, status: object, by: str) -> Order:
        """Move an order to a status, and return it. Of two concurrent moves the last wins.

        Raises:
            InvalidRequest: there is no such status.
            HeadgateError: there is no such order.
            BusUnavailable, BusRefused: it was not moved, or the others were not notified.
        """
        if status not in STATUSES:
            raise InvalidRequest(f"status: expected one of {', '.join(STATUSES)}")
        with self._opened():
            if (before := self._orders.get(order_id)) is None:
                raise not_found("order", order_id)
            order = replace(before, status=str(status), version=self._next_version(), by=by)
            self._commit([(order.status if order.status in _ALERTS and status != before.status else "updated", order)])
            return order

    def scan(self, numbers: Iterable[int], by: str, burst_id: str) -> None:
        """Scan the parcel of an order for each number, in turn and in one batch. Each event names the burst and its number.

        Raises BusUnavailable, BusRefused: some were not published, and those were not changed.
        """
        with self._opened():
            orders, changes = dict(self._orders), []
            for number in numbers:
                order_id = list(orders)[number % len(orders)]
                orders[order_id] = replace(orders[order_id], version=self._next_version(), by=by)
                changes.append(("updated", orders[order_id]))
            self._commit(changes, [{"burst": {"id": burst_id, "number": number}} for number in numbers])

    def save(self) -> None:
        """Save the book, as every change does. Needed when Redis has lost its newest writes."""
        if self._keep is None:
            return
        try:
            self._keep.save([asdict(order) for order in self._orders.values()])
        except HeadgateError as error:
            _log.warning("orders of the demo not kept", code=error.code, effect="a restart would bring those before")

    def _commit(self, changes: Sequence[tuple[str, Order]], stamps: Sequence[Mapping[str, object]] = ()) -> None:
        """Publish changes, each a verb and an order, and save those that the bus took. Raises the first error of the bus."""
        events: list[tuple[str, object, str | None]] = [
            (f"orders.{order.id}.{verb}", asdict(order) | dict(stamp), None)
            for (verb, order), stamp in zip(changes, stamps or [{}] * len(changes), strict=True)
        ]
        for verb, order in changes:
            item = {"order": order.id, "customer": order.customer, "by": order.by}
            others = [user for user in self._users if user != order.by and verb in _ALERTS]
            events += [(f"users.{user}.inbox.orders.{verb}", item, None) for user in others]
        outcomes = self._publish(events)
        errors = [outcome for outcome in outcomes if isinstance(outcome, HeadgateError)]
        for (verb, order), outcome in zip(changes, outcomes, strict=False):  # the items come after them
            if outcome not in errors:
                self._orders[order.id] = order
                if verb == "deleted":
                    del self._orders[order.id]
        if len(errors) < len(outcomes):
            self.save()
        if errors:
            raise errors[0]


def _readable(rows: Iterable[Mapping[str, Any]]) -> list[Order]:
    """Return the saved orders, without those saved by another release in another form."""
    orders = []
    for row in rows:
        try:
            orders.append(Order(**row))
        except TypeError as error:
            _log.warning("kept order of the demo not readable", reason=str(error))
    return orders
