"""Presence over several processes: random histories of joins, breaks, deaths, outages and late messages, on a test's own clock.

HEADGATE_HISTORIES sets how many are tried (`make fuzz`: 20,000). One that fails is named by its number; HEADGATE_SEED runs it.
"""

import os
from collections.abc import Iterator
from random import Random

from headgate.node.presence.leases import BEAT_S
from headgate.redis.presence_entries import LEASE_S
from tests.support.presence_world import RETRY_S, Page, Process, World

HISTORIES = int(os.environ.get("HEADGATE_HISTORIES", "30"))
GONE_S, GRACE_S = 10.0, 5.0
# So soon after Redis has lost its memory, every process that lives has written its members again, and the others are dead.
TOLD_ANEW_S = RETRY_S + BEAT_S + LEASE_S + 1.0
USERS = ("ana", "ben", "eve", "ida")


def histories() -> Iterator[Random]:
    alone = os.environ.get("HEADGATE_SEED")
    for number in range(HISTORIES) if alone is None else (int(alone),):
        random = Random(number)
        try:
            yield random
        except GeneratorExit:
            print(f"HEADGATE_SEED={number}")  # the loop was left by a failure, which pytest shows with this line
            raise


def counts(page: Page) -> dict[str, int]:
    assert page.members is not None
    return {user: member[0] for user, member in page.members.items()}


def all_show_the_truth(world: World) -> None:
    """Each page shows the connected users and their connections, and Redis has nothing else."""
    for process in world.processes:
        for page in process.pages.values():
            assert counts(page) == world.truth(), (process.name, page.session)
    found = world.store.read("t")
    assert set(found) == {process.name for process in world.processes if process.pages}
    assert set(world.store.processes.get("t", ())) == set(found)


def step(world: World, random: Random) -> None:
    process = random.choice(world.processes)
    pages = list(process.pages.values())
    what = random.randrange(16)
    if what < 4:
        world.enter(process, random.choice(USERS))
    elif what < 6 and pages:
        world.leave(process, random.choice(pages), in_order=what == 4)
    elif what == 6 and random.random() < 0.3:
        world.kill(process)
    elif what == 7:
        if process.link_up:
            process.break_link()
        else:
            process.mend_link()
    elif what == 8:
        process.in_touch = not process.in_touch
    elif what == 9 and random.random() < 0.2:
        world.store.flush()
        for each in world.processes:
            if each.link_up:
                each.break_link()
    elif what == 10 and pages:
        page = random.choice(pages)
        page.slow = not page.slow
    elif what == 11:
        process.begin_reading()
    elif what == 12:
        process.read_on()
    elif what == 13:
        process.deliver(random.randrange(4))
    elif what == 14:
        process.pulse(loses_answer=random.random() < 0.3)
    else:
        world.now_s += random.choice((0.01, 0.3, 1.0, 4.0))
        process.tell()


def test_every_page_comes_to_show_who_is_there() -> None:
    """In every history: once links, Redis and pages are well, each page shows the connected users and their connections."""
    for random in histories():
        world = World(3)
        for _ in range(random.randrange(120)):
            step(world, random)
        for process in world.processes:
            process.in_touch = True
            if not process.link_up:
                process.mend_link()
            for page in process.pages.values():
                page.slow = False
        world.advance(GONE_S + 4)
        all_show_the_truth(world)


class Watch:
    """The oracle of a history with outages: it knows the connected users, and checks each page and the events after each step.

    A user whose last connection ended in good order, or broke GRACE_S ago, may be reported as gone, until it is connected again
    and Redis has been there for as long as that report takes. No other user may.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.absent_s: dict[str, float] = {}
        self.doubted_s: dict[str, float] = {}  # user → when the last process died that had it
        self.may_leave_s: dict[str, float] = {}
        # Until when a process cannot know the losses of Redis just before it opened the topic, because it has no memory.
        self.new_until_s: dict[Process, float] = {}
        self.watchers: list[Page] = []
        self.events: list[str] = []

    def absent(self, user: str) -> None:
        if user not in self.world.truth():
            self.absent_s.setdefault(user, self.world.now_s)

    def left_in_order(self, user: str, process: Process, lost_s: float) -> None:
        """A page has left. Its process cannot know of a user new elsewhere, without a report yet."""
        world = self.world
        others = [(each, page) for each in world.processes for page in each.pages.values() if page.user == user]
        told_s = world.now_s - RETRY_S - BEAT_S - 0.5
        if not any(each is process or (world.up and max(page.entered_s, world.back_s, lost_s) < told_s) for each, page in others):
            self.may_leave_s[user] = world.now_s

    def present(self, user: str) -> None:
        since_s = self.absent_s.pop(user, None)
        if since_s is not None and self.world.now_s - since_s >= GRACE_S - 0.5:
            self.may_leave_s[user] = self.world.now_s

    def look(self) -> None:
        world = self.world
        for user, since_s in self.absent_s.items():
            if world.now_s - since_s >= GRACE_S - 0.5:
                self.may_leave_s[user] = world.now_s
        for user, at_s in list(self.may_leave_s.items()):
            if world.up and world.now_s - max(at_s, world.back_s) > GONE_S + GRACE_S:
                del self.may_leave_s[user]
        for process, until_s in list(self.new_until_s.items()):
            if world.up and world.now_s > max(until_s, world.back_s + TOLD_ANEW_S):
                del self.new_until_s[process]
        for process in world.processes:
            for page in process.pages.values():
                for user in page.seen_leaving:
                    assert user in self.may_leave_s or process in self.new_until_s, (page.user, user)
                page.seen_leaving.clear()
        if world.up:
            for user, since_s in self.absent_s.items():
                sure_s = max(since_s, world.back_s, self.doubted_s.get(user, 0.0))
                for watcher in self.watchers:
                    if watcher.members is not None and world.now_s - sure_s > GONE_S:
                        assert user not in watcher.members, (watcher.user, user, world.now_s - sure_s)
        for kind, _, _ in world.store.news:
            assert not self.events or self.events[-1] != kind, "occupied and vacated alternate"
            self.events.append(kind)
        world.store.news.clear()


def test_nobody_is_told_to_leave_for_what_redis_has_lost() -> None:
    """Flushes, empty restarts, failovers, outages, deaths, steps of clocks: connected members are never reported as gone.

    The gone ones are reported within ten seconds of Redis being available. `occupied` and `vacated` alternate while Redis has
    its memory.
    """
    for random in histories():
        outages(random)


def outages(random: Random) -> None:
    world = World(4)
    watch = Watch(world)
    for process in world.processes[:2]:
        page = world.enter(process, f"watcher at {process.name}")
        assert page is not None
        watch.watchers.append(page)
    world.advance(2.0)  # they know of each other
    coming: list[tuple[float, str, Page | None]] = []  # when a page tries, of which user, and which if it is not new
    held: dict[str, set[Process]] = {}  # user → processes that have had it
    lost_s = -1e9
    for _ in range(random.randrange(12, 30)):
        earlier = world.store.copy()
        what, user = random.randrange(16), random.choice(USERS)
        pages = [(process, page) for process in world.processes for page in process.pages.values() if page.user in USERS]
        if what < 4:
            coming.append((world.now_s, user, None))
        elif what < 7 and pages:
            process, page = random.choice(pages)
            world.leave(process, page, in_order=what == 4)
            watch.absent(page.user)
            if what == 4:
                watch.left_in_order(page.user, process, lost_s)
            if what == 6:
                coming.append((world.now_s + random.uniform(0, GRACE_S - 1.5), page.user, page))
        elif what < 9:
            dying = random.choice(world.processes[2:])
            if random.random() < 0.3:
                dying.pulse(dies_before_the_write=True)
            gone = world.kill(dying)
            for each in gone:
                watch.absent(each.user)
                if random.random() < 0.7:
                    coming.append((world.now_s + random.uniform(0, GRACE_S - 1.5), each.user, each))
            watch.doubted_s.update({each: world.now_s for each, places in held.items() if dying in places})
        elif what == 9:
            world.store.flush()
            watch.events.clear()
            lost_s = world.now_s
        elif what == 10:
            world.redis_ahead_ms += random.choice((-3_600_000, -3000, 3000, 3_600_000))
        elif what < 14:
            world.go_away()
            for _ in world.run(random.choice((0.1, 2.0, 6.0, 20.0)), random):
                watch.look()
            how = random.randrange(3)
            if how == 0:
                world.store.flush()
            elif how == 1:
                world.store.roll_back(earlier)
            if how < 2:
                world.store.news.clear()
                watch.events.clear()
                lost_s = world.now_s
            world.come_back(random)
        if random.random() < 0.5:
            earlier = world.store.copy()
        for _ in world.run(random.choice((0.1, 1.0, 3.0, 9.0)), random):
            for due in [due for due in coming if due[0] <= world.now_s]:
                _, user, known = due
                place = random.choice(world.processes)
                if "t" not in place.rooms.open:
                    watch.new_until_s[place] = lost_s + TOLD_ANEW_S
                page = world.enter(place, user, known)
                if page is None:
                    continue  # Redis is unreachable, or the process is not sure yet; the page asks again
                coming.remove(due)
                held.setdefault(user, set()).add(place)
                watch.present(user)
                place.pulse()
            watch.look()
    while not world.up or coming or world.now_s - world.back_s < 1:
        if not world.up:
            world.come_back(random)
        coming.clear()
        for _ in world.run(1.0, random):
            watch.look()
    for _ in world.run(GONE_S + GRACE_S, random):
        watch.look()
    all_show_the_truth(world)
