"""Admits the subscriptions of one namespace's clients, acquires their patterns from the bus, and activates and ends them.

In: requests of clients. Out: patterns in the matcher, with their interest at the bus; clients that read a past from the log
(`Client.ask_past`).

The work takes a share of the loop, and lets the loop run between two subscriptions, because 128 contrived ones take 60 ms.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import nullcontext
from time import monotonic
from typing import TYPE_CHECKING, TypeAlias

from msgspec.structs import replace

from headgate.auth.identity import Identity
from headgate.delivery.client import Client
from headgate.delivery.matcher import SubscriptionMatcher
from headgate.delivery.state import Phase
from headgate.errors import Forbidden, HeadgateError, LimitReached, Unauthorized, UnauthorizedReason
from headgate.events.topic import check_pattern, is_wildcard
from headgate.events.wire.packets import SUBSCRIBE, Overflow
from headgate.events.wire.requests import Since, Subscription, read_subscription
from headgate.runtime.loop import Signal, spawn
from headgate.settings.settings import Settings

from .log_search import LogSearch

if TYPE_CHECKING:
    from .access.authorizing import Authorizing

# Time slice for subscription work, over all clients.
SHARE_S = 0.001
# Patterns without a wildcard between two checks of the time. Admitting one takes some 3 µs.
EXACT_AT_ONCE = 8

# Subscriptions before activation, each with its index in the request; the offsets after which their pasts begin, by that index;
# the patterns that the bus keeps for them until a client does.
_Pending: TypeAlias = deque[tuple[int, Subscription]]
_Starts: TypeAlias = Mapping[int, int]
_Needed: TypeAlias = dict[str, None]


class Subscriptions:
    """See the module. `clients` are the joined clients by session. Other `settings` leave existing subscriptions unchanged."""

    def __init__(
        self,
        clients: Mapping[str, Client],
        matcher: SubscriptionMatcher[Client],
        search: LogSearch,
        authorizing: Authorizing,
        settings: Settings,
    ) -> None:
        self._clients, self._matcher, self._search = clients, matcher, search
        self._bus, self._feed, self._share = search.bus, search.feed, search.share
        self._authorizing, self.settings = authorizing, settings
        self._admitted: dict[Client, Identity] = {}  # the identity of each subscribing client at its request

    @property
    def count(self) -> int:
        """The number of active subscriptions."""
        return self._matcher.subscriptions

    def add_all(self, client: Client, requests: Iterable[object]) -> list[Subscription | HeadgateError]:
        """Make subscriptions `{pattern, overflow?, since?}` active, or change their policy.

        Returns each of them, or the error that refused it. From then on every matching event above the bus's position
        comes. With `since`, the events of the pattern after that point come first, from the log. May switch greenlets, until
        Redis has confirmed each pattern new here. Each `since` is returned as the offset after which its events begin.

        One request to Redis covers all of them, and one reading of the log serves every `since`. Limits are checked before
        grants, so a forbidden pattern counts against them as well. Raises Unauthorized if the client left during the call.
        """
        identity = self._admitted[client] = client.identity
        try:
            outcomes = self._admit(client, requests)
            self._authorize(client, outcomes)
            self._add(client, outcomes)
            while client.identity is not identity:
                identity = self._admitted[client] = client.identity
                self._apply_new_grants(client, outcomes)
        finally:
            self._admitted.pop(client, None)
            if client.state.phase is Phase.COLLECTING:
                spawn(self._read_pasts, client)
        return outcomes

    def _add(self, client: Client, outcomes: list[Subscription | HeadgateError]) -> None:
        """Activate the subscriptions among the outcomes, and replace failed ones by errors."""
        pending = deque([(index, wanted) for index, wanted in enumerate(outcomes) if isinstance(wanted, Subscription)])
        # The bus keeps each pattern without a client for us until it is active. Its first client then keeps it.
        needed: _Needed = {}
        try:
            while pending:
                errors = self._secure(pending, needed)
                if not errors:
                    epoch, starts, errors = self._find_starts(client, pending)
                if errors:
                    for index, refusal in errors.items():
                        outcomes[index] = refusal
                    pending = deque((index, wanted) for index, wanted in pending if index not in errors)
                else:
                    self._activate_all(client, pending, epoch, starts, needed)
                    left = {index for index, _ in pending}
                    for index, start in starts.items():
                        if index not in left and isinstance(wanted := outcomes[index], Subscription):
                            outcomes[index] = replace(wanted, since=Since(offset=start, epoch=epoch))
        finally:
            for pattern in needed:
                self._bus.release(pattern)

    def end(self, pattern: str, client: Client) -> None:
        """End a subscription, if it exists."""
        if client.unsubscribe(pattern):
            self._remove(pattern, client)

    def end_each(self, client: Client, refusal: Callable[[str], HeadgateError | None]) -> Iterator[tuple[str, HeadgateError]]:
        """End a client's subscriptions for which `refusal` returns an error; yield the pattern and error of each.

        The loop may run between two. Raises Unauthorized: the client left during the call.
        """
        with self._share:
            for pattern in tuple(client.subscriptions):
                self.check_in(client)
                error = refusal(pattern)
                if error is not None and client.unsubscribe(pattern):
                    self._remove(pattern, client)
                    yield pattern, error
                self._share.pause()

    def forget(self, client: Client) -> None:
        """End all subscriptions of a client after it left. Lets the loop run."""
        # The matcher still returns the client for events meanwhile, but it takes none.
        with self._share:
            for pattern in tuple(client.subscriptions):
                self._remove(pattern, client)
                self._share.pause()
        client.subscriptions.clear()

    def check_in(self, client: Client) -> None:
        """Refuse a client that left or was disconnected during a wait. Raises Unauthorized: `left`."""
        if self._clients.get(client.session) is not client:
            raise Unauthorized(UnauthorizedReason.LEFT)

    # -- private, in the order of a subscribe ---------------------------------------------------------------------

    def _read_pasts(self, client: Client) -> None:
        """Begin to read the requested pasts, once for all requests that arrived together, unless the next one has begun."""
        if client not in self._admitted:
            client.pasts_complete()

    def _admit(self, client: Client, requests: Iterable[object]) -> list[Subscription | HeadgateError]:
        """Read requests, and check the limits, then the client's grants. Lets the loop run."""
        outcomes: list[Subscription | HeadgateError] = []
        held, settings, identity = client.subscriptions, self.settings, client.identity
        fresh: set[str] = set()
        wildcards = held.wildcards
        with self._share as share:
            for number, request in enumerate(requests):
                if number and not number % EXACT_AT_ONCE:
                    share.pause()
                try:
                    wanted = self._read(request)
                    pattern = wanted.pattern
                    has_wildcard = is_wildcard(pattern)
                    if has_wildcard and number:
                        share.pause()
                    if pattern not in fresh and pattern not in held:
                        if len(held) + len(fresh) >= settings.max_subscriptions:
                            raise LimitReached("subscriptions", settings.max_subscriptions)
                        if has_wildcard:
                            if wildcards >= settings.max_wildcards:
                                raise LimitReached("wildcards", settings.max_wildcards)
                            wildcards += 1
                        fresh.add(pattern)
                    if not identity.may_subscribe(pattern):
                        raise Forbidden("subscribe to", pattern)
                    outcomes.append(wanted)
                except HeadgateError as error:
                    # Its traceback holds this frame, which holds the list, so each refusal would be a cycle.
                    outcomes.append(error.with_traceback(None))
        return outcomes

    def _authorize(self, client: Client, outcomes: list[Subscription | HeadgateError]) -> None:
        """Refuse patterns that the application does not allow. May wait for the application.

        Raises Unauthorized: the client left during the call.
        """
        if self._authorizing.authorizer is not None:
            patterns = [wanted.pattern for wanted in outcomes if isinstance(wanted, Subscription)]
            refused = self._authorizing.refused(client, patterns, SUBSCRIBE)
            for index, wanted in enumerate(outcomes):
                if isinstance(wanted, Subscription) and wanted.pattern in refused:
                    outcomes[index] = refused[wanted.pattern]
        self.check_in(client)

    def _apply_new_grants(self, client: Client, outcomes: list[Subscription | HeadgateError]) -> None:
        """Apply grants that changed while the client subscribed, refusing and ending forbidden patterns. May wait.

        A newly allowed pattern becomes active, if it was forbidden at activation or ended since. Raises Unauthorized: the
        client left during the call.
        """
        active = {index: wanted.pattern for index, wanted in enumerate(outcomes) if isinstance(wanted, Subscription)}
        for index, pattern in active.items():
            if not client.identity.may_subscribe(pattern):
                outcomes[index] = Forbidden("subscribe to", pattern)
                self.end(pattern, client)
        self._authorize(client, outcomes)
        for index, pattern in active.items():
            if not isinstance(outcomes[index], Subscription):
                self.end(pattern, client)
        held = client.subscriptions
        missing = [
            index for index, wanted in enumerate(outcomes) if isinstance(wanted, Subscription) and wanted.pattern not in held
        ]
        if missing:
            again = [outcomes[index] for index in missing]
            self._add(client, again)
            for index, outcome in zip(missing, again, strict=True):
                outcomes[index] = outcome

    def _read(self, request: object) -> Subscription:
        """Read a request. Raises InvalidRequest, InvalidPattern."""
        if type(request) is dict and len(request) == 1 and type(pattern := request.get("pattern")) is str:
            # A pattern that a client here has is valid.
            return Subscription(self._matcher.subscribed(pattern) or check_pattern(pattern), Overflow.CATCH_UP, None)
        return read_subscription(request)

    def _kept(self) -> Callable[[str], object]:
        """Return a check of whether a client here keeps an active pattern. Valid until the loop runs."""
        has_client, is_active = self._matcher.subscribed, self._bus.active
        if self._bus.all_active:
            return has_client
        return lambda pattern: has_client(pattern) is not None and is_active(pattern)

    def _secure(self, pending: Iterable[tuple[int, Subscription]], needed: _Needed) -> dict[int, HeadgateError]:
        """Acquire the patterns that no client here keeps, and add them to `needed`; return the errors. Waits for Redis."""
        is_kept = self._kept()
        fresh = dict.fromkeys(
            [wanted.pattern for _, wanted in pending if wanted.pattern not in needed and not is_kept(wanted.pattern)]
        )
        if not fresh:
            return {}
        refused: dict[str, HeadgateError] = {}
        for pattern in fresh:
            self._bus.acquire(pattern)
            needed[pattern] = None
        for pattern in fresh:
            try:
                self._bus.wait_for(pattern)
            except HeadgateError as error:
                refused[pattern] = error.with_traceback(None)
        return {index: refused[wanted.pattern] for index, wanted in pending if wanted.pattern in refused} if refused else {}

    def _find_starts(
        self, client: Client, pending: Iterable[tuple[int, Subscription]]
    ) -> tuple[str | None, dict[int, int], dict[int, HeadgateError]]:
        """Return the epoch of the log, and for each subscription with a `since` the offset before its past, or its error.

        Waits for Redis, and lets the loop run.
        """
        asked = {index: (wanted.pattern, wanted.since) for index, wanted in pending if wanted.since is not None}
        if not asked:
            self._feed.position()  # also stores it, so that the client is notified of everything after it
            return self._bus.epoch, {}, {}
        try:
            while True:
                epoch = self._bus.epoch
                asking = {index: (pattern, self._on_line(since)) for index, (pattern, since) in asked.items()}
                here = self._feed.position()
                if all(since.offset is not None and since.offset <= here for _, since in asking.values()):
                    offsets = [since.offset or 0 for _, since in asking.values()]
                else:
                    offsets = self._search.find_starts(client, list[tuple[str, Since]](asking.values()))
                if epoch == self._bus.epoch:  # otherwise the log was lost, or lost its end, in between
                    return epoch, dict(zip(asking, offsets, strict=True)), {}
        except HeadgateError as error:
            return self._bus.epoch, {}, dict.fromkeys(asked, error.with_traceback(None))

    def _on_line(self, since: Since) -> Since:
        """Return a `since` without an epoch; for a position that the log has lost, the newest one before it.

        For an epoch that the log never had, the past is the whole log, with a gap for the trimmed part. May wait for Redis.
        Raises BusUnavailable, BusRefused: as `LogSearch.end_of`.
        """
        if since.offset is None or since.epoch is None or since.epoch == self._bus.epoch:
            return since
        end = self._search.end_of(since.epoch, since.offset)
        return Since(offset=0 if end is None else min(since.offset, end))

    def _activate_all(self, client: Client, pending: _Pending, epoch: str | None, starts: _Starts, needed: _Needed) -> None:
        """Make subscriptions active, one after the other.

        Those with `starts` of an earlier epoch, and all from the first unsecured one on, stay in `pending`. The matcher takes
        over the needs of patterns new here, and they leave `needed`. Raises Unauthorized: the client left during the call.
        """
        # A single one is not worth its turn.
        with self._share if starts or len(pending) > 1 else nullcontext():
            # Offsets of a lost log mean nothing in the next one, and those of an epoch may be above its end. Find them again.
            while pending and (not starts or epoch == self._bus.epoch):
                self.check_in(client)
                if starts and self._feed.under_way:
                    before = len(pending)
                    self._activate_after_pass(client, pending, epoch, starts, needed)
                    self._share.pause()
                    if len(pending) == before:
                        break
                elif not self._activate_next(client, pending, starts, needed, self._share.pause):
                    break
            self.check_in(client)

    def _activate_next(
        self, client: Client, pending: _Pending, starts: _Starts, needed: _Needed, is_over: Callable[[], object]
    ) -> bool:
        """Activate subscriptions until `is_over`, called between two, returns that the loop has run or must run.

        Returns False if the next is not secured.
        """
        is_kept: Callable[[str], object] | None = None
        while pending:
            index, wanted = pending[0]
            if wanted.pattern not in needed:
                is_kept = is_kept or self._kept()
                if not is_kept(wanted.pattern):
                    return False
            pending.popleft()
            self._activate(client, wanted, starts.get(index), needed)
            if not pending or is_over():
                break
        return True

    def _activate_after_pass(
        self, client: Client, pending: _Pending, epoch: str | None, starts: _Starts, needed: _Needed
    ) -> None:
        """Wait for the end of the current pass, and activate subscriptions there, for one slice of time."""
        done = Signal()

        def activate() -> None:
            until_s = monotonic() + SHARE_S
            if epoch == self._bus.epoch and self._clients.get(client.session) is client:
                self._activate_next(client, pending, starts, needed, lambda: monotonic() > until_s)
            done.set()

        self._feed.between_passes(activate)
        with self._share.outside():
            done.wait()

    def _activate(self, client: Client, wanted: Subscription, start: int | None, needed: _Needed) -> None:
        """Give a client the live events of its subscription and, with an offset, those after it from the log.

        In one step, as a live event between the two would come from the log again.
        """
        pattern = wanted.pattern
        if client.identity is not self._admitted.get(client) and not client.identity.may_subscribe(pattern):
            return  # its grants changed since
        if not client.subscriptions:
            client.begin(self._feed.position())
        is_new = client.subscribe(pattern, wanted.overflow)
        if self._matcher.add(pattern, client):
            del needed[pattern]  # the matcher keeps it from now on
        if start is not None:
            client.ask_past(pattern, start, self._feed.position(), is_new=is_new)

    def _remove(self, pattern: str, client: Client) -> None:
        if self._matcher.remove(pattern, client):
            self._bus.release(pattern)
