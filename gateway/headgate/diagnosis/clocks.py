"""The clocks of this machine, of Redis and of the gateways, compared with Redis', whose time events carry.

In: Redis' time, and what each gateway process has reported of its own (redis/loads.py). Out: findings. Tokens expire by a
gateway's clock, events carry Redis' time, and `headgate_publish_to_socket_seconds` includes the difference.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from headgate.redis.loads import Load
from headgate.runtime.check_result import Finding, fault, ok, warning

# Above the first, histograms across two clocks mean nothing. Above the second, tokens are refused (their leeway is 5 s).
NOTICED_S, REFUSED_S = 0.25, 4.0
_FIX = "run chrony or systemd-timesyncd on both machines"


def look_at_clocks(skew_s: float, loads: Mapping[str, Load]) -> Iterator[Finding]:
    """Yield a finding for this machine, whose clock is `skew_s` ahead of Redis', and for each gateway that reports its own."""
    yield _clock("clock of this machine", skew_s)
    for load in sorted(loads.values(), key=lambda load: load.name):
        if load.skew_ms is not None:
            yield _clock(f"clock of gateway {load.name}", load.skew_ms / 1000)


def _clock(name: str, skew_s: float) -> Finding:
    text = f"{abs(skew_s) * 1000:.0f} ms {'ahead of' if skew_s > 0 else 'behind'} Redis"
    if abs(skew_s) > REFUSED_S:
        return fault(name, f"{text}; tokens are refused as expired, or as not valid yet", _FIX)
    if abs(skew_s) > NOTICED_S:
        return warning(name, f"{text}; times from publish to socket have this in them", _FIX)
    return ok(name, text)
