"""How many replicas "all" are."""

from typing import Any

from headgate.redis.durability import GONE_S, Replicas, count_online, read_durable


def info(*states: str, line: str = "one") -> dict[str, Any]:
    replicas = {f"slave{number}": {"ip": "::1", "port": 1, "state": state} for number, state in enumerate(states)}
    return {"role": "master", "connected_slaves": len(states), "master_replid": line, **replicas}


def test_all_are_those_that_are_online() -> None:
    """One still loading the data cannot confirm anything."""
    assert count_online({}, info("online", "wait_bgsave", "online"), 0.0) == 2


def test_all_are_at_least_one() -> None:
    """Without any the write is nowhere else."""
    wish = read_durable("all")
    assert wish is not None
    assert [wish.of(online).command(400) for online in (0, 1, 3)] == [("WAIT", 1, 400), ("WAIT", 1, 400), ("WAIT", 3, 400)]


def test_one_that_has_just_gone_counts_for_a_while() -> None:
    """It may have been promoted, and the other is about to follow it and to lose its later confirmations until then."""
    replicas: Replicas = {}
    assert count_online(replicas, info("online", "online"), 100.0) == 2
    assert [count_online(replicas, info("online"), now_s) for now_s in (100.1, 100.0 + GONE_S - 0.1)] == [2, 2]
    assert count_online(replicas, info("online"), 100.0 + GONE_S) == 1
    assert count_online(replicas, info("online", "online"), 101.0 + GONE_S) == 2


def test_each_primary_has_replicas_of_its_own() -> None:
    """After a failover, and in a Cluster, where those of one namespace are not forgotten at the next event of another."""
    replicas: Replicas = {}
    count_online(replicas, info("online", "online"), 100.0)
    assert count_online(replicas, info("online", line="two"), 100.1) == 1
    assert count_online(replicas, info("online"), 100.1) == 2
