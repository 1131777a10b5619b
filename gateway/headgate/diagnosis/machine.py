"""The machine: open files, the queue of new connections, and the limits that the gateways of this Redis report.

In: /proc where there is one, limits of this process, loads of gateways (redis/loads.py). Out: findings, each with a setting to
change.
"""

from __future__ import annotations

import resource
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path

from headgate.redis.loads import Load
from headgate.runtime.check_result import Finding, fault, ok, unknown, warning

# A gateway for a thousand clients needs twice as many descriptors.
FEW_FILES = 4096
# The kernel caps the backlog that gateways request (transport/http_limits.py) at this setting. Linux has 4,096 since 5.4.
FEW_WAITING = 4096
_FILES_FIX = "set LimitNOFILE=65536 in its unit, or ulimit -n 65536 before it starts"
_PROC = Path("/proc")


def look_at_machine(loads: Mapping[str, Load], proc: Path = _PROC) -> Iterator[Finding]:
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


def _files(name: str, limit: int, sessions: int) -> Finding:
    text = f"{limit:,} at most" + (f", {sessions:,} of them for clients now" if sessions else "")
    if sessions * 4 > limit * 3:
        return fault(name, text, _FILES_FIX)
    return ok(name, text) if limit >= FEW_FILES else warning(name, text, _FILES_FIX)


def _somaxconn(proc: Path) -> Finding:
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
