"""One piece of the mixture: a log, its browsers, publishers and consumers, the faults of a plan, and the account of each."""

from __future__ import annotations

import contextlib
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from headgate.redis.lineage import Fate
from headgate.services.publisher import Publisher, Receipt
from tests.fault.accounts import Acknowledged, Done, Faults, Flow, check_consumer, check_receipts, flows, latest_s, lost
from tests.fault.checker import History, Record, Violation, check
from tests.fault.grounds import BEHIND_S, At, Ground, Lasting, Paused, empty, kill_clients, replace_functions
from tests.fault.many_clients import BrowserClient, Swarm
from tests.fault.pages import Pages
from tests.fault.participants import Participant
from tests.fault.pasts import Pasts
from tests.fault.plan import Kinds, Size, Step
from tests.fault.site import Site, topics_of, wait_for
from tests.support.gateway_process import GatewayProcess

PUBLISHERS, CONSUMERS = 2, 2
# Of Headgate's own client, one at each gateway, with the handlers of an application.
PAGE_PATTERN = "load.#"
POLICIES = ["catch_up", "catch_up", "catch_up", "latest", "drop"]
# In the first piece, and in every second one after it, browsers share out so many patterns that no other has. Each has fewer
# than `max_subscriptions`.
OWN_PATTERNS, OWN_AT_MOST = 10_000, 60
# The receivers of the largest events, and of a burst of them.
LARGE_BROWSERS, LARGE_EVENTS, LARGE_BYTES = 4, 6, 1_000_000
SMALL_EVENTS, SMALL_BYTES = 2000, 100
# How often a client asks for a past after a fault that came alone.
ASKING_SHARE = 0.4
STORM = "a storm of browsers that resume"
GATEWAY, KILLED = "a gateway", "gateway killed"
KEPT_RECEIPTS = 300
# Of so many browsers it is measured when they have a new primary's events.
WATCHED = 20
ACCOUNT_S = 180.0


@dataclass(frozen=True, slots=True)
class Result:
    """The account of a piece, in which nothing was wrong."""

    owed: int
    seen: int
    gaps: int
    receipts: int
    lost_receipts: int
    unknown_receipts: int
    latest_s: float
    flows: list[Flow]
    silent_s: float
    done: int
    done_again: int


class Piece:
    """One log and all its users. A `started` process ends with the piece.

    Attributes:
        happened: how often each fault was made.
    """

    def __init__(self, site: Site, ground: Ground, folder: Path, moments: random.Random, number: int, size: Size) -> None:
        self._site, self._ground, self._folder, self._size = site, ground, folder, size
        self._name = f"piece{number}-{moments.getrandbits(32):x}"
        self._moments = moments
        self.happened: Counter[str] = Counter()
        self._killed: list[GatewayProcess] = []  # to be started after the lasting fault
        self._own = 0 if number % 2 else min(OWN_PATTERNS, OWN_AT_MOST * site.load.clients)
        self._started = contextlib.ExitStack()
        self._lasting: dict[str, Lasting] = {
            "browsers stop reading": self._stalled,
            "browsers go": self._gone,
            STORM: self._storm,
            **ground.lasting,
        }
        self._calm: dict[str, At] = {
            "browsers reset": self._reset_browsers,
            "subscriptions change": self._change_subscriptions,
            KILLED: self._kill_gateway,
            "publisher killed": lambda moments: self._replace(self._publishers, self._publisher, moments),
            "consumer killed": lambda moments: self._replace(self._consumers, self._consumer, moments),
            "burst of small events": lambda moments: self._burst(moments, SMALL_EVENTS, SMALL_BYTES, "load.t{}.changed"),
            "burst of 1 MB events": lambda moments: self._burst(moments, LARGE_EVENTS, LARGE_BYTES, "large.t{}.changed"),
        }
        self._at_once: dict[str, At] = {
            **self._calm,
            "listeners killed": lambda moments: kill_clients(ground, "pubsub"),
            "commands killed": lambda moments: kill_clients(ground, "normal"),
            "functions replaced": lambda moments: replace_functions(ground, moments),
            **ground.at_once,
        }
        self._paused: dict[str, Paused] = {
            GATEWAY: lambda moments: moments.choice(site.gateways),
            "a publisher": lambda moments: moments.choice(self._publishers),
            "a consumer": lambda moments: moments.choice(self._consumers),
            "a page": lambda moments: moments.choice(self._pages),
            **ground.paused,
        }

    @property
    def kinds(self) -> Kinds:
        """The possible faults here."""
        ground = self._ground
        at_once, lasting = list(self._at_once), list(self._lasting)
        if self._size.only_losses:
            at_once, lasting = list(ground.losing), [STORM, *ground.lasting]
        return Kinds(at_once, lasting, list(self._paused), list(self._calm), ground.needed)

    def __enter__(self) -> Piece:
        site, ground = self._site, self._ground
        empty(ground)
        site.wait_until_ready()
        site.wait_until_followed()
        self.swarm = Swarm(site.urls, site.load.clients, self._wanted, name="browser", receive_buffer_bytes=4096)
        with contextlib.ExitStack() as started:
            started.callback(self.swarm.close)
            for index, client in enumerate(self.swarm.clients):
                policy = POLICIES[index % len(POLICIES)]
                client.patterns, client.record.latest = dict.fromkeys(client.patterns, policy), policy == "latest"
            for client in self.swarm.clients[:LARGE_BROWSERS]:
                client.receive_buffer_bytes = None  # a megabyte in pieces of 4 KB takes ten seconds
            self.swarm.open()
            self._pasts = Pasts(site, self.swarm, ground.call)
            self._journals: list[Participant] = []
            self._ended = started
            self._publishers = [self._publisher() for _ in range(PUBLISHERS)]
            self._consumers = [self._consumer() for _ in range(CONSUMERS)]
            self._pages = [self._page(url) for url in site.urls]
            wait_for(lambda: all(page.read() for page in self._pages), "pages to connect")
            self._wait_for_receipts()
            self._started = started.pop_all()
            self._ended = self._started
        return self

    def __exit__(self, *_: object) -> None:
        self._started.close()

    def happen(self, step: Step) -> None:
        """Make one step of the plan."""
        moments = random.Random(step.seed)
        self._wait_for_receipts()
        time.sleep(step.rest_s)  # a pause between faults
        began_s, position = time.monotonic(), None
        if step.is_pause:
            self._pause(step, moments)
        elif step.during is not None:
            self.happened[step.during] += 1
            with self._lasting[step.during](moments):
                time.sleep(step.length * self._site.load.offline_s)  # the length of the fault
                for name in step.inside:
                    self._one(name, moments)
        else:
            self._pasts.note_line()
            position = self._pasts.held(moments)
            for name in step.inside:
                self._one(name, moments)
        while self._killed:  # a gateway without a way to Redis would not start
            self._killed.pop().start()
        if position is not None and moments.random() < ASKING_SHARE:
            self._pasts.ask(position, moments)
        print(f"{step.during or ''} {'+'.join(step.inside)}: {time.monotonic() - began_s:.1f} s", flush=True)

    def account(self) -> Result:
        """Heal everything; every promise must have been kept."""
        self._ground.be_whole()
        self._site.wait_until_ready()
        self._site.wait_until_followed()
        self.swarm.wait(lambda: all(client.up for client in self.swarm.clients), "everybody to be back")
        for publisher in self._publishers:
            publisher.stop()
        history, receipts = self._published()
        self._site.come_to_rest(self.swarm, history, ACCOUNT_S)
        end = epoch, _ = self._site.head()
        pages = self._page_records(end)
        log = {(event.epoch, event.offset) for event in history.log(epoch)}
        with contextlib.suppress(AssertionError):  # skipped events are a violation
            wait_for(lambda: not log - {(did.epoch, did.offset) for did in self._done()}, "consumers", ACCOUNT_S)
        done = self._done()
        gone = lost(history, receipts, epoch)
        fates = self._fates([*gone, *self._moments.sample(receipts, min(len(receipts), KEPT_RECEIPTS))])
        faults = self._ground.faults
        violations = [
            *check(history, pages, end),
            *check_receipts(history, receipts, fates, faults, epoch),
            *check_consumer(history, "consumers", done, faults, epoch),
        ]
        if violations:
            _explain(violations, self._journals, faults)
        assert not violations, f"{len(violations)} violations, {Counter(each.kind for each in violations)}:\n" + "\n".join(
            map(str, violations[:12])
        )
        self._pasts.note_line()
        self._pasts.assert_kept(history)
        records = self.swarm.records
        return Result(
            owed=sum(record.owed for record in (*records, *pages)),
            seen=sum(len(record.seen()) for record in records),
            gaps=sum(len(record.gaps()) for record in records),
            receipts=len(receipts),
            lost_receipts=len(gone),
            unknown_receipts=sum(fates[each.place] == Fate.UNKNOWN for each in gone),
            latest_s=latest_s(gone, faults),
            flows=flows(records[:WATCHED], faults),
            silent_s=max(later - earlier for earlier, later in pairwise(sorted(receipt.at_s for receipt in receipts))),
            done=len(done),
            done_again=len(done) - len({(did.epoch, did.offset) for did in done}),
        )

    # -- participants -----------------------------------------------------------------------------------------------

    def _wanted(self, index: int) -> list[str]:
        shared = topics_of(index) if index % 5 == 0 else ["load.#" if index % 5 == 1 else "load.*.changed"]
        large = ["large.#"] if index < LARGE_BROWSERS else []
        each = self._own // self._site.load.clients
        return [*shared, *large, *(f"own.p{number}.changed" for number in range(index * each, (index + 1) * each))]

    def _participant(self, role: str, url: str, *words: object) -> Participant:
        participant = Participant(role, url, self._journal(role), *words)
        self._begun(participant)
        return participant

    def _page(self, url: str) -> Pages:
        pages = Pages(url, self._journal("page"))
        self._begun(pages)
        pages.open(f"page {len(self._journals)}", [PAGE_PATTERN])
        return pages

    def _journal(self, role: str) -> Path:
        return self._folder / f"{self._name}-{role}-{len(self._journals)}"

    def _begun(self, participant: Participant) -> None:
        self._ended.enter_context(participant)
        self._journals.append(participant)

    def _publisher(self) -> Participant:
        load, name = self._site.load, f"{self._name}-{len(self._journals)}"
        return self._participant("publish", self._ground.url, name, load.per_s, load.payload_bytes, self._own)

    def _consumer(self) -> Participant:
        return self._participant("consume", self._ground.url, self._name)

    def _published(self) -> tuple[History, list[Acknowledged]]:
        """Return the history of all journals: receipts, and every id tried without one, or more than once."""
        history, tries = History(), Counter[str]()
        receipts = []
        for number, journal in enumerate(self._journals):
            for kind, *rest in journal.read():
                if kind == "try":
                    tries[rest[0]] += 1
                elif kind == "got":
                    event_id, topic, sent_s, at_s, epoch, offset = rest
                    history.published(epoch, offset, topic, event_id)
                    receipts.append(Acknowledged(f"publisher {number}", sent_s, at_s, epoch, offset, event_id))
        for event_id, count in tries.items():
            if count > 1 or event_id not in history.ids:
                history.doubtful(event_id)
        return history, receipts

    def _done(self) -> list[Done]:
        return [Done(*rest) for journal in self._journals for kind, *rest in journal.read() if kind == "did"]

    def _page_records(self, end: tuple[str, int]) -> list[Record]:
        """Return the events of each page's handlers, once it has the last one."""
        epoch, last = end

        def has_all(page: Pages) -> bool:
            page.read()
            return last in page.last.values()

        wait_for(lambda: all(map(has_all, self._pages)), "pages to have the last event", ACCOUNT_S)
        return [record for pages in self._pages for record in pages.records(epoch)]

    def _wait_for_receipts(self) -> None:
        """Wait until a publisher has a receipt that is newer than this moment."""
        began_s = time.monotonic()

        def is_new(entry: list[Any]) -> bool:
            return bool(entry[0] == "got" and entry[4] > began_s)

        wait_for(lambda: any(is_new(entry) for each in self._publishers for entry in each.read()[-300:]), "a receipt")

    def _fates(self, receipts: list[Acknowledged]) -> dict[tuple[str, int], str]:
        with Publisher(self._ground.url, timeout_s=10.0) as publisher:
            return {
                each.place: publisher.check(Receipt(each.epoch, each.offset, duplicate=False, id=each.id)) for each in receipts
            }

    # -- the faults ---------------------------------------------------------------------------------------------------

    def _one(self, name: str, moments: random.Random) -> None:
        self.happened[name] += 1
        self._at_once[name](moments)

    def _pause(self, step: Step, moments: random.Random) -> None:
        """Stop one process for long, while other things happen; it goes on as if nothing had been."""
        assert step.during is not None
        self.happened[f"{step.during} paused"] += 1
        process = self._paused[step.during](moments)
        may_lose = step.during in self._ground.replaced
        until_s = time.monotonic() + self._size.pause_s
        with self._ground.faults.one(f"{step.during} paused", loses=may_lose) as fault:
            if may_lose:
                fault.began_s, fault.lives_on = fault.began_s - BEHIND_S, True
            process.pause()
            try:
                for name in step.inside:
                    time.sleep(min(0.5, self._size.pause_s / len(step.inside)))  # a pause between faults
                    # One of two gateways serves, because without any, no failover would ever reach a browser.
                    if time.monotonic() < until_s and (step.during, name) != (GATEWAY, KILLED):
                        self._one(name, moments)
                time.sleep(max(0.0, until_s - time.monotonic()))  # the length of the fault
            finally:
                process.go_on()

    def _some(self, moments: random.Random) -> list[BrowserClient]:
        return [client for client in self.swarm.clients if moments.random() < 0.3 and client.up]

    @contextlib.contextmanager
    def _stalled(self, moments: random.Random) -> Iterator[None]:
        some = self._some(moments)
        self.swarm.each(lambda client: client.stall(), some)
        try:
            yield
        finally:
            self.swarm.each(lambda client: client.read_on(), some)

    @contextlib.contextmanager
    def _gone(self, moments: random.Random) -> Iterator[None]:
        some = self._some(moments)
        self.swarm.each(lambda client: client.leave(hard=moments.random() < 0.5), some)
        yield
        self._come_back(some, moments)

    @contextlib.contextmanager
    def _storm(self, moments: random.Random) -> Iterator[None]:
        """All have gone, and come back at once with their missed events, while the rest of the step happens."""
        everybody = list(self.swarm.clients)
        self.swarm.each(lambda client: client.leave(hard=True), everybody)
        self._burst(moments, SMALL_EVENTS, SMALL_BYTES, "load.t{}.changed")
        time.sleep(moments.uniform(0.1, self._site.load.offline_s))  # the time until they are back
        self._come_back(everybody, moments)
        yield

    def _come_back(self, some: list[BrowserClient], moments: random.Random) -> None:
        for client in some:
            url = moments.choice(self._site.urls)
            client.address = ("127.0.0.1", int(url.rpartition(":")[2]))
        self.swarm.each(lambda client: client.open_soon(), some)

    def _reset_browsers(self, moments: random.Random) -> None:
        some = self._some(moments)
        self.swarm.each(lambda client: client.leave(hard=True), some)
        self.swarm.each(lambda client: client.open_soon(), some)

    def _change_subscriptions(self, moments: random.Random) -> None:
        """Those with `drop` keep theirs, because between a request and its answer it is unknown what their gaps have to count."""

        def change(client: BrowserClient) -> None:
            policy = next(iter(client.patterns.values()), None)
            changes = random.Random(moments.getrandbits(32))
            if policy in (None, "drop"):
                return
            for old in [pattern for pattern in client.patterns if pattern.startswith("own.")][:10]:
                client.unsubscribe(old)
                client.subscribe(f"own.p{changes.randrange(self._own)}.changed", policy)
            pattern = f"load.t{changes.randrange(50)}.changed"
            if len(client.patterns) > 1 and changes.random() < 0.5:
                client.unsubscribe(list(client.patterns)[-1])
            else:
                client.subscribe(pattern, policy)

        self.swarm.each(change, self._some(moments))

    def _kill_gateway(self, moments: random.Random) -> None:
        gateway = moments.choice(self._site.gateways)
        if gateway not in self._killed:
            gateway.kill()
            self._killed.append(gateway)

    def _replace(self, some: list[Participant], begin: Callable[[], Participant], moments: random.Random) -> None:
        index = moments.randrange(len(some))
        with self._ground.faults.one("participant killed"):
            some[index].kill()
        some[index] = begin()

    def _burst(self, moments: random.Random, events: int, payload_bytes: int, topic: str) -> None:
        moments.choice(self._publishers).ask(f"burst {events} {payload_bytes} {topic}")


def _explain(violations: Sequence[Violation], journals: Sequence[Participant], faults: Faults) -> None:
    """Print the faults, and the journals' lines on the first broken promises."""
    print(*faults.past, sep="\n")
    for violation in violations[:3]:
        for number, journal in enumerate(journals):
            print(violation, f"journal {number}:", *(each for each in journal.entries if violation.offset in each), sep="\n  ")
