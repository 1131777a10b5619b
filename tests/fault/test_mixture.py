"""F41, every fault at once: browsers of every kind, publishers, consumers and gateways, and one random fault after the other.

A piece begins with an empty log and new participants; faults follow one another, and some happen during others. At the end
everything heals and comes to rest, and every browser, publisher and consumer has an account. There is one mixture for each way to
run Redis. `HEADGATE_SEED` repeats the plan of faults, not its timing; `HEADGATE_PIECES` says how many pieces there are.
"""

import contextlib
import os
import random
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.fault.accounts import Faults, Flow
from tests.fault.conftest import ONLY_NIGHTLY
from tests.fault.figures import Figures
from tests.fault.grounds import LIVES_ON, ACluster, AnAddress, Ground, Sentinels
from tests.fault.mixture import Piece, Result
from tests.fault.plan import Kinds, Size, draw
from tests.fault.site import Load, Site

LOADS = {
    "short": Load("mixture", gateways=2, clients=12, per_s=40, payload_bytes=100, offline_s=0.5),
    "full": Load("mixture", gateways=2, clients=200, per_s=50, payload_bytes=100, offline_s=2),
}
SIZES = {
    "short": Size(pieces=1, steps=4, pauses=1, pause_s=1, in_a_pause=1),
    "full": Size(pieces=3, steps=40, pauses=2, pause_s=30, in_a_pause=8),
}
# F25 and F26: the end of the log lost a thousand times, with few browsers.
TRIALS = Size(pieces=40, steps=25, pauses=0, pause_s=0, in_a_pause=0, only_losses=True)
TRIALS_LOAD = Load("trials", gateways=2, clients=16, per_s=40, payload_bytes=100, offline_s=1)
# Small, so that a browser that stops reading for a second or two has a full queue.
SETTINGS: dict[str, Any] = {
    "queue_frames": 32,
    "queue_bytes": 4 * 1024 * 1024,
    "send_buffer_bytes": 4096,
    "fence_interval_s": 0.2,
    "inbound_per_s": 500,
    "read_per_s": 1000,
    "max_payload_bytes": 1024 * 1024,
    "log_max_events": 200_000,
    "log_max_age_s": 3600,
    "log_max_bytes": 2 * 1024**3,
}


def open_ground(name: str, folder: Path, gateways: int, started: contextlib.ExitStack) -> Ground:
    """Start the Redis of a mixture."""
    faults = Faults()
    if name == "address":
        return started.enter_context(AnAddress(folder / "address", gateways, faults))
    if name == "Sentinels":
        return Sentinels(folder, gateways, faults, started)
    return ACluster(folder, gateways, faults, started)


def run(folder: Path, where: str, load: Load, size: Size, seed: int) -> tuple[Counter[str], list[Result]]:
    """Make the faults of a mixture; return how often each happened, and the account of each piece, in which nothing was wrong."""
    happened: Counter[str] = Counter()
    results: list[Result] = []
    with contextlib.ExitStack() as started:
        ground = open_ground(where, folder, load.gateways, started)
        site = started.enter_context(Site(folder, load, behind=ground, addresses=ground.addresses, **SETTINGS))
        for number in range(int(os.environ.get("HEADGATE_PIECES") or size.pieces)):
            began_s = time.monotonic()
            ground.faults.past.clear()
            with Piece(site, ground, folder, random.Random(f"{seed}:{number}"), number, size) as piece:
                for step in draw(seed, number, piece.kinds, size):
                    piece.happen(step)
                results.append(piece.account())
                happened += piece.happened
            took_s = time.monotonic() - began_s
            print(f"{where}, seed {seed}, piece {number}: {took_s:.0f} s; {results[-1]}; {dict(happened)}", flush=True)
    return happened, results


@pytest.mark.timeout(7200)
@pytest.mark.parametrize(
    "where", ["address", *(pytest.param(name, marks=pytest.mark.nightly) for name in ("Sentinels", "Cluster"))]
)
def test_under_every_fault_nothing_is_lost_unreported_doubled_reordered_or_shown_though_lost(
    tmp_path: Path, load: Load, figures: Figures, seed: int, where: str
) -> None:
    """Pieces of random faults. Each event of the log is owed to each browser and consumer, each receipt is accounted for."""
    happened, results = run(tmp_path, where, LOADS[load.name], SIZES[load.name], seed)
    note(figures, where, seed, happened, results)


@ONLY_NIGHTLY
def test_whatever_is_lost_each_client_has_all_that_is_there_and_knows_all_that_is_not(
    tmp_path: Path, load: Load, figures: Figures, seed: int
) -> None:
    """The end of the log is lost in every way, again and again; browsers, consumers and readers of a past are notified."""
    happened, results = run(tmp_path, "address", TRIALS_LOAD, TRIALS, seed)
    trials = sum(happened[name] for name in AnAddress.losing) + happened["two failovers in a row"]
    figures("F25", "trials, in five ways to lose the end of the log", trials, "", "1,000; 0 unreported (checked)", seed)
    figures("F25", "trials: deliveries in these accounts", sum(each.owed for each in results), "", "each checked", seed)
    figures("F26", "trials of F25 in which the old primary lived on", happened[LIVES_ON], "", "0 unreported (checked)", seed)


def note(figures: Figures, where: str, seed: int, happened: Counter[str], results: list[Result]) -> None:
    """Write down the results of a mixture."""
    what = f"mixture, {where}:"
    figures("F41", f"{what} faults", sum(happened.values()), "", "0 unreported, doubled or reordered (checked)", seed)
    figures("F41", f"{what} deliveries owed to browsers", sum(each.owed for each in results), "", "each checked", seed)
    receipts, gone = (sum(getattr(each, name) for each in results) for name in ("receipts", "lost_receipts"))
    unknown = sum(each.unknown_receipts for each in results)
    figures("F41", f"{what} receipts", receipts, "", "each in the log, or `check` says that it is not (checked)", seed)
    figures("F41", f"{what} receipts for events that a fault has lost", gone, "", "those of the fault's time (checked)", seed)
    figures("F41", f"{what} of these `unknown`, as all of their epoch is lost; the others `rolled_back`", unknown, "", "", seed)
    late_s = max(each.latest_s for each in results)
    figures("F41", f"{what} latest publish of these, after another server took over", late_s, "s", "≤ 5 s", seed)
    flows = [flow for each in results for flow in each.flows] or [Flow(0.0, 0.0)]
    took_s, silences_s = sorted(flow.took_s for flow in flows), sorted(flow.silent_s for flow in flows)
    what_flows = f"{what} another server took over, until a browser has an event that was published since"
    figures("F41", f"{what_flows}, after its backlog: median", took_s[len(took_s) // 2], "s", "", seed)
    figures("F41", f"{what_flows}, after its backlog: longest", took_s[-1], "s", "", seed)
    figures("F41", f"{what_flows}: longest time without any event in that", silences_s[-1], "s", "≤ 5 s", seed)
    silent_s, goal = max(each.silent_s for each in results), "the servers decide; Redis is paused for 30 s"
    figures("F41", f"{what} longest time in which no publisher got a receipt", silent_s, "s", goal, seed)
    done, again = (sum(getattr(each, name) for each in results) for name in ("done", "done_again"))
    figures("F41", f"{what} events done by consumers", done, "", "all of the log (checked)", seed)
    figures("F41", f"{what} of these done again", again, "", "a fault between (checked)", seed)


def test_a_plan_is_drawn_from_its_seed_alone() -> None:
    """The same steps for the same seed and piece, other ones for another, and every kind comes."""
    kinds = Kinds(["a", "b", "c"], ["d", "e"], ["p", "q"], ["a"], ["q"])
    size = Size(pieces=1, steps=20, pauses=2, pause_s=30, in_a_pause=8)
    plan = draw(7, 0, kinds, size)
    assert plan == draw(7, 0, kinds, size)
    assert plan != draw(8, 0, kinds, size)
    assert plan != draw(7, 1, kinds, size)
    names = {name for step in plan for name in (step.during, *step.inside) if name}
    assert names == {"a", "b", "c", "d", "e", "p", "q"}
    assert all(set(step.inside) == {"a"} for step in plan if step.during == "q")


def test_a_later_piece_pauses_another_process() -> None:
    """All of them in their turn, with any other faults."""
    kinds = Kinds(["a"], ["d"], ["p", "q", "r"], ["a"], [])
    size = Size(pieces=3, steps=5, pauses=1, pause_s=30, in_a_pause=8)
    paused = [step.during for number in range(3) for step in draw(7, number, kinds, size) if step.is_pause]
    assert sorted(filter(None, paused)) == ["p", "q", "r"]
