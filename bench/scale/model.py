"""The capacity model: what a load costs gateways and Redis, and where the walls are. No I/O but for reading the constants.

In: `Costs`, the constants that bench/scale/costs.py has measured; `Load`, what a site has to bear. Out: `Need`, the cores, memory
and bandwidth of each part. docs/scaling.md has the tables that it makes; simulate.py plays the same load event by event.

The model is linear, and takes the cost of one event at a time: a gateway that is busy reads several events at once and writes
them to a client in one piece, which costs a fraction of that. So it overestimates rather than underestimates.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parents[1] / "results" / "scale.json"
# Of a core, or of a Redis, that is planned with: the rest is for the worst minute.
PLANNED = 0.5
# Time within which the clients of a dead gateway come back to the others.
BACK_WITHIN_S = 10.0
# More in one process were not measured; a broadcast to so many takes it 80 ms.
CLIENTS_OF_A_PROCESS = 20_000
# The bytes of an event on the wire to a client, without its payload: frame, TCP and IP headers, id, topic.
WIRE_BYTES = 250
MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Costs:
    """The measured constants: microseconds of CPU, and bytes.

    Attributes:
        event_us: of a gateway, for an event that reaches one of its clients.
        delivery_us: of a gateway, for each further client that an event reaches.
        silent_us: of a gateway, for a client each second: pings, and nothing else.
        join_us: of a gateway, for a client that comes.
        client_bytes, kernel_bytes: of a connected client: in the process, and of its socket in the kernel.
        publish_us: of Redis, for an event without listeners.
        listener_us: of Redis, for each gateway process that hears an event.
        listener_bytes: to a gateway process, for an event.
    """

    event_us: float
    delivery_us: float
    silent_us: float
    join_us: float
    client_bytes: float
    kernel_bytes: float
    publish_us: float
    listener_us: float
    listener_bytes: float

    @classmethod
    def measured(cls, path: Path = RESULTS) -> Costs:
        """Return those of a file of results."""
        return cls.of(json.loads(path.read_text()))

    @classmethod
    def of(cls, results: dict[str, Any]) -> Costs:
        """Return those of results."""
        broadcast, directed = results["workers_broadcast_on_one"], results["workers_directed_on_one"]
        idle, redis = results["idle_10000"], results["redis"]
        return cls(
            event_us=directed["paced"]["1"]["us_per_event"],
            delivery_us=broadcast["paced"]["1"]["us_per_delivery"],
            silent_us=idle["us_per_silent_client_and_s"],
            join_us=idle["us_per_join"],
            client_bytes=idle["bytes_per_client"],
            kernel_bytes=idle["kernel_bytes_per_client"] / 2,  # the load generator has the other end
            publish_us=redis["us_per_event"],
            listener_us=redis["us_per_listener"],
            listener_bytes=redis["listeners"]["1"]["bytes_per_listener"],
        )


@dataclass(frozen=True, slots=True)
class Load:
    """The load of a site, each second.

    Attributes:
        clients: connected at once.
        directed_per_s: events for one user each, over all users.
        topics_per_s: events that several clients want.
        fan_out: how many clients want each of those.
        broadcast_per_s: events that all clients want.
        payload_bytes: of each event.
    """

    clients: int
    directed_per_s: float
    topics_per_s: float
    fan_out: int
    broadcast_per_s: float = 0.0
    payload_bytes: int = 256

    @property
    def events_per_s(self) -> float:
        """How many are published."""
        return self.directed_per_s + self.topics_per_s + self.broadcast_per_s

    @property
    def deliveries_per_s(self) -> float:
        """How many reach a client."""
        return self.directed_per_s + self.topics_per_s * self.fan_out + self.broadcast_per_s * self.clients


def site(users: int) -> Load:
    """Return the load of the page: a user has an event a minute; of each 1,000, 20 have one a second; all have one a minute."""
    return Load(users, directed_per_s=users / 60, topics_per_s=users / 1000, fan_out=20, broadcast_per_s=1 / 60)


@dataclass(frozen=True, slots=True)
class Need:
    """The machines that a load needs.

    Attributes:
        processes: gateway processes, of one core each.
        gateway_cores: CPU that they use in all, of `processes`.
        bound: the reason for that many processes: `cpu`, `clients` (CLIENTS_OF_A_PROCESS), `returning` (the clients of one that
            dies come back in BACK_WITHIN_S), or `two` (one may die).
        memory_bytes: of all clients, sockets included.
        redis_cores: of the one that a namespace has; above PLANNED it does not fit.
        redis_bytes_per_s: out of Redis, to all gateways.
        client_bytes_per_s: out of the gateways, to all clients.
    """

    processes: int
    gateway_cores: float
    bound: str
    memory_bytes: float
    redis_cores: float
    redis_bytes_per_s: float
    client_bytes_per_s: float

    @property
    def namespaces(self) -> int:
        """How many Redis servers, with a namespace or a partition each, keep each of them below PLANNED."""
        return max(1, math.ceil(self.redis_cores / PLANNED))


def hearers(processes: int, fan_out: float) -> float:
    """Return how many of so many processes have one of `fan_out` clients, spread at random."""
    return processes * (1 - math.pow(1 - 1 / processes, fan_out))


def need(load: Load, costs: Costs) -> Need:
    """Return what a load takes."""
    # A process takes back its part of the clients of a dead one: clients / n / (n - 1) in BACK_WITHIN_S, on half a core.
    joins = BACK_WITHIN_S * PLANNED * 1e6 / costs.join_us
    returning = math.ceil((1 + math.sqrt(1 + 4 * load.clients / joins)) / 2)
    reasons = {"two": 2, "returning": returning, "clients": math.ceil(load.clients / CLIENTS_OF_A_PROCESS)}
    bound = max(reasons, key=lambda reason: reasons[reason])
    processes = least = reasons[bound]
    while gateway_cores(load, costs, processes) > PLANNED * processes:
        processes += max(1, processes // 50)
    heard = _heard_per_s(load, processes)
    return Need(
        processes=processes,
        gateway_cores=gateway_cores(load, costs, processes),
        bound="cpu" if processes > least else bound,
        memory_bytes=load.clients * (costs.client_bytes + costs.kernel_bytes),
        redis_cores=(load.events_per_s * costs.publish_us + heard * costs.listener_us) / 1e6,
        redis_bytes_per_s=heard * (costs.listener_bytes - 256 + load.payload_bytes),
        client_bytes_per_s=load.deliveries_per_s * (load.payload_bytes + WIRE_BYTES),
    )


def gateway_cores(load: Load, costs: Costs, processes: int) -> float:
    """Return the CPU of so many processes together, in cores."""
    heard = _heard_per_s(load, processes)
    further = load.deliveries_per_s - heard
    return (heard * costs.event_us + further * costs.delivery_us + load.clients * costs.silent_us) / 1e6


def _heard_per_s(load: Load, processes: int) -> float:
    """Return how many events all processes receive together: each receives those that one of its clients wants."""
    return (
        load.directed_per_s
        + load.topics_per_s * hearers(processes, load.fan_out)
        + load.broadcast_per_s * hearers(processes, load.clients)
    )
