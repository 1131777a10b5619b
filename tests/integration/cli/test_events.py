"""`headgate publish` and `headgate tail` against a real Redis: output and exit codes."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec import Raw

from headgate.cli.main import main
from headgate.redis import keys
from headgate.redis.client import Client, call
from headgate.services.publisher import Publisher
from tests.integration.cli.conftest import COMMAND, Run, Tail, is_one_error_line
from tests.support.redis_server import DEADLINE_S, record_private_redis, wait_until

# publish -------------------------------------------------------------------------------------------------------------------


def test_publish_prints_the_receipt(run: Run, redis_client: Client) -> None:
    result = run("publish", "orders.42.shipped", '{"carrier": "UPS"}', "--id", "x:1")

    epoch = call(redis_client, "HGET", keys.head_key("notifications"), "epoch").decode()
    assert (result.stdout, result.stderr, result.returncode) == (f"offset 1 epoch {epoch} id x:1\n", "", 0)
    [(_, fields)] = call(redis_client, "XRANGE", keys.log_key("notifications"), "-", "+")
    assert fields[b"data"] == b'{"carrier": "UPS"}'


def test_publish_for_a_user_goes_to_the_users_own_topic(run: Run, redis_client: Client) -> None:
    """Every client of that user may subscribe to it without a grant."""
    assert run("publish", "mail", "1", "--user", "dora").returncode == 0
    [(_, fields)] = call(redis_client, "XRANGE", keys.log_key("notifications"), "-", "+")
    assert fields[b"topic"] == b"users.dora.mail"


@pytest.mark.parametrize(
    "command",
    [
        *("publish a 1 --id x", "publish a 1 --id x --json", "publish --file events.ndjson", "pause connects"),
        *("resume connects", "rebalance", "regrant ana", "disconnect --user ana"),
    ],
)
def test_a_command_that_has_acted_says_so_where_standard_output_is_full(
    run: Run, redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    """No traceback, the result on standard error, and an exit code by which a script knows that it is done."""
    monkeypatch.chdir(tmp_path)
    Path("events.ndjson").write_text('{"topic": "a", "data": 1}\n')

    with open("/dev/full", "w") as full, monkeypatch.context() as patched:
        patched.setenv("HEADGATE_REDIS_URL", redis_url)
        patched.setattr(sys, "stdout", full)
        with pytest.raises(SystemExit) as ended:
            main.main(command.split())

    told = capsys.readouterr().err
    assert ended.value.code == 3
    assert "done, but standard output does not take what is written (no space left on device): " in told
    if command.startswith("publish a"):
        assert " id x" in told
        assert run("publish", "a", "1", "--id", "x").stdout.endswith("(duplicate, not added)\n")


def test_a_full_output_ends_the_process_with_that_code(environment: dict[str, str], redis_client: Client) -> None:
    """Python itself writes no second fault at the end. A key is in no log, so its requester revokes it."""
    with open("/dev/full", "w") as full:
        arguments = [*COMMAND, "keys", "create", "x", "--scope", "admin"]
        ended = subprocess.run(arguments, stdout=full, stderr=subprocess.PIPE, text=True, env=environment, check=False)
    last = ended.stderr.splitlines()[-1]
    assert (ended.returncode, "does not take" in last, "Traceback" in ended.stderr) == (3, True, False)
    [key_id] = call(redis_client, "HKEYS", keys.API_KEYS)
    assert last.endswith(f": headgate keys revoke {key_id.decode()}")


def test_publish_reads_standard_input(run: Run, redis_client: Client) -> None:
    """With - as the JSON, into another namespace; the line end of the shell is not part of it."""
    result = run("publish", "a", "-", "--namespace", "other", stdin='["é"]\n'.encode())

    assert result.returncode == 0
    [(_, fields)] = call(redis_client, "XRANGE", keys.log_key("other"), "-", "+")
    assert fields[b"data"] == '["é"]'.encode()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("a..b", "1"), "invalid topic 'a..b'"),
        (("a", "1", "--id", "a b"), "characters of A-Z a-z 0-9 _ . : ~ -, got 'a b'"),
        (("a", "1", "--namespace", "a b"), "unknown namespace 'a b'"),
        (("a", "1", "--redis", "http://hunter2"), "not of the form"),
        (("a", '"' + "x" * 70_000 + '"'), "payload of 70002 bytes is above the limit of 65536 bytes (bus)"),
    ],
)
def test_publish_fails_with_one_clear_line(run: Run, arguments: tuple[str, ...], says: str) -> None:
    """Exit code 1, nothing on standard output, no secret and no traceback."""
    result = run("publish", *arguments)

    assert (result.stdout, result.returncode) == ("", 1)
    assert is_one_error_line(result.stderr)
    assert says in result.stderr
    assert "hunter2" not in result.stderr


def test_publish_does_not_read_standard_input_without_end(run: Run) -> None:
    """Above the hard limit it stops reading and says so."""
    result = run("publish", "a", "-", stdin=b'"' + b"x" * 3_000_000 + b'"')

    assert result.returncode == 1
    assert is_one_error_line(result.stderr)


def test_publish_finds_the_folders_private_redis(run: Run, environment: dict[str, str], tmp_path: Path, redis_url: str) -> None:
    """Beside a running gateway no configuration is needed; without one the error has the remedy."""
    del environment["HEADGATE_REDIS_URL"]
    record_private_redis(tmp_path / ".headgate", redis_url)
    assert run("publish", "a", "1", cwd=tmp_path).stdout.startswith("offset 1 ")
    (tmp_path / ".headgate" / "redis.lock").unlink()

    result = run("publish", "a", "1", cwd=tmp_path)

    assert result.returncode == 1
    assert "set HEADGATE_REDIS_URL" in result.stderr


# tail ----------------------------------------------------------------------------------------------------------------------


def test_tail_prints_the_events_that_match(tail: Tail, publisher: Publisher) -> None:
    """Offset, topic, data, one line each; the glob's surplus is not shown."""

    def publish() -> None:
        for topic in ("orders.1.shipped", "orders.1.2.shipped", "orders.1.paid", "orders.2.shipped"):
            publisher.publish(topic, Raw(b'{"topic":\n "%b"}' % topic.encode()))

    assert tail("orders.*.shipped", 2, then=publish).stdout.splitlines() == [
        '1 orders.1.shipped {"topic":  "orders.1.shipped"}',
        '4 orders.2.shipped {"topic":  "orders.2.shipped"}',
    ]


def test_tail_sets_bad_messages_aside_and_goes_on(tail: Tail, publisher: Publisher, redis_client: Client) -> None:
    """Poison straight into Redis gives a line on standard error for each, and the next good event."""
    bad = [b"nope", b"hg1 truncated", b'"\xff"', b"[" * 100, b"x" * 2_000_000]

    def publish() -> None:
        for message in bad:
            call(redis_client, "PUBLISH", keys.channel("notifications", "a"), message)
        call(redis_client, "PUBLISH", keys.channel_prefix("notifications") + "not a topic\x1b[2J", "1")
        publisher.publish("a", "good")
        publisher.publish_ephemeral("a", "the end")

    ended = tail("#", 2, then=publish)

    assert ended.stdout == '1 a "good"\n- a "the end"\n'
    lines = ended.stderr.splitlines()[1:]
    assert len(lines) == len(bad) + 1
    assert all(line.startswith("set aside a message of ") and line.isprintable() for line in lines)


def test_tail_goes_on_after_its_connection_has_broken_and_reports_what_is_lost(
    environment: dict[str, str], publisher: Publisher, redis_client: Client
) -> None:
    """It reads missed events from the log. A refused PING does not end it either."""
    command = [*COMMAND, "tail", "#"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            assert process.stderr.readline() == "listening to # in notifications\n"
            for number in (1, 2):
                publisher.publish("a", number)
                assert process.stdout.readline() == f"{number} a {number}\n"
                call(redis_client, "CLIENT", "KILL", "TYPE", "pubsub")
            wait_until(lambda: call(redis_client, "PUBSUB", "NUMPAT") >= 1, "it listens again")
            call(redis_client, "ACL", "SETUSER", "default", "-ping")
            wait_until(lambda: call(redis_client, "PUBSUB", "NUMPAT") == 0, "its PING is refused")
            call(redis_client, "FLUSHALL")
            publisher.publish("a", 3)
            assert process.stdout.readline() == "1 a 3\n"
            assert process.stderr.readline() == "the log is another one\n"
        finally:
            call(redis_client, "ACL", "SETUSER", "default", "+ping")
            process.kill()


def test_tail_ends_after_as_many_events_as_it_was_asked_for(run: Run, tail: Tail, publisher: Publisher) -> None:
    """Events of the log count too, and it succeeds without waiting for live ones when they are enough."""
    for number in range(3):
        publisher.publish("a", number)
    ended = run("tail", "a", "--since", "1", "--count", "2")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "1 a 0\n2 a 1\n", "")

    ended = tail("#", 2, "3", then=lambda: [publisher.publish("a", number) for number in (3, 4)])
    assert (ended.returncode, ended.stdout) == (0, "3 a 2\n4 a 3\n")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)])
def test_tail_writes_at_once_and_leaves_no_subscription_however_it_ends(
    environment: dict[str, str], publisher: Publisher, redis_client: Client, number: signal.Signals, code: int
) -> None:
    """Ctrl-C ends it quietly, with the usual code. It leaves no subscription in Redis."""
    command = [*COMMAND, "tail", "#"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            assert process.stderr.readline() == "listening to # in notifications\n"
            publisher.publish("a", 1)
            assert process.stdout.readline() == "1 a 1\n"
            process.send_signal(number)
            assert (*process.communicate(timeout=DEADLINE_S), process.returncode) == ("", "", code)
        finally:
            process.kill()

    wait_until(lambda: call(redis_client, "PUBSUB", "NUMPAT") == 0, "the subscription has ended")
