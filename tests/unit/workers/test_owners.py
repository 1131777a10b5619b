"""The owner that a session id claims: letters that select a row of the board, and nothing else."""

from __future__ import annotations

import pytest

from headgate.settings.settings import MAX_WORKERS
from headgate.workers.peer_workers import letters_of, owner_of

RANDOM = "abcdefghij0123456_-Z"


def request(sid: str, before: str = "EIO=4&transport=polling&") -> bytes:
    return f"GET /socket.io/?{before}sid={sid} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()


def test_every_worker_has_letters_of_its_own_that_lead_back_to_it() -> None:
    """So any sibling finds the owner of a session."""
    rows = range(MAX_WORKERS)
    assert len({letters_of(row) for row in rows}) == MAX_WORKERS
    assert [owner_of(request(letters_of(row) + RANDOM)) for row in rows] == list(rows)


@pytest.mark.parametrize(
    "sid",
    [
        *("", RANDOM, f"zz{RANDOM}", f"AA{RANDOM}x", f"AA{RANDOM[:-1]}", f"A/{RANDOM}", f"AA{RANDOM[:-1]}."),
        *(f"10.0.0AA{RANDOM}", f"AbC-_9AA{RANDOM}", "../../etc/passwd0000000"),
    ],
)
def test_what_is_no_id_of_a_worker_names_none(sid: str) -> None:
    """A path, or a host, is never read out of it."""
    assert owner_of(request(sid)) is None


def test_only_the_first_line_counts() -> None:
    """A header or a body may say anything."""
    for end in (b"\r\n", b"\n"):
        assert owner_of(b"GET / HTTP/1.1" + end + b"Referer: /?sid=AA" + RANDOM.encode() + b" \r\n\r\n") is None
