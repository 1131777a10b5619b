"""Before a connection: the files of a Redis URL, whether its server should have a password, and the receipts to report."""

import sys
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
import structlog
from hiredis import pack_command
from hypothesis import given
from hypothesis import strategies as st

from headgate.errors import BusRefused
from headgate.events.event import JsonText
from headgate.installation import native
from headgate.node.gateway import warn_of_open_redis
from headgate.redis.bounded import MAX_EPOCHS, Connection, NewestReceipts
from headgate.redis.client import open_client
from tests.support.certificates import Authority
from tests.support.processes import in_child

packed = native("packed")

OPEN = (
    *("redis://redis.internal:6379/0", "redis://10.0.0.7", "rediss://redis.internal/0", "redis://user@redis.internal"),
    *("redis+cluster://127.0.0.1,h2", "redis+sentinel://s1/m?sentinel_password=secret"),  # that of the Sentinels does not count
)
NOT_OPEN = (
    *("redis://:secret@redis.internal", "redis://user:secret@redis.internal/0", "redis://redis.internal/0?password=secret"),
    *("rediss://redis.internal/0?ssl_certfile=own.pem", "redis://127.0.0.1:6379", "redis://[::1]:6379", "redis://localhost/0"),
    *("redis:///0", "unix:///run/redis.sock", "redis+cluster://u:secret@h1,h2", "redis+cluster://127.0.0.1,[::1]"),
    *("redis+sentinel://:secret@s1/m", "redis+sentinel://127.0.0.1,localhost/m"),
)


@pytest.mark.parametrize(("url", "is_so"), [*((url, True) for url in OPEN), *((url, False) for url in NOT_OPEN)])
def test_a_redis_on_another_machine_should_have_a_password(url: str, is_so: bool) -> None:
    """A gateway says so at its creation, without the secrets of the URL."""
    with structlog.testing.capture_logs() as lines:
        warn_of_open_redis(url)
    assert [line["event"] for line in lines if line["log_level"] == "warning"] == ["Redis without a password"] * is_so
    assert "secret" not in str(lines)


def test_the_newest_receipts_of_the_last_epochs_are_reported() -> None:
    """Those of several threads may come in any order, and a machine may be reverted to an epoch before. The report is bounded."""
    newest = NewestReceipts()
    for receipt in (("e1", 7), ("f1", 2), ("e1", 9), ("e1", 8), ("e2", 3)):
        newest.note(*receipt)
    assert newest.words() == ["e1", 9, "f1", 2, "e2", 3]

    for number in range(3, MAX_EPOCHS + 2):
        newest.note(f"e{number}", 1)
    words = newest.words()
    assert (len(words), words[0], words[-2]) == (2 * MAX_EPOCHS, "e2", f"e{MAX_EPOCHS + 1}")


def test_an_interrupt_while_a_command_is_encoded_raises() -> None:
    """A signal handler that raises, as of Ctrl-C, may run while a number becomes text. hiredis ended the process then."""

    class Interrupted(int):
        def __str__(self) -> str:
            raise KeyboardInterrupt

    def is_raised() -> bool:
        with pytest.raises(KeyboardInterrupt):
            Connection(socket_timeout=1, socket_connect_timeout=1).pack_commands([("FCALL", "f", Interrupted(1))])
        return True

    assert in_child(is_raised)


WORDS = st.one_of(
    st.text(),
    st.binary(),
    st.integers(-(2**64), 2**64),
    st.sampled_from([True, 1.5, None, JsonText(b"{}"), "CONFIG GET", "\ud800", bytearray(b"x"), -(2**63), 2**63 - 1, 2**63]),
)


@pytest.mark.skipif(packed is None, reason="the packer in C is not built here, or not wanted")
@given(st.lists(st.lists(WORDS, min_size=1, max_size=6).map(tuple), max_size=5))
def test_the_packer_in_c_leaves_commands_or_packs_them_as_hiredis_does(commands: list[tuple[Any, ...]]) -> None:
    """It packs texts, bytes and numbers of 64 bits, and leaves two words in one, which redis-py splits."""
    before = sys.getrefcount(None)
    is_usual = all(
        (type(word) is str and word.isprintable() and (at or " " not in word))
        or (isinstance(word, bytes) and (at or b" " not in word))
        or (type(word) is int and -(2**63) <= word < 2**63)
        for command in commands
        for at, word in enumerate(command)
    )
    data = packed(commands)
    assert (data is not None) >= is_usual
    if data is not None:
        assert data == b"".join(pack_command(command) for command in commands)
    tracemalloc.start()
    try:
        packed(commands)
        started = tracemalloc.get_traced_memory()[0]
        for _ in range(20):
            packed(commands)
        assert tracemalloc.get_traced_memory()[0] <= started + 200
    finally:
        tracemalloc.stop()
    assert abs(sys.getrefcount(None) - before) < 20


def test_files_of_tls_that_cannot_be_used_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection has the same errors without a name, as faults of the server."""
    monkeypatch.chdir(tmp_path)
    authority = Authority(tmp_path)
    for host in ("localhost", "other.example"):
        authority.issue(host)
    for options, reason in {
        "ssl_ca_certs=none.pem": "ssl_ca_certs 'none.pem': there is no 'none.pem'",
        "ssl_certfile=1.pem&ssl_keyfile=2.key": "with ssl_keyfile '2.key': the key is of another certificate",
    }.items():
        with pytest.raises(BusRefused, match=reason):
            open_client(f"rediss://localhost/0?{options}")
    open_client("rediss://localhost/0?ssl_certfile=1.pem&ssl_keyfile=1.key&ssl_ca_certs=authority.pem").close()
