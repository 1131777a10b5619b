"""A target elsewhere: two agents in separate processes load one gateway, and the report adds them up."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench import generator, remote
from bench.bus import Bus, held_port
from bench.child import Failed
from bench.machine import cores
from bench.variants import VARIANTS


def test_two_agents_measure_one_gateway_each_by_its_own_clock(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each agent's clients get what it published itself, all of it, and the sum is in the report."""
    generator.build()
    with Bus(tmp_path, cores()[1]) as bus, held_port() as port, VARIANTS["headgate"].start(bus, port, cores()[0], tmp_path, 256):
        agents = ["--agent", remote.LOCAL] * 2
        options = ["--host", "localhost", "--port", str(port), "--redis", bus.socket, *agents]
        assert remote.main([*options, "--clients", "10", "--rate", "100", "--seconds", "0.4"]) == 0
    report = json.loads(capsys.readouterr().out)
    first, second = report["agents"]
    assert report["published"] == first["published"] + second["published"] == 40
    assert first["deliveries"] == second["deliveries"] == 5 * 20
    assert (report["clients"], report["missing"], report["undelivered"]) == (10, 0, 0)
    assert report["worst_ms"]["max"] == max(first["microseconds"]["max"], second["microseconds"]["max"]) / 1000


def test_an_agent_that_ends_is_told() -> None:
    """Its command is in the message: which of many it was."""
    setup = remote.setup_of(0, "127.0.0.1", 1, "/nowhere", 1, 100, None)
    with pytest.raises(Failed, match="ended: false"), remote.Agent("false", setup) as agent:
        agent.answer()


def test_a_loss_at_one_agent_is_the_outcome_of_all() -> None:
    """The worst latency and the first bad outcome count; counts are added."""
    good = {
        "outcome": "ok",
        "microseconds": {"p50": 1000, "p99": 2000, "p99_9": 3000, "max": 9000},
        **dict.fromkeys(remote._COUNTS, 1),
    }
    bad = {**good, "outcome": "undelivered", "microseconds": {"p50": 5000, "p99": 5000, "p99_9": 5000, "max": 5000}}
    report = remote.summed([good, bad])
    assert report["outcome"] == "undelivered"
    assert report["worst_ms"] == {"p50": 5, "p99": 5, "p99_9": 5, "max": 9}
    assert report["deliveries"] == 2
