"""The machine: clocks, open files, the queue of new connections, and what the gateways of this Redis report of theirs.

In: /proc where there is one, limits of this process, loads of gateways (redis/loads.py). Out: findings, each with a setting to
change. Tokens expire by a gateway's clock, events carry Redis' time, and `headgate_publish_to_socket_seconds` includes the
difference.
"""

from __future__ import annotations

import resource
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path

from headgate.redis.loads import Load
from headgate.runtime.check_result import CheckResult, fault, ok, unknown, warning

# A gateway for a thousand clients needs twice as many descriptors.
FEW_FILES = 4096
# The kernel caps the backlog that gateways request (transport/http_limits.py) at this setting. Linux has 4,096 since 5.4.
FEW_WAITING = 4096
_FILES_FIX = "set LimitNOFILE=65536 in its unit, or ulimit -n 65536 before it starts"
_PROC = Path("/proc")
# Above the first, histograms across two clocks mean nothing. Above the second, tokens are refused (their leeway is 5 s).
NOTICED_S, REFUSED_S = 0.25, 4.0
_CLOCK_FIX = "run chrony or systemd-timesyncd on both machines"


def check_clocks(skew_s: float, loads: Mapping[str, Load]) -> Iterator[CheckResult]:
    """Yield a finding for this machine, whose clock is `skew_s` ahead of Redis', and for each gateway that reports its own."""
    yield _clock("clock of this machine", skew_s)
    for load in sorted(loads.values(), key=lambda load: load.name):
        if load.skew_ms is not None:
            yield _clock(f"clock of gateway {load.name}", load.skew_ms / 1000)


def check_machine(loads: Mapping[str, Load], proc: Path = _PROC) -> Iterator[CheckResult]:
    """Yield findings about this machine, and about the descriptors of each gateway."""
    yield _somaxconn(proc)
    gateways = sorted(loads.values(), key=lambda load: load.name)
    for load in gateways:
        if load.max_files:
            yield _files(f"open files of gateway {load.name}", load.max_files, load.sessions)
    if not any(load.name.startswith(f"{socket.gethostname()}/") for load in gateways):
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if limit == resource.RLIM_INFINITY:
            yield ok("open files", "no limit for a gateway that is started from this shell")
        else:
            yield _files("open files of a gateway that is started from this shell", limit, 0)


def _clock(name: str, skew_s: float) -> CheckResult:
    text = f"{abs(skew_s) * 1000:.0f} ms {'ahead of' if skew_s > 0 else 'behind'} Redis"
    if abs(skew_s) > REFUSED_S:
        return fault(name, f"{text}; tokens are refused as expired, or as not valid yet", _CLOCK_FIX)
    if abs(skew_s) > NOTICED_S:
        return warning(name, f"{text}; times from publish to socket have this in them", _CLOCK_FIX)
    return ok(name, text)


def _files(name: str, limit: int, sessions: int) -> CheckResult:
    text = f"{limit:,} at most" + (f", {sessions:,} of them for clients now" if sessions else "")
    if sessions * 4 > limit * 3:
        return fault(name, text, _FILES_FIX)
    return ok(name, text) if limit >= FEW_FILES else warning(name, text, _FILES_FIX)


def _somaxconn(proc: Path) -> CheckResult:
    name = "net.core.somaxconn"
    try:
        waiting = int((proc / "sys/net/core/somaxconn").read_text())
    except (OSError, ValueError):
        return unknown(name, "not to be read here")
    text = f"{waiting} new connections may wait"
    if waiting < FEW_WAITING:
        text = f"{text}; more that come at once try again after 1 s, 3 s, 7 s"
        return warning(name, text, "sysctl -w net.core.somaxconn=65535")
    return ok(name, text)
