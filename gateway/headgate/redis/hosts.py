"""Hosts and ports in the URLs that name several servers: `redis+sentinel://` and `redis+cluster://`. No I/O."""

from __future__ import annotations

import re

_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\[\]:]+)(?::(\d{1,5}))?")


def read_hosts(text: str, default_port: int) -> tuple[tuple[str, int], ...]:
    """Return host and port of each of `host[:port][,host[:port]…]`; an IPv6 address stands in brackets.

    Raises:
        ValueError: one of them is none.
    """
    return tuple(_read_host(each, default_port) for each in text.split(","))


def _read_host(text: str, default_port: int) -> tuple[str, int]:
    found = _HOST.fullmatch(text)
    port = int(found[2] or default_port) if found else 0
    if found is None or not 0 < port < 65536:
        raise ValueError(f"{text!r} is not a host and port")
    return found[1].strip("[]"), port
