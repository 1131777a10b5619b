"""The subscriptions of one namespace's clients: admitted, acquired from the bus, active, ended.

In: requests of clients. Out: patterns in the matcher, with the interest of the bus that they need; clients that read a past from
the log (`Client.ask_past`).

Work on subscriptions is done in a share of the loop, and lets the loop run between two of them: 128 thought out ones take 60 ms.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from time import monotonic
from typing import TYPE_CHECKING

from headgate.auth.identity import Identity
from headgate.delivery.client import Client
from headgate.delivery.matcher import SubscriptionMatcher
from headgate.errors import Forbidden, HeadgateError, LimitReached, Unauthorized
from headgate.events.topic import check_pattern, is_wildcard
from headgate.protocol.packets import SUBSCRIBE, Overflow
from headgate.protocol.requests import Since, Subscription, read_subscription
from headgate.runtime.loop import Signal
from headgate.settings import Settings

from .line import Line

if TYPE_CHECKING:
    from .access.authorizing import Authorizing

# How long subscriptions are worked on, whosever they are, before everybody else has a turn.
SHARE_S = 0.001
# Patterns without a wildcard that are admitted between two looks at the time, at some 3 µs each.
EXACT_AT_ONCE = 8


class Subscriptions:
    """See the module. `clients` are those that are there, by session."""

    def __init__(
        self,
        clients: Mapping[str, Client],
        matcher: SubscriptionMatcher[Client],
        line: Line,
        authorizing: Authorizing,
        settings: Settings,
    ) -> None:
        self._clients, self._matcher, self._line = clients, matcher, line
        self._bus, self._feed, self._search, self._share = line.bus, line.feed, line.search, line.search.share
        self._authorizing, self._settings = authorizing, settings
        self._admitted: dict[Client, Identity] = {}  # the identity of each that subscribes now, as it was when it asked

    @property
    def count(self) -> int:
        """How many subscriptions are active."""
        return self._matcher.subscriptions

    def add_all(self, client: Client, requests: Iterable[object]) -> list[str | HeadgateError]:
        """Make subscriptions `{pattern, overflow?, since?}` active, or change their policy.

        Return for each its pattern, or the error that refused it. From then on every matching event above the bus's position
        comes. With `since`, the events of the pattern after that point come first, out of the log. May switch greenlets: until
        Redis has confirmed a pattern that nobody here had.

        Redis is asked for all of them at once, and the log is read once for all that have a `since`. A request beyond a limit is
        refused before its grant is looked at, so a pattern that turns out to be forbidden counts as well.

        Raises:
            Unauthorized: the client has left meanwhile.
        """
        identity = self._admitted[client] = client.identity
        try:
            outcomes = self._admit(client, requests)
            self._authorize(client, outcomes)
            self._add(client, outcomes)
            while client.identity is not identity:
                identity = self._admitted[client] = client.identity
                self._look_again(client, outcomes)
        finally:
            self._admitted.pop(client, None)
        return [wanted.pattern if isinstance(wanted, Subscription) else wanted for wanted in outcomes]

    def _add(self, client: Client, outcomes: list[Subscription | HeadgateError]) -> None:
        """Make the subscriptions among the outcomes active; put errors in the place of those that cannot be."""
        pending = deque((index, wanted) for index, wanted in enumerate(outcomes) if isinstance(wanted, Subscription))
        # A need of our own for each that nobody has, until it is active; its first client then keeps it.
        needed: dict[str, None] = {}
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
        finally:
            for pattern in needed:
                self._bus.release(pattern)

    def end(self, pattern: str, client: Client) -> None:
        """End a subscription, if there is one."""
        if client.unsubscribe(pattern):
            self._remove(pattern, client)

    def end_each(self, client: Client, ends: Callable[[str], bool]) -> list[str]:
        """End a client's subscriptions to patterns of which `ends` is true; return them. Lets the loop run.

        Raises:
            Unauthorized: the client has left meanwhile.
        """
        ended = []
        with self._share:
            for pattern in tuple(client.subscriptions):
                self.check_in(client)
                if ends(pattern) and client.unsubscribe(pattern):
                    self._remove(pattern, client)
                    ended.append(pattern)
                self._share.pause()
        return ended

    def apply(self, settings: Settings) -> None:
        """Go on with other limits; subscriptions above them stay."""
        self._settings = settings

    def forget(self, client: Client) -> None:
        """End all subscriptions of a client that has left. Lets the loop run."""
        # Until then it is still found among those who get an event, and takes none.
        with self._share:
            for pattern in tuple(client.subscriptions):
                self._remove(pattern, client)
                self._share.pause()
        client.subscriptions.clear()

    def check_in(self, client: Client) -> None:
        """Refuse a client that was disconnected, or has left, while Redis was asked.

        Raises:
            Unauthorized: it has.
        """
        if self._clients.get(client.session) is not client:
            raise Unauthorized("left", "this session has left")

    # -- private, in the order of a subscribe ---------------------------------------------------------------------

    def _admit(self, client: Client, requests: Iterable[object]) -> list[Subscription | HeadgateError]:
        """Read requests, and hold them against the limits and then against what the client is granted. Lets the loop run."""
        outcomes: list[Subscription | HeadgateError] = []
        held, settings, identity = client.subscriptions, self._settings, client.identity
        fresh: set[str] = set()
        wildcards = held.wildcards
        with self._share as share:
            for number, request in enumerate(requests):
                if not number % EXACT_AT_ONCE:
                    share.pause()
                try:
                    wanted = self._read(request)
                    pattern = wanted.pattern
                    has_wildcard = is_wildcard(pattern)
                    if has_wildcard:
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
                    # Its traceback holds this frame, which holds the list: a cycle for each refusal.
                    outcomes.append(error.with_traceback(None))
        return outcomes

    def _authorize(self, client: Client, outcomes: list[Subscription | HeadgateError]) -> None:
        """Refuse patterns that the application does not let a client have. May wait for the application.

        Raises:
            Unauthorized: the client has left meanwhile.
        """
        patterns = [wanted.pattern for wanted in outcomes if isinstance(wanted, Subscription)]
        if refused := self._authorizing.refused(client, patterns, SUBSCRIBE):
            for index, wanted in enumerate(outcomes):
                if isinstance(wanted, Subscription) and wanted.pattern in refused:
                    outcomes[index] = Forbidden("subscribe to", wanted.pattern)
        self.check_in(client)

    def _look_again(self, client: Client, outcomes: list[Subscription | HeadgateError]) -> None:
        """Its grants have changed while it subscribed: refuse, and end, what it may no longer have. May wait.

        What it may have now, and could not when it was to become active, or has lost since, becomes active.

        Raises:
            Unauthorized: the client has left meanwhile.
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
        """Read a request.

        Raises:
            InvalidRequest, InvalidPattern.
        """
        if type(request) is dict and len(request) == 1 and type(pattern := request.get("pattern")) is str:
            # One that a client here has is valid.
            return Subscription(self._matcher.subscribed(pattern) or check_pattern(pattern), Overflow.CATCH_UP, None)
        return read_subscription(request)

    def _kept(self) -> Callable[[str], object]:
        """Return a function that tells, until others have a turn, whether a client here keeps a pattern, and its events come."""
        has_client, is_active = self._matcher.subscribed, self._bus.active
        if self._bus.all_active:
            return has_client
        return lambda pattern: has_client(pattern) is not None and is_active(pattern)

    def _secure(self, pending: Iterable[tuple[int, Subscription]], needed: dict[str, None]) -> dict[int, HeadgateError]:
        """Have the bus bring the patterns that no client here keeps; return an error for each that it cannot. Waits for Redis.

        Each of them is in `needed` from then on.
        """
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
        """Return the epoch of the log, the offsets behind which the events begin that subscriptions with a `since` ask for, and
        an error for each where they cannot be found. Waits for Redis, and lets the loop run.
        """
        asked = {index: (wanted.pattern, wanted.since) for index, wanted in pending if wanted.since is not None}
        if not asked:
            self._feed.position()  # which remembers it: from there on the client is told what comes
            return self._bus.epoch, {}, {}
        try:
            while True:
                epoch = self._bus.epoch
                asking = {index: (pattern, self._on_line(since)) for index, (pattern, since) in asked.items()}
                here = self._feed.position()
                if all(since.offset is not None and since.offset <= here for _, since in asking.values()):
                    found = [since.offset or 0 for _, since in asking.values()]
                else:
                    found = self._search.find_starts(client, list[tuple[str, Since]](asking.values()))
                if epoch == self._bus.epoch:  # and not a place in a log that has just been lost, or has lost its end
                    return epoch, dict(zip(asking, found, strict=True)), {}
        except HeadgateError as error:
            return self._bus.epoch, {}, dict.fromkeys(asked, error.with_traceback(None))

    def _on_line(self, since: Since) -> Since:
        """Return a `since` without an epoch: of a position that the log has lost, the newest before it. May wait for Redis.

        Of an epoch that the log never had, nothing is known here: the past is the whole log, and a gap for what it has trimmed.

        Raises:
            BusUnavailable, BusRefused: as `Line.end_of`.
        """
        if since.offset is None or since.epoch is None or since.epoch == self._bus.epoch:
            return since
        end = self._line.end_of(since.epoch, since.offset)
        return Since(offset=0 if end is None else min(since.offset, end))

    def _activate_all(
        self,
        client: Client,
        pending: deque[tuple[int, Subscription]],
        epoch: str | None,
        starts: Mapping[int, int],
        needed: dict[str, None],
    ) -> None:
        """Make subscriptions active, one after the other; leave in `pending` those whose `starts` are of an epoch before, and all
        from one on whose pattern the last client here has left meanwhile.

        The needs of patterns that nobody here had go over to the matcher: they are no longer in `needed`.

        Raises:
            Unauthorized: the client has left meanwhile.
        """
        try:
            with self._share as share:
                # Offsets of a lost log mean nothing in the next one, and those of an epoch may be above its end: look again.
                while pending and (not starts or epoch == self._bus.epoch):
                    self.check_in(client)
                    if starts and self._feed.under_way:
                        before = len(pending)
                        self._activate_behind_pass(client, pending, epoch, starts, needed)
                        share.pause()
                        if len(pending) == before:
                            break
                    elif not self._activate_next(client, pending, starts, needed, share.pause):
                        break
                self.check_in(client)
        finally:
            client.pasts_complete()

    def _activate_next(
        self,
        client: Client,
        pending: deque[tuple[int, Subscription]],
        starts: Mapping[int, int],
        needed: dict[str, None],
        is_over: Callable[[], object],
    ) -> bool:
        """Make subscriptions active for as long as nothing else happens; False when the next one is not secured any more.

        `is_over` is asked behind each: whether others have had a turn, or are to have one.
        """
        is_kept = self._kept()
        while pending:
            index, wanted = pending[0]
            if wanted.pattern not in needed and not is_kept(wanted.pattern):
                return False
            pending.popleft()
            self._activate(client, wanted, starts.get(index), needed)
            if is_over():
                break
        return True

    def _activate_behind_pass(
        self,
        client: Client,
        pending: deque[tuple[int, Subscription]],
        epoch: str | None,
        starts: Mapping[int, int],
        needed: dict[str, None],
    ) -> None:
        """Wait for the end of the pass that is under way, and make subscriptions active there, for as long as a slice."""
        done = Signal()

        def activate() -> None:
            until_s = monotonic() + SHARE_S
            if epoch == self._bus.epoch and self._clients.get(client.session) is client:
                self._activate_next(client, pending, starts, needed, lambda: monotonic() > until_s)
            done.set()

        self._feed.between_passes(activate)
        with self._share.outside():
            done.wait()

    def _activate(self, client: Client, wanted: Subscription, start: int | None, needed: dict[str, None]) -> None:
        """Let a client have the events of its subscription: live, and from an offset on, if any, out of the log.

        Both in one step: an event that came live between the two would come out of the log again.
        """
        pattern = wanted.pattern
        if client.identity is not self._admitted.get(client) and not client.identity.may_subscribe(pattern):
            return  # its grants have changed meanwhile
        is_new = client.subscribe(pattern, wanted.overflow)
        if self._matcher.add(pattern, client):
            del needed[pattern]  # the matcher's from now on
        if start is not None:
            client.ask_past(pattern, start, self._feed.position(), is_new=is_new)

    def _remove(self, pattern: str, client: Client) -> None:
        if self._matcher.remove(pattern, client):
            self._bus.release(pattern)
