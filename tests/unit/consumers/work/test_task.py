"""Tasks: packing and unpacking, names that sort by time, and what is returned of work that was not begun."""

import msgspec
import pytest

from headgate.consumers.work.store import LeasedTask, back, done, held
from headgate.consumers.work.task import Task, unpack


def task(time_ms: int = 1_700_000_000_000, offset: int = 7, key: str = "") -> Task:
    return Task("0123456789abcdef", offset, "orders.1", "an-id", time_ms, b'{"a": "\xc3\xbc"}', key)


def test_a_task_comes_back_as_it_was() -> None:
    """The payload's bytes are not touched."""
    full = msgspec.structs.replace(
        task(key="someone@example.org"), split=True, attempt=3, failures=2, faults=1, failing_since_ms=5, deferred=True,
        together=True, reason="why",
    )  # fmt: skip

    assert unpack(full.pack()) == full


def test_a_body_without_the_newest_fields_is_read() -> None:
    """A task of an older version has fewer fields."""
    body = msgspec.msgpack.encode(["0123456789abcdef", 7, "orders.1", "an-id", 1_700_000_000_000, b"1"])

    assert unpack(body).attempt == 0


@pytest.mark.parametrize("body", [b"", b"\x00", b"not a task", msgspec.msgpack.encode(["a", "b"])])
def test_another_body_is_refused(body: bytes) -> None:
    """Only a packed task is read, no other text, no other MessagePack."""
    with pytest.raises(msgspec.DecodeError):
        unpack(body)


def test_names_sort_by_time_and_end_with_the_keys_hash() -> None:
    """groups.lua takes the first 13 characters for the time, and the last 16 for the key."""
    names = [task(time_ms).name for time_ms in (0, 999, 1_700_000_000_000, 10**15)]

    assert names == sorted(names)
    assert task(offset=9).name < task(offset=10).name
    assert {len(name.partition("-")[0]) for name in names} == {13}
    assert task(key="a").name[-16:] == task(offset=8, key="a").name[-16:] != task(key="b").name[-16:]
    assert task(key="a").name != task(offset=8, key="a").name


@pytest.mark.parametrize("key", ["", "ü@example.org", "a" * 10_000, "\ud800", "a:b\nc"])
def test_any_key_makes_a_short_plain_name(key: str) -> None:
    """Keys are a consumer's own text."""
    name = task(key=key).name

    assert len(name) < 80
    assert name.isascii()
    assert name.isprintable()


@pytest.mark.parametrize("moving", [False, True])
def test_work_that_was_not_begun_is_returned_as_it_was_before_this_delivery(moving: bool) -> None:
    """An entry of the log stays one, unless it may have become a task already."""
    work = task()
    entry = LeasedTask(work, "", 3, leased_in="e", moving=work.name if moving else "")
    stored = LeasedTask(work, work.name, 3)

    assert held(entry)[:5] == ("held", "e", "7-0", entry.moving, 3)
    assert held(stored)[:5] == ("held", "", "", work.name, 3)
    assert back(stored) == ("defer", work.name, "+0", 0, 2, work.pack())
    assert back(entry) == ((*done(entry), *back(stored)) if moving else ("back", "e", "7-0", 2))
    assert done(entry) == ("ack", "e", "7-0", *done(stored)) if moving else ("ack", "e", "7-0")
