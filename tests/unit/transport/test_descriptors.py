"""The shares of the descriptors: the clients' share, the gateway's own, and the places for health pages."""

import resource

import pytest

from headgate.transport.descriptors import LEAST_OWN_DESCRIPTORS, MAX_OWN_DESCRIPTORS, MAX_PLACES, is_for_clients, places


class Table:
    """The table of descriptors of a process, where the kernel gives away the lowest free one, below the limit."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
        self.limit = limit
        self.used = {0}
        monkeypatch.setattr("headgate.transport.descriptors.resource.getrlimit", lambda _: (self.limit, self.limit))

    def accept_all(self) -> None:
        """Take clients in while there is room."""
        while is_for_clients(free := next(number for number in range(len(self.used) + 1) if number not in self.used)):
            self.used.add(free)


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> Table:
    """A process that may have 1,024 descriptors."""
    return Table(monkeypatch, 1024)


@pytest.mark.parametrize("limit", [64, 256, 1024])
def test_the_gateway_keeps_its_own_however_often_clients_come_and_go(table: Table, limit: int) -> None:
    """A low free number says nothing about the next one."""
    table.limit = limit
    table.accept_all()
    own = limit - (max(table.used) + 1) - places()
    for number in range(5, 50):
        table.used.remove(number)
        table.accept_all()
    assert own == min(MAX_OWN_DESCRIPTORS, max(LEAST_OWN_DESCRIPTORS, limit // 16))
    assert limit - (max(table.used) + 1) - places() == own


def test_the_limit_is_read_each_time(table: Table) -> None:
    """It can be changed while the gateway runs. RLIM_INFINITY is -1, and must not be compared as a number."""
    table.limit = 64
    assert places() == 4
    table.limit = resource.RLIM_INFINITY
    assert (is_for_clients(10**6), places()) == (True, MAX_PLACES)
