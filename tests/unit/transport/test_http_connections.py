"""Which HTTP connection has to go when there is one too many, against a naive list."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headgate.transport.http_admission import HttpConnections

STEPS = st.tuples(
    st.sampled_from(["open", "wait", "work", "close", "attribute"]), st.integers(0, 9), st.sampled_from(["a", "b", None])
)


@given(st.lists(STEPS, max_size=200))
def test_counts_and_order_are_those_of_a_list(steps: list[tuple[str, int, str | None]]) -> None:
    """The longest waiter, in all and of each address, is found after any history."""
    connections: Any = HttpConnections()
    addresses: dict[int, str | None] = {}
    waiting: dict[str | None, list[int]] = {"all": [], "a": [], "b": [], None: []}

    def leave(number: int, names: Iterable[str | None]) -> None:
        for name in names:
            waiting[name] = [each for each in waiting[name] if each != number]

    for step, number, address in steps:
        if step == "open" and number not in addresses:
            connections.open(number, address)
            addresses[number] = address
            waiting["all"].append(number)
            waiting[address].append(number)
        elif step == "attribute":
            connections.attribute(number, address)
            if number in addresses and addresses[number] != address:
                addresses[number] = address
                if number in waiting["all"]:
                    leave(number, ("a", "b", None))
                    waiting[address].append(number)
        elif step == "wait":
            connections.wait(number)
            if number in addresses and number not in waiting["all"]:
                waiting["all"].append(number)
                waiting[addresses[number]].append(number)
        elif step in ("work", "close"):
            getattr(connections, step)(number)
            leave(number, list(waiting))
            if step == "close":
                addresses.pop(number, None)
        assert len(connections) == len(addresses)
        assert connections.longest_waiting() == next(iter(waiting["all"]), None)
        for name in ("a", "b"):
            assert connections.count_at(name) == list(addresses.values()).count(name)
            assert connections.longest_waiting(name) == next(iter(waiting[name]), None)
    for number in addresses:
        connections.close(number)
    assert not any([connections._address_of, connections._waiting, connections._at]), (
        "nothing is remembered of those that are over"
    )
