"""Runs all consumers of a process, from the first line of output to the drain.

In: the settings and the consumers of a configuration. Out: an exit code, and a line for each step. Each consumer has a Runner.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from queue import Empty, SimpleQueue

from headgate.consumers.work.runner import DRAIN_S, Runner
from headgate.consumers.work.spec import ConsumerSpec
from headgate.redis.client import describe_server
from headgate.settings.addresses.origins import Origin
from headgate.settings.settings import Settings

from .config import TYPES
from .health_page import HealthPage

# Interval between checks of the parent.
POLL_S = 0.5


def supervise(
    settings: Settings,
    consumers: Sequence[ConsumerSpec],
    redis_url: str,
    say: Callable[[str], None],
    listen: tuple[str, int] | None = None,
    parent: int | None = None,
) -> int:
    """Run consumers until SIGTERM, SIGINT, SIGHUP (unless ignored, as under nohup) or the end of the parent, then drain.

    Call it in the main thread.

    Args:
        say: takes one line for standard output.
        listen: address of the health and metrics page; None for no page.
        parent: id of a process. This one ends with it; None for no such process.

    Returns:
        0 if all leased work was finished, 1 if some was unfinished after DRAIN_S. Redis hands it out again.

    Raises:
        BusUnavailable, BusRefused: Redis does not answer, or is too old.
        InvalidRequest: the address is not available.
    """
    runners = [(spec, Runner(spec, redis_url, settings)) for spec in consumers]
    say(f"using {describe_server(redis_url)}")
    # Not an Event, because a signal's handler that interrupts its wait would wait for its lock for ever. A SimpleQueue is
    # reentrant.
    signals: SimpleQueue[int] = SimpleQueue()
    hang_up = [] if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else [signal.SIGHUP]
    for number in (signal.SIGINT, signal.SIGTERM, *hang_up):
        signal.signal(number, lambda number, _: signals.put(number))
    page = HealthPage(listen, lambda: _states(runners)) if listen else None
    if page and listen:
        say(f"health and metrics at {Origin('http', listen[0], page.port)}/healthz and /metrics")
    offsets = [runner.open() for _, runner in runners]
    for (spec, runner), offset in zip(runners, offsets, strict=True):
        runner.start()
        say(f"consuming {describe(spec)}, from offset {offset + 1}")
    while parent in (None, os.getppid()):
        with suppress(Empty):
            signals.get(timeout=POLL_S)
            break
    for _, runner in runners:
        runner.ask_to_stop()
    say("stopping the consumers")
    with ThreadPoolExecutor(len(runners)) as pool:  # each within DRAIN_S
        drained = list(pool.map(lambda each: each[1].stop(DRAIN_S), runners))
    for (spec, _), is_drained in zip(runners, drained, strict=True):
        if not is_drained:
            say(f"{spec.name} was still at work after {DRAIN_S:g} s; what it had leased is handed out again")
    if page:
        page.close()
    return 0 if all(drained) else 1


def _states(runners: Sequence[tuple[ConsumerSpec, Runner]]) -> dict[str, object]:
    """Return the state of every consumer, for the health page; `ready` if all workers of all run without trouble."""
    consumers = {}
    for spec, runner in runners:
        workers, trouble = runner.status()
        is_ready = workers == spec.runner.workers and trouble is None
        consumers[spec.name] = {"ready": is_ready, "namespace": spec.namespace, "workers": workers, "trouble": trouble}
    return {"ready": all(state["ready"] for state in consumers.values()), "consumers": consumers}


def describe(spec: ConsumerSpec) -> str:
    """Describe a consumer in one line: `notifications as on-call (email): orders.*.failed`."""
    path = f"{spec.consumer.__module__}:{spec.consumer.__qualname__}"
    kind = next((name for name, known in TYPES.items() if known == path), path)
    return f"{spec.namespace} as {spec.name} ({kind}): {', '.join(spec.patterns)}"
