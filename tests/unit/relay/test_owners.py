"""The owner that a session id claims: letters that select a row of the board or an entry of the directory, and nothing else."""

from __future__ import annotations

import pytest

from headgate.relay.owners import Owner, new_gateway, owner_of
from headgate.settings import MAX_WORKERS

RANDOM = "abcdefghij0123456_-Z"


def request(sid: str, before: str = "EIO=4&transport=polling&") -> bytes:
    return f"GET /socket.io/?{before}sid={sid} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()


@pytest.mark.parametrize("gateway", ["", "AbC-_9"])
def test_every_worker_has_letters_of_its_own_that_lead_back_to_it(gateway: str) -> None:
    """So any sibling, and any other gateway, finds the owner of a session."""
    owners = [Owner(gateway, row) for row in range(MAX_WORKERS)]
    assert len({owner.letters for owner in owners}) == MAX_WORKERS
    assert [owner_of(request(owner.letters + RANDOM)) for owner in owners] == owners


def test_a_gateway_has_a_name_of_its_own() -> None:
    """It fits into a session id."""
    names = {new_gateway() for _ in range(100)}
    assert len(names) == 100
    assert all((found := owner_of(request(f"{name}AB{RANDOM}"))) and found.gateway == name for name in names)


@pytest.mark.parametrize(
    "sid",
    [
        "",
        RANDOM,
        f"zz{RANDOM}",
        f"AA{RANDOM}x",
        f"AA{RANDOM[:-1]}",
        f"A/{RANDOM}",
        f"AA{RANDOM[:-1]}.",
        f"10.0.0AA{RANDOM}",
        f"AbCdEfgAA{RANDOM}",
        "../../etc/passwd0000000",
    ],
)
def test_what_is_no_id_of_a_worker_names_none(sid: str) -> None:
    """A path, or a host, is never read out of it."""
    assert owner_of(request(sid)) is None


def test_only_the_first_line_counts() -> None:
    """A header or a body may say anything."""
    for end in (b"\r\n", b"\n"):
        assert owner_of(b"GET / HTTP/1.1" + end + b"Referer: /?sid=AA" + RANDOM.encode() + b" \r\n\r\n") is None
