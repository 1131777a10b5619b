"""Processes on another Redis server than the log: gateways and consumers that have not followed a failover.

In: the reports of gateways (redis/loads.py) and of consumer instances (redis/instances.py), with the token of their server.
Out: a finding for each one on another server. A process with an old report may have ended since.

Publishers do not register. A gateway logs and counts events of its own publishers that went elsewhere (node/receipt_check.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from headgate.consumers.work.groups import GroupStatus
from headgate.redis import loads
from headgate.redis.client import Client
from headgate.redis.functions import server_token
from headgate.redis.keys import LOADS
from headgate.runtime.check_result import CheckResult, fault, warning

_FIX = "if it runs, look at its log and its Redis URL, allow its user +fcall_ro|headgate_version, and restart it"


def check_gateways(client: Client) -> Iterator[CheckResult]:
    """Yield a finding for each gateway whose events come from another server. Raises as `redis.client.call`."""
    server = server_token(client, LOADS)
    rows = loads.read(client, server)
    for load in rows.loads.values():
        if not load.is_at(server):
            yield fault(f"gateway {load.name}", "its events come from another Redis server than this one", _FIX)
    for load in rows.left.values():
        text = f"on another Redis server than this one {rows.now_s - load.at_s} s ago, and still there unless it has ended"
        yield warning(f"gateway {load.name}", text, _FIX)


def check_consumers(statuses: Iterable[GroupStatus]) -> Iterator[CheckResult]:
    """Yield a finding for each consumer with instances on another server."""
    for status in statuses:
        if status.elsewhere:
            text = f"on another Redis server, unless they have ended: {', '.join(status.elsewhere)}"
            yield warning(f"consumer {status.name}", f"{text}; the lag here says nothing of them", _FIX)
