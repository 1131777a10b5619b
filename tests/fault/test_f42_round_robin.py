"""F42: pages at a proxy without sticky sessions that takes no WebSockets, while gateways are killed."""

import os
import random
import time
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import jwt
import pytest

from tests.fault.checker import History, assert_kept
from tests.fault.figures import Figures
from tests.fault.pages import Pages
from tests.fault.site import FULL, SHORT, TOPICS, Load, Publishing, Site, topics_of, wait_for
from tests.support.line_program import LineProgram

SECRET = "a secret of thirty-two bytes or more, for tests"
# Each page reads a tenth of the events. A long-poll is a join: 100 pages at rest take 0.18 of a processor, a third of it in the
# pages' own processes. A thousand would leave nothing of two processors for the herd after a kill, and need four.
PAGES = 1000 if (os.cpu_count() or 1) >= 4 else 300
LOADS = {"short": replace(SHORT, gateways=3, clients=40), "full": replace(FULL, gateways=3, clients=PAGES, per_s=20)}
KILLS = {"short": 1, "full": 12}
# Of ten pages one is at a proxy that holds streams back, and one tries a WebSocket first.
EVERY = 10
ROOM_MEMBERS = 20
# One process plays nine of ten pages. With little of a processor, all of them at once would give up before any is connected.
OPENED_AT_ONCE = 100
CHANGED_SHARE, CUT_SHARE = 0.3, 0.3
BACK_S = 150.0


class RoundRobin(LineProgram):
    """A proxy (round_robin.mjs). A line with a share ends this share of the present requests."""

    def __init__(self, mode: str, upstreams: list[str]) -> None:
        ports = [str(urlsplit(url).port) for url in upstreams]
        super().__init__("node", str(Path(__file__).with_name("round_robin.mjs")), mode, *ports)
        self.url = f"http://127.0.0.1:{int(self.line())}"


class World:
    """A site, its two proxies, and pages in rooms."""

    def __init__(self, site: Site, proxies: list[RoundRobin], groups: list[Pages]) -> None:
        self.site, self.proxies, self.groups = site, proxies, groups
        self.members: dict[str, list[str]] = {}
        for number in range(site.load.clients):
            user, room = f"u{number}", f"room.r{number // ROOM_MEMBERS}"
            self.members.setdefault(room, []).append(user)
            claims = {"sub": user, "aud": "headgate", "exp": time.time() + 3600, "subscribe": ["load.#", "room.#"]}
            token = jwt.encode(claims, SECRET, algorithm="HS256")
            way = {} if number % EVERY == 1 else {"transport": "stream"}
            self.group_of(number).open(user, topics_of(number), room, token=token, **way)
            if number % OPENED_AT_ONCE == OPENED_AT_ONCE - 1:
                self.wait_until_present()

    def group_of(self, number: int) -> Pages:
        """Return the pages around one of them: those at the proxy that holds streams back, or the others."""
        return self.groups[number % EVERY == 0]

    def change(self, moments: random.Random) -> None:
        """Let some pages subscribe to another topic in the place of one."""
        for number in range(self.site.load.clients):
            group, user = self.group_of(number), f"u{number}"
            free = sorted(
                {f"load.t{topic}.changed" for topic in range(TOPICS)} - set(group.patterns[user]) - set(topics_of(number))
            )
            # A page's first pattern covers one of its topics, so it takes none of these.
            free = [topic for topic in free if topic.rpartition(".")[0] + ".*" not in topics_of(number)]
            if moments.random() < CHANGED_SHARE:
                group.unsubscribe(user, moments.choice(group.patterns[user]))
                group.subscribe(user, moments.choice(free))

    def wait_until_present(self, *gone: str) -> None:
        """Wait until each page has all users in its room, but for those who have gone."""
        there = {user: set(members) - set(gone) for members in self.members.values() for user in members if user not in gone}
        wrong: dict[str, tuple[list[str], list[str]]] = {}

        def is_right() -> bool:
            rooms: dict[str, list[str]] = {}
            for group in self.groups:
                group.read()
                rooms |= group.rooms
            wrong.clear()
            for user, members in there.items():
                if (known := set(rooms.get(user, ()))) != members:
                    wrong[user] = sorted(members - known), sorted(known - members)
            return not wrong

        try:
            wait_for(is_right, "every page to have everybody in its room", BACK_S)
        except AssertionError:
            print("page: (not there, still there)", wrong)
            raise

    def wait_until_subscribed(self) -> None:
        """Wait until every subscription is acknowledged."""

        def is_over() -> bool:
            for group in self.groups:
                group.read()
            return not any(group.waiting for group in self.groups)

        wait_for(is_over, "every subscription to be acknowledged", BACK_S)

    def wait_until_had(self, end: int) -> None:
        """Wait until each page has its last event up to an offset, which ends one event for each topic."""
        first = end - TOPICS + 1
        waiting: dict[str, str] = {}

        def is_over() -> bool:
            waiting.clear()
            for group in self.groups:
                group.read()
                for page, patterns in group.patterns.items():
                    last = first + max(int(pattern.split(".")[1][1:]) for pattern in patterns)
                    if group.last.get(page, 0) < last:
                        waiting[page] = f"{group.last.get(page)} of {last}"
            return not waiting

        try:
            wait_for(is_over, "every page to have its last event", BACK_S)
        except AssertionError:
            print("behind:", waiting)
            raise


@contextmanager
def world_of(folder: Path, load: Load) -> Iterator[World]:
    """Start it, with every page connected and present."""
    with ExitStack() as started:
        site = started.enter_context(Site(folder, load, token_secret=SECRET, max_clients_per_address=0))
        site.wait_until_ready()
        proxies = [RoundRobin(mode, site.urls) for mode in ("stream", "buffer")]
        groups: list[Pages] = []
        for number, proxy in enumerate(proxies):
            started.enter_context(proxy)
            groups.append(Pages(proxy.url, folder / f"pages-{number}"))
            started.enter_context(groups[-1])
        world = World(site, proxies, groups)
        world.wait_until_present()
        yield world


def heads(history: History, publishing: Publishing) -> tuple[list[float], list[int]]:
    """Return when the receipts came, and their offsets. One event is published after the other."""
    offsets = [event.offset for event in history.events.values()]
    return publishing.receipts, offsets[: len(publishing.receipts)]


@pytest.mark.timeout(1800)
@pytest.mark.nightly
def test_without_websockets_and_sticky_sessions_every_page_gets_every_event_once(
    tmp_path: Path, load: Load, figures: Figures
) -> None:
    """Three gateways, killed at random, and connections cut; subscriptions change. Two gateways show all users as present."""
    load = LOADS[load.name]
    moments = random.Random()
    with world_of(tmp_path, load) as world:
        site = world.site
        with site.publishing() as publishing:
            for _ in range(KILLS[load.name]):
                publishing.wait_for(moments.randrange(5, 30))
                for proxy in world.proxies:
                    proxy.say(CUT_SHARE)
                world.change(moments)
                gateway = moments.choice(site.gateways)
                gateway.kill()
                world.change(moments)
                publishing.wait_for(20)
                gateway.start()
            gateway = moments.choice(site.gateways)
            gateway.kill()
            killed_s = time.monotonic()
            world.wait_until_present()
            present_s = time.monotonic() - killed_s
            gateway.start()
            world.wait_until_subscribed()
            history = publishing.stop()
        receipts, offsets = heads(history, publishing)
        epoch, end = site.publish_last(history)
        world.wait_until_had(end)

        def head_at(at_s: float) -> int:
            """The first event with a later receipt had perhaps been published already; the next one had not."""
            return [*offsets, end - TOPICS][min(bisect_left(receipts, at_s), len(offsets))]

        records = [record for group in world.groups for record in group.records(epoch, head_at)]
        assert_kept(history, records, site.head())
        assert not [gap for record in records for gap in record.gaps()], "nothing was lost, so there was nothing to report"
        world.groups[1].close("u0")
        world.wait_until_present("u0")
    owed = sum(record.owed for record in records)
    figures("F42", "no WebSockets, no sticky sessions: deliveries owed to pages", owed, "", "0 unreported, doubled or reordered")
    figures("F42", "gateway killed: everybody present for everybody, at the others", present_s, "s", "≤ 30 s")
