"""The counts of clients in the shared table, on a small Redis in this process: reported, asked, lost and given back."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from structlog.testing import capture_logs

from headgate.auth.admission import Admission
from headgate.auth.expiry import Expiry
from headgate.auth.identity import Identity
from headgate.errors import LimitReached
from headgate.redis.keys import LOADS, table_key
from headgate.redis.loads import LEASE_S
from headgate.redis.shared_table import SharedTable
from tests.support.small_redis import SmallRedis

KINDS = ("clients", "addresses")


def new_table(server: SmallRedis) -> SharedTable:
    """Return the shared table of a process, on the clock of the server."""
    return SharedTable(server.client(), ["shop"], lambda: "web", lambda: float(server.now_s), lambda: float(server.now_s))


@dataclass(eq=False)
class Client:
    """Stands for a client."""

    identity: Identity


class Process:
    """A gateway process as far as client counts go: its clients, and its table."""

    def __init__(self, server: SmallRedis, most: int = 4, per_address: int = 0) -> None:
        self.admission: Admission[Client] = Admission(
            most, per_address, Expiry(lambda clients: None), lambda: float(server.now_s)
        )
        self.table = new_table(server)
        for counts in (self.admission.users, self.admission.addresses):
            counts.wanted = self.table.add(counts)

    def join(self, user: str = "ana", address: str | None = None) -> str:
        """Let a client in, and return "in"; without room, return the limit."""
        try:
            self.admission.check(user, address)
        except LimitReached as refused:
            return str(refused.parts["name"])
        self.admission.join(Client(Identity(user, scopes=())), address)  # no check of the name
        return "in"


@pytest.fixture
def pair(server: SmallRedis) -> Iterator[tuple[Process, Process]]:
    """Two processes that know of each other."""
    one, two = Process(server), Process(server)
    for _ in range(2):
        one.table.turn()
        two.table.turn()
    yield one, two
    one.table.close()
    two.table.close()


def test_both_together_let_in_as_many_as_may_be(pair: tuple[Process, Process]) -> None:
    """With a look after each join; one more at most, whom the second process met before its first look at the user."""
    joined = []
    for _ in range(8):
        for process in pair:
            joined.append(process.join())
            for each in pair:
                each.table.turn()
    assert 4 <= joined.count("in") <= 5
    assert "in" not in joined[5:]


def test_addresses_have_places_of_their_own(server: SmallRedis) -> None:
    """A user is no address, whatever its name."""
    processes = [Process(server, 4, 8) for _ in range(2)]

    def look() -> None:
        for process in processes * 2:
            process.table.turn()

    look()
    joined: list[str] = []
    for number in range(12):
        joined.append(processes[number % 2].join("192.0.2.7" if number < 3 else f"user {number}", "192.0.2.7"))
        look()
    assert joined[:8] == ["in"] * 8
    assert joined[9:] == ["clients_per_address"] * 3
    server.flush()
    look()
    look()
    assert processes[0].join("another", "192.0.2.7") == "clients_per_address"
    shown = {kind: {name for each in processes for name in server._hashes[table_key(kind, each.table.id)]} for kind in KINDS}
    users = {f"user {number}" for number, each in enumerate(joined) if number >= 3 and each == "in"}
    assert shown == {"clients": {"192.0.2.7", *users}, "addresses": {"192.0.2.7"}}
    for process in processes:
        process.table.close()


def test_redis_that_does_not_answer_is_one_line_in_the_log(server: SmallRedis, pair: tuple[Process, Process]) -> None:
    """For each fault; each process keeps its share until then, and tells what it could not tell."""
    one, _ = pair
    with capture_logs() as entries:
        server.up = False
        one.table.turn()
        one.table.turn()
        server.up, server.refuses = True, "HSET"
        one.join()
        one.table.turn()
        server.refuses = ""
        one.table.turn()
        assert server._hashes[table_key("clients", one.table.id)], "the join that was refused is told now"
        server.up = False
        one.table.turn()
    assert [(entry["event"], entry["log_level"]) for entry in entries] == [("shared table out of reach", "warning")] * 3
    server.now_s += LEASE_S
    assert [one.join() for _ in range(4)].count("in") <= 2
    server.up = True


def test_it_looks_by_itself_and_gives_its_places_back(server: SmallRedis) -> None:
    """At its start, and after a join; nothing is left of it in Redis at its end."""
    process = Process(server)
    assert not process.table.next_turn(1.0)
    process.table.start()
    process.table.start()
    assert process.table.next_turn(1.0)
    assert LOADS in server.present()
    assert process.join() == "in"
    process.table.close()
    process.table.close()
    assert not {LOADS, table_key("clients", process.table.id)} & server.present()


def test_places_that_cannot_be_given_back_end_with_their_lease(server: SmallRedis) -> None:
    """One line says that Redis is unreachable."""
    process = Process(server)
    process.table.start()
    assert process.table.next_turn(1.0)
    server.up = False
    with capture_logs() as entries:
        process.table.close()
    levels = {entry["event"]: entry["log_level"] for entry in entries}
    assert levels == {"shared table out of reach": "warning", "shared table not left": "debug"}
