"""The server check: one Redis process, a primary."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headgate.delivery.bus.server_check import ServerCheck
from headgate.redis.entries import Head

HEAD = Head("epoch", 1, 1, server="a")


def test_every_head_of_one_primary_is_accepted() -> None:
    """The first head names the server."""
    check = ServerCheck()
    assert [check.fault_of(HEAD), check.fault_of(replace(HEAD, offset=2))] == [None, None]


def test_a_head_of_another_server_is_a_fault_until_the_next_connection() -> None:
    """A new connection may lead to another server."""
    check, other = ServerCheck(), replace(HEAD, server="b")
    check.fault_of(HEAD)
    fault = check.fault_of(other)
    assert fault is not None
    assert "another Redis server" in fault.message
    check.reset()
    assert check.fault_of(other) is None
    assert check.fault_of(HEAD) is not None


@pytest.mark.parametrize("unnamed_first", [True, False])
def test_a_head_of_an_older_library_names_no_server_and_is_accepted(unnamed_first: bool) -> None:
    """It neither names the server of the connection, nor differs from it."""
    check, unnamed = ServerCheck(), replace(HEAD, server="")
    heads = [unnamed, HEAD] if unnamed_first else [HEAD, unnamed]
    assert [check.fault_of(head) for head in heads] == [None, None]
    assert check.fault_of(replace(HEAD, server="b")) is not None


def test_a_replica_is_a_fault_and_names_no_server() -> None:
    """Its log is behind, and may be replaced."""
    check = ServerCheck()
    fault = check.fault_of(replace(HEAD, server="b", replica=True))
    assert fault is not None
    assert "replica" in fault.message
    assert check.fault_of(HEAD) is None
