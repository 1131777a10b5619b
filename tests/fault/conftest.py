"""Fixtures of the fault suite: one site for all faults of a load, a swarm that ends with its test, the table of figures."""

import gc
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fault.figures import Figures
from tests.fault.many_clients import Swarm
from tests.fault.pair import Pair
from tests.fault.site import FULL, SHORT, Load, Site
from tests.support.redis_process import RedisProcess


@pytest.fixture(
    params=[
        pytest.param(SHORT, marks=[pytest.mark.timeout(300)]),
        pytest.param(FULL, marks=[pytest.mark.nightly, pytest.mark.timeout(1800)]),
    ],
    ids=lambda load: load.name,
    scope="session",
)
def load(request: pytest.FixtureRequest) -> Load:
    """How much load: short in the test command, full with `-m nightly`."""
    found: Load = request.param
    return found


# Of the site of many tests. One Python process plays its clients, and on a busy machine it answers a ping late.
SITE_SETTINGS: dict[str, Any] = {"publish_per_s": 1, "ping_timeout_s": 120}

# For a test without a short form.
ONLY_NIGHTLY = pytest.mark.parametrize(
    "load", [pytest.param(FULL, id="full", marks=[pytest.mark.nightly, pytest.mark.timeout(7200)])], indirect=True
)


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisProcess]:
    """A server that runs."""
    with RedisProcess(tmp_path / "redis") as server:
        yield server


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    """Two servers and the relay in front of them."""
    with Pair(tmp_path, gateways=0) as pair:
        yield pair


@pytest.fixture
def seed() -> int:
    """A new seed for each run, printed."""
    seed = int(os.environ.get("HEADGATE_SEED") or random.SystemRandom().randrange(10**9))
    print(f"HEADGATE_SEED={seed}")
    return seed


@pytest.fixture(scope="session", autouse=True)
def no_garbage_collection() -> Iterator[None]:
    """Records of clients are millions of objects. To look through them would stop clients and proxies for seconds."""
    gc.disable()
    yield
    gc.enable()


@pytest.fixture(scope="session")
def session_site(load: Load, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """The site of this load. Faults end healed, so that the next one finds it whole."""
    with Site(tmp_path_factory.mktemp("site"), load, **SITE_SETTINGS) as site:
        yield site


@pytest.fixture
def site(session_site: Site) -> Iterator[Site]:
    """The site, ready; healed afterwards, and the output of its gateways is shown beside a failed test."""
    session_site.wait_until_ready()
    yield session_site
    for proxy in session_site.proxies:
        proxy.heal()
    for gateway in session_site.gateways:
        print(f"--- {gateway.url} ---\n" + "\n".join(gateway.output.splitlines()[-12:]))


@pytest.fixture(params=["narrow", pytest.param("whole", marks=pytest.mark.nightly)], scope="session")
def feed(request: pytest.FixtureRequest) -> str:
    """The gateways listen to the patterns of their clients, or to everything, because one client of each wants it."""
    return str(request.param)


@pytest.fixture
def start_swarm(site: Site, feed: str) -> Iterator[Callable[..., Swarm]]:
    """Connect the load's clients: `start_swarm(overflow="drop")`. They end with the test."""
    started: list[Swarm] = []

    def start(**options: Any) -> Swarm:
        swarm = site.swarm(whole=feed == "whole", **options)
        started.append(swarm)
        return swarm.open()

    yield start
    for swarm in started:
        swarm.close()


@pytest.fixture(scope="session")
def all_figures(request: pytest.FixtureRequest) -> Iterator[dict[str, list[list[Any]]]]:
    """Everything measured in this run; a full run in which nothing failed writes it down."""
    rows: dict[str, list[list[Any]]] = {}
    yield rows
    if not request.session.testsfailed:
        Figures.write(rows, Path(__file__).parents[2])


@pytest.fixture
def figures(all_figures: dict[str, list[list[Any]]], load: Load, request: pytest.FixtureRequest) -> Figures:
    """Write down measured figures: `figures("F1", "time to detect", 1.2, "s", goal="≤ 2 s")`."""
    return Figures(all_figures, load)
