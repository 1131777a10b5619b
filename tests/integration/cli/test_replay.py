"""`tail --since`, `replay` and `publish --file` against a real Redis: the log out, and in again."""

import json
from pathlib import Path
from typing import Any

import pytest

from headgate.errors import BusUnavailable
from headgate.redis import keys
from headgate.redis.client import Client, call
from headgate.redis.functions import SOURCE
from headgate.redis.log import EventLog
from headgate.services.publisher import Publisher
from tests.integration.cli.conftest import Run, Tail


def write_log(client: Client, times_ms: list[int]) -> None:
    """Write events of these times, from offset 1 on, as the function library would."""
    for offset, time_ms in enumerate(times_ms, 1):
        call(
            client, "XADD", keys.log_key("notifications"), f"{offset}-0",
            "topic", f"orders.{offset}", "id", f"i-{offset}", "time", time_ms, "data", str(offset),
        )  # fmt: skip
    call(client, "HSET", keys.head_key("notifications"), "epoch", "0" * 16, "offset", len(times_ms))


def offsets(ndjson: str) -> list[int]:
    return [json.loads(line)["offset"] for line in ndjson.splitlines()]


def test_tail_begins_with_the_past_and_goes_on_live_without_a_break(tail: Tail, publisher: Publisher) -> None:
    """From an offset on, each event once, in order."""
    for number in range(1, 251):
        publisher.publish("orders.old", number)
    ended = tail("orders.#", 154, "100", then=lambda: [publisher.publish("orders.new", number) for number in range(3)])
    assert [int(line.split()[0]) for line in ended.stdout.splitlines()] == list(range(100, 254))


def test_replay_writes_a_range_of_the_log(run: Run, redis_client: Client) -> None:
    """By offsets, both included; by times, the second not; by pattern."""
    write_log(redis_client, [1_700_000_000_000 + 1000 * number for number in range(300)])
    assert offsets(run("replay", "#").stdout) == list(range(1, 301))
    assert offsets(run("replay", "#", "--since", "298").stdout) == [298, 299, 300]
    assert offsets(run("replay", "#", "--since", "2", "--until", "4").stdout) == [2, 3, 4]
    times = ("--since", "2023-11-14T22:13:30Z", "--until", "2023-11-14T22:13:32Z")
    assert offsets(run("replay", "#", *times).stdout) == [11, 12]
    assert offsets(run("replay", "orders.7").stdout) == [7]
    [event] = run("replay", "orders.7").stdout.splitlines()
    assert json.loads(event) == {
        "topic": "orders.7", "data": 7, "id": "i-7", "time": 1_700_000_006_000, "epoch": "0" * 16, "offset": 7,
    }  # fmt: skip
    for outside in (("--since", "9999"), ("--since", "1s"), ("--until", "0"), ("--until", "2000-01-01")):
        assert run("replay", "#", *outside).stdout == ""


def test_replay_names_the_epoch_of_each_events_receipt(run: Run, redis_client: Client, publisher: Publisher) -> None:
    """Also of events from before the present one."""
    first = publisher.publish("orders.1", 1)
    call(redis_client, "FUNCTION", "LOAD", "REPLACE", SOURCE)  # as another process of Redis begins
    second = publisher.publish("orders.2", 2)
    assert first.epoch != second.epoch
    shown = [json.loads(line) for line in run("replay", "#").stdout.splitlines()]
    assert [(event["epoch"], event["offset"]) for event in shown] == [(first.epoch, 1), (second.epoch, 2)]


@pytest.mark.parametrize(
    ("since", "says", "written"),
    [
        ("1", "the log no longer holds the events from offset 1 to 2\n", [3, 4]),
        ("3", "", [3, 4]),
        ("5", "", []),
        ("6", "headgate: invalid request: since: it is beyond the newest event of this log, 4\n", []),
        ("2023-11-14", "", [3, 4]),
    ],
)
def test_a_position_that_the_log_does_not_hold_is_reported(
    run: Run, redis_client: Client, since: str, says: str, written: list[int]
) -> None:
    """Where events were trimmed, and where the offset is of another log."""
    write_log(redis_client, [1_700_000_000_000] * 4)
    call(redis_client, "XTRIM", keys.log_key("notifications"), "MINID", "3-0")
    ended = run("replay", "#", "--since", since)
    assert (offsets(ended.stdout), ended.stderr) == (written, says)
    assert run("replay", "#").stderr == ""


def test_replay_reports_what_is_trimmed_while_it_reads(run: Run, redis_client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    write_log(redis_client, [1_700_000_000_000] * 300)
    page = EventLog.raw_page

    def trimming(log: EventLog, after: int, *rest: Any, **options: Any) -> Any:
        if after == 100:
            call(redis_client, "XTRIM", keys.log_key("notifications"), "MINID", "151-0")
        return page(log, after, *rest, **options)

    monkeypatch.setattr(EventLog, "raw_page", trimming)
    ended = run("replay", "#")
    assert offsets(ended.stdout) == [*range(1, 101), *range(151, 301)]
    assert ended.stderr == "the log no longer holds the events from offset 101 to 150\n"


def test_replay_goes_on_after_a_broken_connection(run: Run, redis_client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a failover, so that a long file is whole."""
    write_log(redis_client, [1_700_000_000_000] * 300)
    page = EventLog.raw_page

    def breaking(log: EventLog, after: int, *rest: Any, **options: Any) -> Any:
        entries = page(log, after, *rest, **options)
        if after == 100 and not broken:
            broken.append(after)
            raise BusUnavailable("the connection broke in the reply")
        return entries

    broken: list[int] = []
    monkeypatch.setattr(EventLog, "raw_page", breaking)
    ended = run("replay", "#")
    assert (offsets(ended.stdout), ended.returncode, broken) == ([*range(1, 301)], 0, [100])


def test_tail_reports_a_position_that_the_log_does_not_hold(run: Run, redis_client: Client) -> None:
    """Before the events that it has."""
    write_log(redis_client, [1_700_000_000_000] * 4)
    call(redis_client, "XTRIM", keys.log_key("notifications"), "MINID", "3-0")
    ended = run("tail", "#", "--since", "2", "--count", "2", "--json")
    assert offsets(ended.stdout) == [3, 4]
    assert ended.stderr == "the log no longer holds the events from offset 2 to 2\n"


def test_an_event_that_cannot_be_delivered_is_told_and_passed_over(run: Run, redis_client: Client) -> None:
    """On standard error, with the reason, to those who want its topic; the lines stay clean."""
    write_log(redis_client, [1_700_000_000_000] * 3)
    call(redis_client, "XADD", keys.log_key("notifications"), "4-0", "topic", "a", "id", "i", "time", "1", "data", "{nope")
    call(redis_client, "HSET", keys.head_key("notifications"), "offset", 4)
    for pattern, events in {"#": [1, 2, 3], "a": [], "orders.*": [1, 2, 3]}.items():
        ended = run("replay", pattern)
        assert offsets(ended.stdout) == events
        why = "set aside the event at offset 4: data is not JSON: JSON is malformed: object keys must be strings (byte 1)\n"
        assert ended.stderr == ("" if pattern == "orders.*" else why)


@pytest.mark.parametrize("count", [0, 1, 2, 7])
def test_a_time_is_found_by_bisection(redis_client: Client, count: int) -> None:
    """Before, at, between, beyond; in an empty log it is the next offset. Trimmed offsets are not met."""
    times_ms = [1000 * (number // 2) for number in range(count)]
    write_log(redis_client, times_ms)
    trimmed = count // 3
    for offset in range(1, trimmed + 1):
        call(redis_client, "XDEL", keys.log_key("notifications"), f"{offset}-0")
    log = EventLog("notifications", redis_client)
    for time_ms in range(-500, 4500, 500):
        kept = [offset for offset, at_ms in enumerate(times_ms, 1) if offset > trimmed and at_ms >= time_ms]
        assert log.first_since(time_ms) == (kept[0] if kept else count + 1)


def test_what_was_replayed_can_be_published_elsewhere(run: Run, publisher: Publisher, redis_client: Client) -> None:
    """From standard input into another namespace, ids included; again, it adds nothing."""
    for number in range(3):
        publisher.publish("orders.old", {"number": number}, id=f"n-{number}")
    lines = run("replay", "#").stdout.encode()
    ended = run("publish", "--file", "-", "--namespace", "other", stdin=lines)
    assert (ended.stdout, ended.stderr, ended.returncode) == ("published 3 events; offsets 1 to 3\n", "", 0)
    found = call(redis_client, "XRANGE", keys.log_key("other"), "-", "+")
    assert [(fields[b"id"], fields[b"data"]) for _, fields in found] == [
        (b"n-%d" % number, b'{"number":%d}' % number) for number in range(3)
    ]
    again = run("publish", "--file", "-", "--namespace", "other", stdin=lines)
    assert again.stdout == "published 3 events, 3 of them were there already\n"


def test_one_bad_line_keeps_all_out_unless_the_others_are_wanted(run: Run, redis_client: Client, tmp_path: Path) -> None:
    """Each bad line is named by its number; the exit code is 1 either way."""
    file = tmp_path / "events.ndjson"
    file.write_text('{"topic": "a", "data": 1}\n{"topic": "a..b", "data": 1}\n\nnope\n{"topic": "b", "data": [2]}\n')
    refused = run("publish", "--file", str(file))
    assert (refused.stdout, refused.returncode) == ("", 1)
    assert [line.partition(":")[0] for line in refused.stderr.splitlines()] == ["line 2", "line 4", "headgate"]
    assert call(redis_client, "XLEN", keys.log_key("notifications")) == 0

    said = run("publish", "--file", str(file), "--skip-bad", "--json")
    assert said.returncode == 1
    outcome = json.loads(said.stdout)
    assert (outcome["published"], outcome["refused"], outcome["first_offset"], outcome["last_offset"]) == (2, 2, 1, 2)
    assert [fault["line"] for fault in outcome["faults"]] == [2, 4]


def test_a_payload_above_the_namespaces_limit_is_found_before_any_is_sent(
    run: Run, publisher: Publisher, redis_client: Client, tmp_path: Path
) -> None:
    """Redis has the limit that the gateways have set."""
    publisher.publish("a", 1)
    call(redis_client, "HSET", keys.head_key("notifications"), "max_payload_bytes", 50)
    file = tmp_path / "events.ndjson"
    file.write_text('{"topic": "a", "data": 1}\n{"topic": "a", "data": "%s"}\n' % ("x" * 60))
    refused = run("publish", "--file", str(file))
    assert refused.stderr.startswith("line 2: payload of 62 bytes is above the limit of 50 bytes")
    assert call(redis_client, "XLEN", keys.log_key("notifications")) == 1


def test_a_file_that_is_not_there_and_a_redis_that_is_not_there_are_one_line(run: Run, tmp_path: Path) -> None:
    missing = run("publish", "--file", str(tmp_path / "missing"))
    assert (missing.returncode, missing.stderr) == (1, f"headgate: {tmp_path}/missing: No such file or directory\n")
    assert run("publish", "--file", "-", "--redis", "redis://127.0.0.1:1", stdin=b"").returncode == 1
