"""The capacity model and its simulation agree."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from bench.scale.model import BACK_WITHIN_S, PLANNED, RESULTS, Costs, Load, gateway_cores, hearers, need, site
from bench.scale.page import USERS
from bench.scale.simulate import checked, simulate

COSTS = Costs(
    event_us=30,
    delivery_us=5,
    silent_us=2,
    join_us=400,
    client_bytes=3000,
    kernel_bytes=4000,
    publish_us=20,
    listener_us=1,
    listener_bytes=380,
)


def test_an_event_is_heard_by_the_processes_that_have_a_client_for_it() -> None:
    """One client: one process. Very many: all of them."""
    assert hearers(10, 1) == pytest.approx(1)
    assert hearers(1, 20) == 1
    assert hearers(10, 10_000) == pytest.approx(10)
    assert 8 < hearers(10, 20) < 9


@pytest.mark.parametrize(
    ("load", "processes"),
    [
        (Load(20_000, 5000, 0, 1), 4),
        (Load(20_000, 100, 400, 20), 8),
        (Load(4000, 0, 0, 1, broadcast_per_s=10), 4),
        (Load(50_000, 800, 50, 20, broadcast_per_s=1), 20),
    ],
)
def test_the_simulation_uses_as_much_as_the_model_says(load: Load, processes: int) -> None:
    """Of gateways and of Redis, within what chance makes of it."""
    seen = simulate(load, COSTS, processes)
    assert seen.gateways * processes == pytest.approx(gateway_cores(load, COSTS, processes), rel=0.05)
    assert seen.busiest_gateway >= seen.gateways
    assert 0 < seen.p50_ms <= seen.p99_ms
    heard = load.directed_per_s + load.topics_per_s * hearers(processes, load.fan_out) + load.broadcast_per_s * processes
    assert seen.redis == pytest.approx((load.events_per_s * COSTS.publish_us + heard * COSTS.listener_us) / 1e6, rel=0.05)


def test_there_are_enough_processes_for_the_load_and_for_the_death_of_one() -> None:
    """Half a core each, and the clients of one that dies fit into the others in time."""
    for users in USERS:
        load = site(users)
        wanted = need(load, COSTS)
        assert gateway_cores(load, COSTS, wanted.processes) <= PLANNED * wanted.processes
        joins_each = load.clients / wanted.processes / (wanted.processes - 1)
        assert joins_each * COSTS.join_us / 1e6 <= PLANNED * BACK_WITHIN_S
        assert wanted.redis_cores / wanted.namespaces <= PLANNED


def test_what_costs_more_needs_more() -> None:
    """The processes that a load needs never become fewer when its events become dearer, or more."""
    load = site(100_000)
    assert need(load, replace(COSTS, event_us=3000)).bound == "cpu"
    assert need(load, replace(COSTS, event_us=3000)).processes > need(load, COSTS).processes
    assert need(replace(load, directed_per_s=1e5), COSTS).namespaces > need(load, COSTS).namespaces


def test_the_simulation_agrees_with_the_measured_workers() -> None:
    """Its constants are those of one worker; two and four cost as much, within the noise of the machine."""
    results = json.loads(RESULTS.read_text())
    rows = checked(results, Costs.of(results))
    assert {count for _, count, _, _ in rows} == {1, 2, 4}
    for _, _, simulated, measured in rows:
        assert measured / simulated == pytest.approx(1, abs=0.6)
