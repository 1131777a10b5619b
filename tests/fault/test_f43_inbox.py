"""F43: people with several tabs on several devices read their inboxes while everything breaks.

The pages are Headgate's own (inbox_pages.mjs). A publisher tries each item again until it has a receipt, and a consumer pushes
what was not read in time. Tabs lose their connection; gateways, consumers and the Redis primary are killed. The checker knows
the publisher's receipts, the pages' notices, and their content, and asks Redis only at the end. `HEADGATE_SEED` repeats faults
and actions, not their timing; `HEADGATE_PIECES` says how often all faults happen.
"""

import contextlib
import math
import os
import random
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import quantiles
from typing import Any, NamedTuple

import jwt
import msgspec
import pytest

from headgate.errors import BusRefused, BusUnavailable, NotDurable
from headgate.redis.lineage import Fate
from headgate.services.inbox import Inbox
from headgate.services.publisher import Publisher, Receipt
from tests.fault.accounts import Faults
from tests.fault.figures import Figures
from tests.fault.grounds import AnAddress, Ground, Sentinels
from tests.fault.participants import Participant
from tests.fault.site import Load, Site, wait_for
from tests.fault.until_stopped import UntilStopped

SECRET = "a secret of thirty-two bytes or more, for tests"
KIND = "news"
TABS, DEVICES = 3, 2
UNLESS_READ_S = 2.0
RETRY_S = 0.05
OFFLINE_SHARE = 0.1
# An outbox tries again two seconds after a refusal.
SETTLE_S = 2.5
REST_S = 120.0
# By fault, its name where Redis is at an address, and with Sentinels.
FAILOVERS = {
    "failover": ("FAILOVER, then the address moves", "planned failover"),
    "primary killed": ("a replica that lags takes over", "primary killed"),
}
# Of the connected tabs, how long two may show another count, in 99 of 100 changes.
APART_MS, SHARE = 200.0, 0.001


@dataclass(frozen=True, slots=True)
class Size:
    """How many people there are, how much they get and do, and how often each fault comes."""

    people: int
    items_per_s: float
    actions_per_s: float
    calm_s: float
    rounds: int
    faults: tuple[str, ...]


SIZES = {
    "short": Size(10, 20, 20, 0.5, 1, ("tabs offline", "gateway", "consumer", "failover")),
    "full": Size(1000, 60, 60, 12, 3, ("tabs offline", "gateway", "consumer", "failover", "primary killed")),
}


class Sent(NamedTuple):
    """An item with its receipt."""

    user: str
    at_s: float
    receipt: Receipt


class Sending(UntilStopped):
    """A thread that sends items to people until `stop`, each again under its id until there is a receipt.

    Attributes:
        sent: the items, by their ids.
        again: those sent more than once, as a failover may have taken them from the tabs.
    """

    def __init__(self, url: str, size: Size, moments: random.Random, durable: Any) -> None:
        super().__init__()
        self.sent: dict[str, Sent] = {}
        self.again: set[str] = set()
        self._size, self._moments = size, moments
        self._publisher = Publisher(url, timeout_s=1.0, durable=durable)

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        self._publisher.close()

    def stop(self) -> None:
        """Stop, and send the items again that `check` no longer finds in the log."""
        self.end()
        for item, (user, _, receipt) in list(self.sent.items()):
            if self._publisher.check(receipt) is not Fate.IN_LOG:
                self.again.add(item)
                self._send(item, user)

    def fate(self, receipt: Receipt) -> Fate:
        """Ask for the fate of a receipt."""
        return self._publisher.check(receipt)

    def _work(self) -> None:
        for number in self._turns(1 / self._size.items_per_s):
            self._send(f"{KIND}/{number}", f"u{self._moments.randrange(self._size.people)}")

    def _send(self, item: str, user: str) -> None:
        while True:
            try:
                [receipt] = Inbox(self._publisher).send(user, KIND, {"item": item, "pad": "x" * 100}, item.partition("/")[2])
            except (BusUnavailable, BusRefused, NotDurable):
                self.again.add(item)
                time.sleep(RETRY_S)
            else:
                self.sent[item] = Sent(user, time.monotonic(), receipt)
                return


@dataclass
class Shown:
    """The content and the notices of the pages at the end."""

    tabs: dict[str, list[tuple[int, list[list[Any]]]]] = field(default_factory=dict)
    done: list[tuple[list[str], str, float, str, int, str]] = field(default_factory=list)
    refused: Counter[str] = field(default_factory=Counter)
    apart_ms: dict[str, list[float]] = field(default_factory=dict)
    appeared: dict[str, Any] = field(default_factory=dict)

    def doubled(self, again: set[str]) -> list[str]:
        """Return the items that came to a tab once more, without `again`.

        Nor does it count items that people archived and brought back, and those with an archiving that Redis lost in a failover.
        """
        done = {op: {item for ids, each, *_ in self.done for item in ids if each == op} for op in ("archive", "unread")}
        excused = (done["archive"] & done["unread"]) | again | set(self.appeared["restored"])
        return [item for item in self.appeared["again"] if item not in excused]


class World:
    """A site with all people in it."""

    def __init__(self, folder: Path, load: Load, size: Size, seed: int, started: contextlib.ExitStack) -> None:
        self.moments, self.size, self._folder = random.Random(seed), size, folder
        self.faults = Faults()
        self.ground: Ground
        if load.name == "short":
            self.ground = started.enter_context(AnAddress(folder / "address", load.gateways, self.faults))
        else:
            self.ground = Sentinels(folder, load.gateways, self.faults, started)
        settings: dict[str, Any] = {"token_secret": SECRET, "max_clients_per_address": 0, "log_max_age_s": 3600}
        self.site = started.enter_context(Site(folder, load, behind=self.ground, addresses=self.ground.addresses, **settings))
        self.site.wait_until_ready()
        words = (seed, size.actions_per_s)
        self.pages = started.enter_context(Participant("inbox_pages", ",".join(self.site.urls), folder / "pages", *words))
        durable = None if load.name == "short" else "all"  # in the short form there is no replica but during the failover
        self.sending = Sending(self.ground.url, size, random.Random(seed + 1), durable)
        self._consumers = [self._consumer()]
        started.callback(lambda: self._consumers[-1].kill())

    def say(self, *command: object) -> None:
        self.pages.ask(msgspec.json.encode(command).decode())

    def open(self) -> None:
        """Let all people come, each with all tabs."""
        claims = {"aud": "headgate", "exp": time.time() + 7200}
        for number in range(self.size.people):
            user = f"u{number}"
            self.say("open", user, jwt.encode(claims | {"sub": user}, SECRET, algorithm="HS256"), TABS, DEVICES)
            if number % 50 == 49:
                self.wait_until_quiet()
        self.wait_until_quiet()

    def wait_until_quiet(self) -> None:
        """Wait until every tab is current, every action has its outcome, and the tabs of each user show one count."""

        try:
            self._wait(lambda counts: not any(counts), "every tab to be as the others")
        except AssertionError:
            print("pages:", *self.pages.read()[-3:], sep="\n")
            apart = {user: tabs for user, tabs in read_report(self).tabs.items() if len({count for count, _ in tabs}) > 1}
            for user in list(apart)[:3]:
                print(user, *((count, items[:5]) for count, items in apart[user]), sep="\n  ")
            raise

    def happen(self, fault: str) -> None:
        """Break something, repair it, and wait until every tab is connected and has its missed events."""
        if fault == "consumer":
            self._kill_consumer()
            return
        self.say("fault", True)
        if fault == "tabs offline":
            self._tabs_offline()
        elif fault == "gateway":
            self._kill_gateway()
        else:
            self._fail_over(*FAILOVERS[fault])
        self._wait(lambda counts: counts[0] == 0 and not any(map(_catching_up, self.site.urls)), "every tab to be back")
        time.sleep(SETTLE_S)  # the pause of the outboxes
        self.say("fault", False)

    def _wait(self, is_over: Callable[[list[int]], bool], what: str) -> None:
        """Wait for the counts of the pages, for longer than REST_S if they were less at some time in it than ever before."""
        least = [math.inf]

        def look() -> bool:
            counts = self._count()
            least[-1] = min(least[-1], sum(counts))
            return is_over(counts)

        while True:
            try:
                wait_for(look, what, REST_S)
                return
            except AssertionError:
                if least[-1] >= min(least[:-1], default=math.inf):
                    raise
            least.append(math.inf)

    def _count(self) -> list[int]:
        """Return how many tabs are not current, actions have no outcome yet, and people have tabs with different counts."""
        asked = len(self.pages.read())
        self.say("count")
        wait_for(lambda: any(entry[0] == "count" for entry in self.pages.read()[asked:]), "the pages to answer")
        counts: list[int] = next(entry for entry in reversed(self.pages.read()) if entry[0] == "count")[1:]
        return counts

    def pushed(self) -> list[tuple[float, str]]:
        """Return when each item was pushed."""
        return [(entry[1], f"{KIND}/{entry[4]}") for each in self._consumers for entry in each.read()]

    def _tabs_offline(self) -> None:
        self.say("offline", OFFLINE_SHARE)
        time.sleep(self.size.calm_s)  # the time until they are back
        self.say("online")

    def _kill_gateway(self) -> None:
        gateway = self.moments.choice(self.site.gateways)
        gateway.kill()
        time.sleep(self.size.calm_s / 4)  # the time until it is back
        gateway.start()
        self.site.wait_until_ready()

    def _kill_consumer(self) -> None:
        self._consumers[-1].kill()
        self._consumers.append(self._consumer())

    def _fail_over(self, *names: str) -> None:
        self.ground.at_once[next(name for name in names if name in self.ground.at_once)](self.moments)
        self.ground.be_whole()
        self.site.wait_until_ready()
        self.site.wait_until_followed()

    def _consumer(self) -> Participant:
        journal = self._folder / f"consumer-{time.monotonic_ns()}"
        return Participant("consume", self.ground.url, journal, "push", f"users.*.inbox.{KIND}", UNLESS_READ_S)


def _catching_up(url: str) -> bool:
    """Whether a gateway has clients behind the live feed."""
    with urllib.request.urlopen(f"{url}/metrics", timeout=30) as answer:
        lines = answer.read().decode().splitlines()
    return any(float(line.split()[-1]) > 0 for line in lines if line.startswith("headgate_clients_catching_up"))


@contextlib.contextmanager
def world_of(folder: Path, load: Load, seed: int) -> Iterator[World]:
    """Start it, with all people there."""
    with contextlib.ExitStack() as started:
        world = World(folder, load, SIZES[load.name], seed, started)
        world.open()
        started.enter_context(world.sending)
        yield world


@pytest.mark.timeout(3600)
@pytest.mark.nightly
def test_each_person_has_each_item_once_and_the_same_count_on_every_device(
    tmp_path: Path, load: Load, figures: Figures, seed: int
) -> None:
    """Whatever breaks in that time; and nothing that was read is pushed, nor is anything unread left out."""
    size = SIZES[load.name]
    with world_of(tmp_path, load, seed) as world:
        world.say("act")
        for number in range(int(os.environ.get("HEADGATE_PIECES") or size.rounds)):
            for fault in world.moments.sample(size.faults, len(size.faults)):
                time.sleep(size.calm_s)  # a time without a fault, in which tabs are compared
                began_s = time.monotonic()
                world.happen(fault)
                print(f"round {number}: {fault}: {time.monotonic() - began_s:.1f} s, {len(world.sending.sent)} items", flush=True)
        time.sleep(size.calm_s)  # as above
        world.say("rest")
        world.sending.stop()
        world.wait_until_quiet()
        shown = read_report(world)
        faults = check_items(world, shown)
        assert not faults, f"{len(faults)} faults:\n" + "\n".join(faults[:12])
        pushes, late = check_pushes(world, shown)
    note(figures, seed, world, shown, pushes, late)


def read_report(world: World) -> Shown:
    """Return the report of the pages."""
    world.say("report")
    wait_for(lambda: any(entry[0] == "figures" for entry in world.pages.read()), "the report of the pages")
    shown = Shown()
    for kind, *rest in world.pages.read():
        if kind == "shown":
            shown.tabs[rest[0]] = [(unread, items) for unread, items in rest[1]]
        elif kind == "done":
            shown.done.append(tuple(rest))
        elif kind == "refused":
            shown.refused[rest[0]] += 1
        elif kind == "figures":
            shown.apart_ms, shown.appeared = rest
    return shown


def check_items(world: World, shown: Shown) -> list[str]:
    """Return the faults: a missing item, tabs that differ from Redis, a state that no person gave an item."""
    faults = [f"refused: {code}, {count} times" for code, count in shown.refused.items() if code != "invalid_request"]
    changes: dict[str, list[tuple[int, str, str]]] = {}
    epochs = {epoch for *_, epoch, offset, _ in shown.done if offset is not None}
    for ids, op, _, epoch, offset, _ in shown.done:
        for item in ids:
            changes.setdefault(item, []).append((offset or 0, op, epoch))
    with contextlib.closing(Publisher(world.ground.url, timeout_s=30)) as publisher:
        inbox = Inbox(publisher)
        for user, tabs in shown.tabs.items():
            page = inbox.page(user, limit=100, archived=True)
            assert page.before is None, "a tab shows all that a user has"
            states = {item.id: "archive" if item.archived else "read" if item.read else "unread" for item in page.items}
            faults += [
                f"{user}: {item} is missing"
                for item, sent in world.sending.sent.items()
                if sent.user == user and item not in states
            ]
            listed = [[item.id, item.read] for item in page.items if not item.archived]
            unread = sum(not is_read for _, is_read in listed)
            for number, (count, items) in enumerate(tabs):
                if (count, items) != (unread, listed) or page.unread != unread:
                    faults.append(f"{user}, tab {number}: {count} unread of {items}; Redis: {page.unread} of {listed}")
            for item, state in states.items():
                given = {_state_after(op) for _, op, _ in changes.get(item, ())}
                if state not in given | {"unread"}:
                    faults.append(f"{user}: {item} is {state}, which nobody has done: {changes.get(item)}")
                if state == "unread" and given and "unread" not in given and len(epochs) == 1:
                    faults.append(f"{user}: {item} is unread, after {changes[item]}")
    return faults


def _state_after(op: str) -> str:
    return "read" if op == "read_all" else op


def check_pushes(world: World, shown: Shown) -> tuple[int, int]:
    """Return how many items were pushed, and how many of them after a page knew that they were read.

    Raises:
        AssertionError: an unread item was not pushed.
    """
    touched = {item for ids, *_ in shown.done for item in ids}
    owed = set(world.sending.sent) - touched
    wait_for(lambda: owed <= {item for _, item in world.pushed()}, "every item that nobody has read to be pushed", REST_S)
    read_s: dict[str, float] = {}
    for ids, op, at_s, *_ in shown.done:
        if op in ("read", "read_all", "archive") and at_s is not None:
            read_s |= {item: min(at_s, read_s.get(item, at_s)) for item in ids}
    again = {item for ids, op, *_ in shown.done for item in ids if op == "unread"}
    first: dict[str, float] = {}
    for at_s, item in world.pushed():
        first.setdefault(item, at_s)
    late = [item for item, at_s in first.items() if item not in again and at_s > read_s.get(item, at_s)]
    return len(first), len(late)


def note(figures: Figures, seed: int, world: World, shown: Shown, pushes: int, late: int) -> None:
    """Check the shares, and write down the results."""
    appeared, again = shown.appeared["once"], shown.doubled(world.sending.again)
    connected, reconnecting = (sorted(shown.apart_ms[name]) or [0.0] for name in ("connected", "reconnecting"))
    p99_ms = quantiles(connected, n=100)[98] if len(connected) > 1 else connected[0]
    what = "inboxes:"
    people = f"{what} people with {TABS} tabs on each of {DEVICES} devices"
    figures("F43", people, world.size.people, "", "all agree with Redis at the end (checked)", seed)
    figures("F43", f"{what} items sent; missed by any tab: 0", len(world.sending.sent), "", "0 missed (checked)", seed)
    figures("F43", f"{what} of these sent again, as a failover might have lost them", len(world.sending.again), "", "", seed)
    figures("F43", f"{what} actions of people", len(shown.done), "", "each in effect (checked)", seed)
    figures("F43", f"{what} items shown to tabs", appeared, "", "each checked", seed)
    restored = len(set(shown.appeared["restored"]))
    figures(
        "F43", f"{what} archived items that a failover brought back until the page archived them again", restored, "", "", seed
    )
    figures("F43", f"{what} of these shown once more", 100 * len(again) / appeared, "%", "≤ 0.1 %", seed)
    figures("F43", f"{what} connected tabs of a user show another count, p99", p99_ms, "ms", "≤ 200 ms", seed)
    figures("F43", f"{what} the same, longest", connected[-1], "ms", "", seed)
    figures("F43", f"{what} the same while tabs reconnect or Redis fails over, longest", reconnecting[-1], "ms", "", seed)
    figures("F43", f"{what} items pushed", pushes, "", "each that nobody has read (checked)", seed)
    figures("F43", f"{what} of these read before", 100 * late / max(1, pushes), "%", "≤ 0.1 %", seed)
    assert len(again) <= SHARE * appeared, f"of {appeared} items these were shown once more: {again}"
    assert late <= SHARE * pushes, f"{late} of {pushes} items were pushed although they had been read"
    assert load_is_short(world) or p99_ms <= APART_MS, f"connected tabs differed for {p99_ms:.0f} ms at p99"


def load_is_short(world: World) -> bool:
    """Whether this is the test command, which measures no time, because other tests have the processors too."""
    return world.size is SIZES["short"]
