"""Places of a user over several processes: a model with real counters, a Redis that leases, dies and comes back."""

from random import Random

import pytest

from headgate.auth.client_counts import ASK_RETRY_S, PLACE_RETRY_S, ClientCounts
from headgate.errors import LimitReached
from headgate.runtime.shared_rates import OUT_OF_TOUCH_S, SETTLE_S

LEASE_S = 15.0


class World:
    """Processes that look at one store. `alive` is the store's; a dead process says nothing more."""

    def __init__(self, processes: int, most: int, quiet: int = 0) -> None:
        self.now_s, self.most, self.quiet, self.store_is_up = 1000.0, most, quiet, True
        self.told: dict[int, tuple[float, dict[str, int]]] = {}
        self.dead: set[int] = set()
        self.known = [False] * processes
        self.places = [ClientCounts(most, lambda: self.now_s, quiet=quiet) for _ in range(processes)]
        self.own = [places.own for places in self.places]
        for number in [*range(processes), *range(processes)]:
            self.look(number)  # twice: each knows of all

    def look(self, number: int) -> None:
        places = self.places[number]
        known = number in self.told and self.now_s - self.told[number][0] < LEASE_S
        fields = places.fields(whole_row=not known)
        if not self.store_is_up or number in self.dead:
            return
        lost, self.known[number] = self.known[number] and not known, True
        before = self.told[number][1] if known else {}
        counts = {**before, **fields}
        self.told[number] = (self.now_s, {user: own for user, own in counts.items() if own is not None})
        wanted = places.wanted_fields()
        others = {
            str(each): {user: b"%d" % theirs[user] if user in theirs else None for user in wanted}
            for each, (at_s, theirs) in self.told.items()
            if each != number and self.now_s - at_s < LEASE_S
        }
        places.receive(others, lost=lost)

    def join(self, number: int, user: str = "ana") -> LimitReached | None:
        try:
            self.places[number].check(user)
        except LimitReached as refused:
            return refused
        self.places[number].changed(user, self.own[number].get(user, 0) + 1)
        return None

    def leave(self, number: int, user: str = "ana") -> None:
        if own := self.own[number].get(user, 0):
            self.places[number].changed(user, own - 1)

    def die(self, number: int) -> None:
        self.dead.add(number)
        self.own[number].clear()

    def total(self, user: str = "ana") -> int:
        return sum(own.get(user, 0) for own in self.own)

    def share(self) -> int:
        return max(1, self.most // len(self.places))


def asked(places: ClientCounts) -> tuple[dict[str, int | None], list[str]]:
    """Begin an exchange; return its counts, and the users to ask about."""
    return places.fields(whole_row=False), places.wanted_fields()


def test_one_process_holds_the_limit_exactly_and_asks_nothing() -> None:
    """As it always did."""
    world = World(1, 5)
    assert [world.join(0) is None for _ in range(7)] == [True] * 5 + [False] * 2
    assert asked(world.places[0])[1] == []
    world.leave(0)
    assert world.join(0) is None


def test_the_limit_holds_over_processes_where_a_look_lies_between_two_joins() -> None:
    """But for one client at each process that meets the user for the first time."""
    world = World(4, 20)
    while world.join(0) is None:
        world.look(0)
    assert world.total() == 20
    for number in (1, 2, 3, 1, 2, 3):
        world.join(number)
        world.look(number)
    assert world.total() <= 23
    refused = world.join(2)
    assert refused is not None
    assert (refused.parts, refused.retry_after_s) == ({"name": "clients_per_user", "limit": 20}, PLACE_RETRY_S)


def test_a_process_lets_in_its_part_at_once_and_more_after_a_look() -> None:
    """A refusal before the look says that there may be room in a moment."""
    world = World(4, 20)
    assert [world.join(0) is None for _ in range(6)] == [True] * 5 + [False]
    refused = world.join(0)
    assert refused is not None
    assert refused.retry_after_s == ASK_RETRY_S
    world.look(0)
    assert world.join(0) is None


def test_a_client_that_leaves_one_process_makes_room_at_another() -> None:
    """After both have looked."""
    world = World(2, 4)
    for _ in range(8):
        for number in (0, 1):
            world.join(number)
            world.look(number)
    assert world.join(1) is not None
    for _ in range(world.total() - 3):
        world.leave(0)
    world.look(0)
    world.look(1)
    assert world.join(1) is None


def test_the_places_of_a_dead_process_come_back_when_its_lease_ends() -> None:
    """Not before."""
    world = World(2, 6)
    while world.join(0) is None:
        world.look(0)
    world.join(1)
    world.look(1)
    had = world.own[1]["ana"]
    world.die(0)
    assert world.join(1) is not None
    for _ in range(3):
        assert world.join(1) is not None
        world.now_s += LEASE_S / 3
        world.look(1)
    assert world.places[1].processes == 1
    while world.join(1) is None:
        pass
    assert (had, world.total()) == (1, 6)


def test_without_redis_each_process_keeps_its_share() -> None:
    """Of the processes that were known. When Redis is back, having lost it all, each waits for the reports of the others."""
    world = World(4, 20)
    world.store_is_up = False
    world.now_s += OUT_OF_TOUCH_S + 1
    for number in range(4):
        while world.join(number) is None:
            world.look(number)
    assert [own["ana"] for own in world.own] == [5] * 4
    world.store_is_up = True
    for _ in range(2):
        for number in range(4):
            world.look(number)
            assert world.join(number) is not None
    world.now_s += SETTLE_S - 1
    for number in range(4):
        world.look(number)
    world.now_s += 1
    for number in range(4):
        world.look(number)
        assert world.join(number) is not None
        world.look(number)
    assert world.total() == 20
    for _ in range(3):
        world.leave(0)
    world.look(0)
    world.join(1)  # refused by its own knowledge, and asks
    world.look(1)
    assert world.join(1) is None


def test_a_limit_below_the_number_of_processes_leaves_one_at_each() -> None:
    """A share is never nothing, or a user could be shut out by an unreachable Redis."""
    world = World(5, 2)
    assert [world.join(number) is None for number in range(5)] == [True] * 5
    assert [world.join(number) is None for number in range(5)] == [False] * 5


@pytest.mark.parametrize(("seed", "most", "quiet"), [*((n, 24, 0) for n in range(40)), *((n, 200, 16) for n in range(10))])
def test_the_limit_is_never_exceeded_by_more_than_a_share_of_each_other_process(seed: int, most: int, quiet: int) -> None:
    """Joins, leaves and looks in any order, of counts that are reported from one on and of quiet ones; a refused client finds
    room once another has left and all have looked. Nothing stays in the store about a user or address without clients.
    """
    random = Random(seed)
    world = World(random.randint(2, 5), random.randint(1, most), quiet)
    count = len(world.places)

    def look_all() -> None:
        for each in range(count):
            world.look(each)

    for _ in range(600 if not quiet else 1500):
        number = random.randrange(count)
        step = random.random()
        if step < 0.58:
            world.join(number)
        elif step < 0.68:
            world.leave(number)
        else:
            world.look(number)
        if random.random() < 0.04:
            world.now_s += random.random() * 3
            look_all()  # a lease is renewed in time
        assert world.total() <= world.most + (count - 1) * world.share()
    while world.total() >= world.most:
        world.leave(random.randrange(count))
    number = random.randrange(count)
    look_all()
    world.join(number)  # asks, if it had not
    world.look(number)
    assert world.total() >= world.most or world.join(number) is None
    while world.total():
        world.leave(random.randrange(count))
    look_all()
    look_all()
    assert not any(counts.get("ana") for _, counts in world.told.values())


def test_few_clients_of_an_address_are_neither_told_nor_asked_about() -> None:
    """Most addresses have one or two. One with more is reported, until it has fewer again."""
    world = World(2, 100, quiet=16)
    for _ in range(15):
        assert world.join(0) is None
        assert asked(world.places[0]) == ({}, [])
    assert world.join(0) is None
    assert asked(world.places[0]) == ({"ana": 16}, [])
    assert world.join(0) is None
    assert asked(world.places[0]) == ({"ana": 17}, ["ana"])
    world.leave(0)
    world.leave(0)
    assert asked(world.places[0]) == ({"ana": None}, [])
    world.leave(0)
    assert asked(world.places[0]) == ({}, [])
    world.places[0].changed("ben", 16)
    assert world.places[0].fields(whole_row=True) == {"ben": 16}


def test_without_a_limit_nothing_is_told_or_asked() -> None:
    """0 turns it off."""
    places = ClientCounts(0)
    places.processes = 3
    places.changed("ana", 10**6)
    places.check("ana")
    assert (asked(places), places.fields(whole_row=True)) == (({}, []), {})
