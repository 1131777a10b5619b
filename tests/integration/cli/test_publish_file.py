"""`headgate publish --file` with its receipts against a real Redis, without a double event in any case."""

import json
import os
import signal
import subprocess
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from headgate.cli import bulk
from headgate.cli.receipts import Receipts
from headgate.errors import BusUnavailable
from headgate.redis import keys
from headgate.redis.client import Client, call
from headgate.redis.functions import LOG_LIBRARY
from headgate.services.publisher import Prepared, Publisher
from tests.integration.cli.conftest import COMMAND, Ended, Run
from tests.support.redis_server import DEADLINE_S, wait_until

HEAD, KEY = keys.head_key("notifications"), keys.log_key("notifications")
BATCH = 10
Publish = Callable[..., Ended]


class Killed(BaseException):
    """Ends a command as SIGKILL does, so that nothing is written after it."""


def line(number: int) -> str:
    return json.dumps({"topic": f"orders.{number % 3}", "data": number}) + "\n"


def numbers(client: Client, namespace: str = "notifications") -> list[int]:
    return [int(fields[b"data"]) for _, fields in call(client, "XRANGE", keys.log_key(namespace), "-", "+")]


def forget_ids(client: Client) -> None:
    """Act on the ids like two turns of their hashes."""
    for key in call(client, "KEYS", "hg:{*}:id:*"):
        call(client, "UNLINK", key)
    call(client, "HINCRBY", HEAD, "ids", 5)
    restart(client)


def restart(client: Client) -> None:
    """Have Redis forget the library's memory, like another process."""
    call(client, "FUNCTION", "LOAD", "REPLACE", LOG_LIBRARY.source)


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of 45 events, in batches of 10."""
    monkeypatch.setattr(bulk, "MAX_BATCH_EVENTS", BATCH)
    path = tmp_path / "events.ndjson"
    path.write_text("".join(map(line, range(45))))
    return path


@pytest.fixture
def publish(run: Run, file: Path) -> Publish:
    def publish(*arguments: str) -> Ended:
        return run("publish", "--file", str(file), *arguments)

    return publish


def kill_in_batch(
    monkeypatch: pytest.MonkeyPatch,
    number: int,
    *,
    is_sent: bool,
    error: BaseException = Killed(),  # noqa: B008 - never changed
) -> None:
    """Kill the command in a batch (from 1), before or after Redis has taken it."""
    whole, batches = Publisher.publish_prepared, 0

    def publish_prepared(self: Publisher, events: list[Prepared]) -> Any:
        nonlocal batches
        batches += 1
        if batches < number:
            return whole(self, events)
        if batches == number and is_sent:
            whole(self, events)
        raise error

    monkeypatch.setattr(Publisher, "publish_prepared", publish_prepared)


def test_a_file_that_is_repeated_adds_nothing_however_late(publish: Publish, redis_client: Client) -> None:
    """The ids are forgotten by then, as those of a large file are after seconds. The exit code says that all is in the log."""
    assert publish().stdout == "published 45 events; offsets 1 to 45\n"
    forget_ids(redis_client)

    again = publish()

    assert (again.stdout, again.stderr, again.returncode) == ("published 45 events, 45 of them were there already\n", "", 0)
    assert numbers(redis_client) == list(range(45))


def test_a_byte_order_mark_of_a_windows_editor_is_not_part_of_the_first_line(publish: Publish, file: Path) -> None:
    """As PowerShell writes it."""
    file.write_text(line(0) + line(1), "utf-8-sig")
    assert publish().stdout == "published 2 events; offsets 1 to 2\n"


@pytest.mark.parametrize("are_ids_known", [True, False], ids=["ids", "no ids"])
@pytest.mark.parametrize("is_sent", [True, False], ids=["sent", "not sent"])
@pytest.mark.parametrize("batch", [1, 3, 5])
def test_a_command_that_is_killed_and_repeated_adds_each_line_once(
    publish: Publish, redis_client: Client, monkeypatch: pytest.MonkeyPatch, batch: int, is_sent: bool, are_ids_known: bool
) -> None:
    """In the first, a middle and the last batch, whether Redis has taken it or not; also when only the log knows that."""
    with monkeypatch.context() as patched:
        kill_in_batch(patched, batch, is_sent=is_sent)
        with pytest.raises(Killed):
            publish()
    if not are_ids_known:
        call(redis_client, "FCALL", "headgate_append", 1, KEY, "others", "-1", "theirs")
        forget_ids(redis_client)

    assert publish().returncode == 0

    assert sorted(number for number in numbers(redis_client) if number >= 0) == list(range(45))


def test_a_real_command_that_is_killed_and_repeated_adds_each_line_once(
    environment: dict[str, str], redis_client: Client, tmp_path: Path
) -> None:
    """With SIGKILL, while it sends."""
    path = tmp_path / "events.ndjson"
    path.write_text("".join(map(line, range(8_000))))
    command = [*COMMAND, "publish", "--file", str(path)]
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL) as process:
        wait_until(lambda: int(call(redis_client, "HGET", HEAD, "offset") or 0) >= 500, "it sends")
        process.send_signal(signal.SIGKILL)
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=DEADLINE_S, check=False)

    assert ended.returncode == 0, ended.stderr
    assert int(call(redis_client, "HGET", HEAD, "offset")) == 8_000


def test_ctrl_c_says_how_to_go_on(publish: Publish, redis_client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """As does a Redis that does not answer, with the line from which on it is not known."""
    for error, said, code in (
        (KeyboardInterrupt(), "headgate: interrupted; continue with the same command", 130),
        (BusUnavailable("gone"), "headgate: every line before is in the log; continue with the same command", 1),
    ):
        with monkeypatch.context() as patched:
            kill_in_batch(patched, 2, is_sent=True, error=error)
            ended = publish()
        assert (ended.stdout, ended.stderr.splitlines()[-1], ended.returncode) == ("", said, code)
    assert publish().returncode == 0
    assert numbers(redis_client) == list(range(45))


def test_what_is_unknown_is_left_to_the_caller(publish: Publish, redis_client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log and the ids have forgotten whether the second batch came. It is published again, or left out, on demand alone."""
    with monkeypatch.context() as patched:
        kill_in_batch(patched, 2, is_sent=True)
        with pytest.raises(Killed):
            publish()
    call(redis_client, "FCALL", "headgate_append", 1, KEY, "others", "-1", "theirs")
    call(redis_client, "XTRIM", KEY, "MAXLEN", 1)
    forget_ids(redis_client)

    refused = publish()

    assert (refused.stdout, refused.returncode) == ("", 1)
    assert refused.stderr.splitlines() == [
        "headgate: lines 11 to 20 were sent, and whether they are in the log is not known any more",
        "headgate: --from-line 11 publishes them, perhaps once more; --from-line 21 leaves them out",
    ]
    assert publish("--from-line", "21").stdout == "published 25 events; offsets 22 to 46\n"
    assert publish("--from-line", "11").stdout == "published 35 events, 25 of them were there already; offsets 47 to 56\n"
    assert publish().stdout == "published 45 events, 45 of them were there already\n"


def test_a_changed_file_is_refused_and_one_that_has_grown_goes_on(publish: Publish, redis_client: Client, file: Path) -> None:
    """Of the lines that were published nothing may differ but the end of the last one."""
    file.write_text("".join(map(line, range(25))).rstrip())
    assert publish().returncode == 0
    file.write_text("".join(map(line, range(30))))
    assert publish().stdout == "published 30 events, 25 of them were there already; offsets 26 to 30\n"

    for changed in ([*range(7), 99, *range(8, 30)], list(range(29)), [99, *range(30)]):
        file.write_text("".join(map(line, changed)))
        refused = publish("--skip-bad")
        assert (refused.stdout, refused.returncode) == ("", 1)
        assert refused.stderr.startswith("headgate: the file has changed since its lines 1 to 30 were published")
    assert numbers(redis_client) == list(range(30))


def test_another_log_gets_the_whole_file(publish: Publish, redis_client: Client) -> None:
    """As when it is tried in one namespace or Redis, and then meant for another. Each is remembered."""
    publish()
    other = publish("--namespace", "other")
    assert other.stdout == "published 45 events; offsets 1 to 45\n"
    assert other.stderr == "45 lines had receipts of events that this log does not have, and were published to it\n"
    for namespace in ("notifications", "other"):
        assert publish("--namespace", namespace).stdout == "published 45 events, 45 of them were there already\n"
        assert numbers(redis_client, namespace) == list(range(45))


def test_lines_that_redis_has_lost_are_published_again(publish: Publish, redis_client: Client, file: Path) -> None:
    """A failover to a replica that lags, or data put back, where receipts of events beyond the end do not count."""
    file.write_text("".join(map(line, range(20))))
    publish()
    kept = [(key, call(redis_client, "DUMP", key)) for key in call(redis_client, "KEYS", "hg:{notifications}:*")]
    file.write_text("".join(map(line, range(45))))
    publish()
    for key, value in kept:
        call(redis_client, "RESTORE", key, 0, value, "REPLACE")
    restart(redis_client)

    again = publish()

    assert again.stdout == "published 45 events, 20 of them were there already; offsets 21 to 45\n"
    assert again.stderr == "25 lines had receipts of events that this log does not have, and were published to it\n"
    assert numbers(redis_client) == list(range(45))
    assert publish().stdout == "published 45 events, 45 of them were there already\n"


def test_new_ids_add_the_file_once_more_and_a_kill_in_between_adds_no_line_twice(
    publish: Publish, redis_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run with new ids goes on where it was, and the next one starts again."""
    publish()
    with monkeypatch.context() as patched:
        kill_in_batch(patched, 3, is_sent=True)
        with pytest.raises(Killed):
            publish("--new-ids")
    assert publish("--new-ids").stdout == "published 45 events, 30 of them were there already; offsets 76 to 90\n"
    assert publish("--new-ids").stdout == "published 45 events; offsets 91 to 135\n"
    assert publish().stdout == "published 45 events, 45 of them were there already\n"
    assert sorted(numbers(redis_client)) == sorted(3 * list(range(45)))


def test_a_line_that_was_refused_is_tried_again(publish: Publish, redis_client: Client, file: Path) -> None:
    """And still decides about the exit code."""
    file.write_text(line(0) + "nope\n" + line(2))
    for published in ("published 2 events; offsets 1 to 2\n", "published 2 events, 2 of them were there already\n"):
        ended = publish("--skip-bad")
        assert (ended.stdout, ended.returncode) == (published, 1)
        assert ended.stderr.startswith("line 2: expected ")


def test_receipts_may_be_elsewhere_and_standard_input_has_them_on_demand(
    run: Run, redis_client: Client, file: Path, tmp_path: Path
) -> None:
    """A folder that cannot be written to needs no other permission than that."""
    elsewhere = str(tmp_path / "receipts")
    text = file.read_bytes()
    for published in ("published 45 events; offsets 1 to 45\n", "published 45 events, 45 of them were there already\n"):
        assert run("publish", "--file", "-", "--receipts", elsewhere, stdin=text).stdout == published
        forget_ids(redis_client)
    assert run("publish", "--file", str(file), "--receipts", elsewhere).returncode == 0
    assert numbers(redis_client) == list(range(45))
    assert sorted(os.listdir(tmp_path)) == ["events.ndjson", "receipts"]


def test_a_file_that_is_no_receipts_is_refused_and_stays_as_it_is(publish: Publish, redis_client: Client, tmp_path: Path) -> None:
    """Such as another file of events, with or without an end of line; a folder; one that another command uses."""
    other = tmp_path / "other.ndjson"
    for text in (line(1), line(1).rstrip(), "\n"):
        other.write_text(text)
        refused = publish("--receipts", str(other))
        assert (refused.returncode, refused.stderr) == (
            1, f"headgate: {other} is no file of receipts, and stays as it is; --receipts names another\n"
        )  # fmt: skip
        assert other.read_text() == text
    for path, reason in ((tmp_path, "Is a directory"), (tmp_path / "none" / "r", "No such file or directory")):
        assert f"{path}: {reason}; --receipts puts the receipts elsewhere" in publish("--receipts", str(path)).stderr
    assert "is no regular file" in publish("--receipts", "/dev/null").stderr
    assert numbers(redis_client) == []


def test_two_commands_do_not_publish_one_file_at_once(publish: Publish, file: Path) -> None:
    """The second says so."""
    with closing(Receipts(f"{file}.receipts")):
        refused = publish()
    assert refused.stderr == f"headgate: {file}.receipts: another headgate publish is at work on this file\n"
    assert publish().returncode == 0


def test_receipts_whose_last_line_was_cut_off_are_read(publish: Publish, redis_client: Client, file: Path) -> None:
    """The batch of that line is then found in the log, and the receipts are whole again."""
    publish()
    receipts = Path(f"{file}.receipts")
    text = receipts.read_bytes()
    last_sent = text.rindex(b'{"step":"sent"')
    for cut in range(last_sent, last_sent + 60, 7):
        receipts.write_bytes(text[:cut])
        assert publish().stdout == "published 45 events, 45 of them were there already\n"
    assert numbers(redis_client) == list(range(45))
