"""The listening socket that `headgate serve --workers` makes for its workers."""

import socket

import pytest

from headgate.cli.workers import _bind
from headgate.settings.settings import Settings


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
def test_the_ipv6_wildcard_takes_connections_over_ipv4() -> None:
    """As with one process: `--workers` must not close the gateway to half of its clients."""
    bind = _bind(Settings(host="::", port=0), {})
    assert bind is not None
    with socket.socket(fileno=int(bind.removeprefix("fd://"))) as listener:
        for host in ("127.0.0.1", "::1"):
            socket.create_connection((host, listener.getsockname()[1]), 5).close()
