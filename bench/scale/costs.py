"""The constants of the capacity model (model.py), measured: `python -m bench.scale.costs workers|idle|redis [--write NAME]`.

All are CPU time and memory: wall times mean little on a shared machine. `workers`: broadcast, or events of one user each,
with 1, 2 and 4 workers on one port, in turns; as fast as it goes (`full`), and on a schedule with one event at a time (`paced`).
`idle`: memory of a client, CPU of a join, and CPU of a silent client. `redis`: CPU of a publish that 0 to 50 gateways hear.
`--write` keeps the figures in bench/results/NAME.json.
"""

from __future__ import annotations

import json
import os
import resource
import socket
import statistics
import tempfile
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import click

from bench import generator, machine
from bench.bus import Bus, bus_apart, held_port
from bench.child import cpu_s
from bench.generator import Answer, Generator
from bench.publishing import TOPIC, command, payload
from bench.stage import own
from bench.variants import LOG_KEY, VARIANTS
from bench.variants.headgate import TOKEN_SECRET
from headgate.services.publisher import Publisher

from .serving import Serving

RESULTS = Path(__file__).parents[1] / "results"
HEADGATE = VARIANTS["headgate"]
SIZE_BYTES = 256
WORKERS = (1, 2, 4)
# A process of this machine may have 20,000 descriptors, and one address 28,000 ports.
CLIENTS_OF_A_PROCESS = 16_700
BROADCAST_WINDOW, DIRECTED_WINDOW = 64, 64
BROADCAST_DELIVERIES_PER_S, DIRECTED_PER_S = 100_000, 1000
PIPELINED = 200
LISTENERS = (0, 1, 5, 20, 50)
CORES = {"one": {machine.cores()[0]}, "all": os.sched_getaffinity(0)}
Figures = dict[str, Any]


@click.group()
def main() -> None:
    """Measure one group of constants."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    generator.build()


def _kept(name: str | None, group: str, figures: Figures) -> None:
    """Print figures, and add them to a file of results."""
    text = json.dumps(figures, indent=1)
    click.echo(text)
    if name is not None:
        path = RESULTS / f"{name}.json"
        known = json.loads(path.read_text()) if path.exists() else {"machine": machine.describe()}
        path.write_text(json.dumps({**known, group: {**figures, "load_average": round(os.getloadavg()[0], 1)}}, indent=1) + "\n")


write_option = click.option("--write", "name", metavar="NAME", help="Keep the figures in bench/results/NAME.json.")


@contextmanager
def _loaded(
    workers: int, clients: int, cores: Collection[int] = (), *, directed: bool = False, **settings: str
) -> Iterator[tuple[Serving, Generator]]:
    """Start a gateway with so many workers, and the load for so many clients."""
    audience = own(clients).clients if directed else ()
    addressing = HEADGATE.addressing["own"]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="headgate-bench-")))
        bus = stack.enter_context(Bus(folder, machine.cores()[1]))
        port = stack.enter_context(held_port())
        served = stack.enter_context(Serving(bus.url, port, workers, folder, cores, **settings))
        load = Generator(
            folder,
            port=port,
            server_pids=served.pids,
            bus=bus.socket,
            connects=[addressing.connect(each) for each in audience] if directed else [HEADGATE.connect],
            ready=addressing.joined(1) if directed else HEADGATE.joined,
            audience=audience,
            room=clients,
        )
        stack.enter_context(load)
        load.publishes(HEADGATE.template(bus, port, SIZE_BYTES, addressing.to if directed else None))
        yield served, load


# -- workers --------------------------------------------------------------------------------------------------------------


@main.command()
@click.argument("audience", type=click.Choice(["broadcast", "directed"]))
@click.option("--cores", type=click.Choice(["one", "all"]), default="one", show_default=True, help="On which the workers run.")
@click.option("--clients", default=4000, show_default=True)
@click.option("--rounds", default=2, show_default=True)
@click.option("--seconds", default=3.0, show_default=True, help="Of each measurement.")
@write_option
def workers(audience: str, cores: str, clients: int, rounds: int, seconds: float, name: str | None) -> None:
    """CPU per delivery and per event, with 1, 2 and 4 workers; the load generator and Redis have the last core."""
    found: dict[int, list[dict[str, Figures]]] = {count: [] for count in WORKERS}
    for _ in range(rounds):
        for count in WORKERS:
            found[count].append(_deliver(count, clients, seconds, cores, directed=audience == "directed"))
    figures: Figures = {"clients": clients, "size_bytes": SIZE_BYTES, "rounds": rounds}
    for pace in ("full", "paced"):
        figures[pace] = {str(count): _medians([row[pace] for row in rows]) for count, rows in found.items()}
    _kept(name, f"workers_{audience}_on_{cores}", figures)


def _deliver(count: int, clients: int, seconds: float, cores: str, *, directed: bool) -> dict[str, Figures]:
    settings = {"HEADGATE_TOKEN_SECRET": TOKEN_SECRET, "HEADGATE_MAX_CLIENTS_PER_ADDRESS": "0"}
    with _loaded(count, clients, CORES[cores], directed=directed, **settings) as (served, load):
        load.connects(clients)
        before_s = [cpu_s(pid) for pid in served.pids]
        # As many under way that no worker ever waits for the next one, however they share them.
        window = DIRECTED_WINDOW * count if directed else BROADCAST_WINDOW
        full = _row(load.closed(window, 1, seconds))
        shares = [cpu_s(pid) - before for pid, before in zip(served.pids, before_s, strict=True)]
        full["largest_share"] = max(shares) * count / max(sum(shares), 1e-3)
        return {
            "full": full,
            "paced": _row(load.open(DIRECTED_PER_S if directed else BROADCAST_DELIVERIES_PER_S / clients, seconds)),
        }


def _row(answer: Answer) -> Figures:
    assert (answer["outcome"], answer["missing"]) == ("ok", 0), answer
    cpu = max(answer["server_cpu_s"], 1e-3)
    return {
        "us_per_delivery": 1e6 * cpu / answer["deliveries"],
        "us_per_event": 1e6 * cpu / answer["published"],
        "deliveries_per_s": answer["deliveries"] / answer["seconds"],
        "events_per_s": answer["published"] / answer["seconds"],
        "server_cores": cpu / answer["seconds"],
        "generator_cores": answer["load_cpu_s"] / answer["seconds"],
    }


def _medians(rows: list[Figures], digits: int = 3) -> Figures:
    medians: Figures = {column: round(statistics.median(row[column] for row in rows), digits) for column in rows[0]}
    return medians | {"us_per_event_of_each_round": [round(row["us_per_event"], 1) for row in rows]}


# -- idle -----------------------------------------------------------------------------------------------------------------


@main.command()
@click.option("--clients", default=10_000, type=click.IntRange(200, CLIENTS_OF_A_PROCESS), show_default=True)
@click.option("--seconds", default=20.0, show_default=True, help="Of silence.")
@write_option
def idle(clients: int, seconds: float, name: str | None) -> None:
    """Memory per client, CPU per join and per silent client."""
    with _loaded(1, clients) as (served, load):
        load.connects(100)
        empty, kernel, cpu = served.private_bytes(), _kernel_bytes(), served.cpu_s()
        joined = clients - 100
        took_s = load.connects(joined, limit_s=120)["seconds"]
        join_us = 1e6 * (served.cpu_s() - cpu) / joined
        load.ask("idle", 2000, takes_s=2)
        grown, cpu = served.private_bytes() - empty, served.cpu_s()
        load.ask("idle", seconds * 1000, takes_s=seconds)
        figures = {
            "clients": clients,
            "bytes_per_client": round(grown / joined),
            "kernel_bytes_per_client": round((_kernel_bytes() - kernel) / joined),
            "us_per_join": round(join_us, 1),
            "joins_per_cpu_s": round(1e6 / join_us),
            "joins_per_s": round(joined / took_s),
            "us_per_silent_client_and_s": round(1e6 * (served.cpu_s() - cpu) / clients / seconds, 3),
        }
    _kept(name, f"idle_{clients}", figures)


def _kernel_bytes() -> int:
    """Return the memory of the kernel's objects: sockets of both ends among them."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("Slab:"):
            return int(line.split()[1]) * 1024
    return 0


# -- redis ----------------------------------------------------------------------------------------------------------------


@main.command()
@click.option("--events", default=20_000, show_default=True, help="Of each measurement.")
@click.option("--rounds", default=3, show_default=True)
@write_option
def redis(events: int, rounds: int, name: str | None) -> None:
    """CPU and bytes of Redis for an event that none, some or many gateways hear."""
    rows: dict[int, list[Figures]] = {count: [] for count in LISTENERS}
    with bus_apart() as bus:
        with Publisher(bus.url) as publisher:  # loads the functions
            publisher.publish(TOPIC, {})
        for _ in range(rounds):
            for count in LISTENERS:
                rows[count].append(_publish(bus, events, count))
    medians = {str(count): _medians(measured, 2) for count, measured in rows.items()}
    many, few = LISTENERS[-1], LISTENERS[1]
    per_listener = (medians[str(many)]["us_per_event"] - medians[str(few)]["us_per_event"]) / (many - few)
    figures = {
        "size_bytes": SIZE_BYTES,
        "listeners": medians,
        "us_per_event": medians["0"]["us_per_event"],
        "us_per_listener": round(per_listener, 3),
        "events_per_s_of_one_redis": round(1e6 / medians["1"]["us_per_event"]),
    }
    _kept(name, "redis", figures)


def _publish(bus: Bus, events: int, listeners: int) -> Figures:
    with ExitStack() as stack:
        client = stack.enter_context(bus.client())
        counts = [stack.enter_context(_listener(bus)) for _ in range(listeners)]
        bare = counts[0]() if counts else 0
        before_s = cpu_s(bus.pid)
        for _ in range(events // PIPELINED):
            with client.pipeline(transaction=False) as pipeline:
                for _ in range(PIPELINED):
                    pipeline.fcall("headgate_append", 1, LOG_KEY, TOPIC, payload(SIZE_BYTES))
                pipeline.execute()
        used_s = cpu_s(bus.pid) - before_s
        heard = (counts[0]() - bare) / events if counts else 0
    return {"us_per_event": 1e6 * used_s / events, "bytes_per_listener": heard}


@contextmanager
def _listener(bus: Bus) -> Iterator[Callable[[], int]]:
    """Hear the topic as a gateway does; yields a function that returns the bytes so far."""
    heard = 0
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(bus.socket)
        connection.sendall(command("SUBSCRIBE", "hg:{notifications}:" + TOPIC))
        connection.recv(65536)

        def read() -> None:
            nonlocal heard
            while part := connection.recv(1 << 20):
                heard += len(part)

        thread = threading.Thread(target=read, daemon=True)
        thread.start()
        yield lambda: heard
        connection.shutdown(socket.SHUT_RDWR)
        thread.join()


if __name__ == "__main__":
    main()
