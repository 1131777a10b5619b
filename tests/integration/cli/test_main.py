"""The command line as a user runs it: real Redis, output and exit codes.

A command runs in this process, as click's own runner has it, unless the process is what a test is about.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import signal
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from headgate.cli.main import main
from headgate.redis import keys, registry
from headgate.redis.client import Client, call
from headgate.redis.embedded import start_private_redis
from headgate.redis.registry import register
from tests.support.certificates import Authority
from tests.support.redis_server import DEADLINE_S, wait_until

COMMAND = (sys.executable, "-m", "headgate.cli.main")


@pytest.fixture
def environment(redis_url: str, redis_client: Client) -> dict[str, str]:
    """The environment of a shell in which HEADGATE_REDIS_URL is set, and nothing else of ours. A gateway was there before."""
    register(redis_client, "a-gateway", ["notifications", "other"])
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith("HEADGATE_")},
        "HEADGATE_REDIS_URL": redis_url,
    }


@pytest.fixture
def run_process(environment: dict[str, str]) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run one command to its end, as a process of its own."""

    def run(*arguments: str, stdin: bytes | None = None, **options: Any) -> subprocess.CompletedProcess[str]:
        result = subprocess.run(
            [*COMMAND, *arguments], capture_output=True, timeout=60, input=stdin, check=False, **{"env": environment, **options}
        )
        return subprocess.CompletedProcess(result.args, result.returncode, result.stdout.decode(), result.stderr.decode())

    return run


@pytest.fixture
def run(environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run one command to its end, in this process."""

    def run(
        *arguments: str, stdin: bytes | None = None, env: dict[str, str] | None = None, cwd: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        monkeypatch.setattr(registry, "_remembered", {})  # each command is a process that knows nothing yet
        with contextlib.chdir(cwd or "."):
            result = CliRunner().invoke(main, arguments, input=stdin, env=env or environment, prog_name="headgate")
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return subprocess.CompletedProcess(arguments, result.exit_code, result.stdout, result.stderr)

    return run


@pytest.fixture
def tail(environment: dict[str, str]) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start `headgate tail …` and return it when its subscription is in force."""
    running = []

    def start(*arguments: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [*COMMAND, "tail", *arguments], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        running.append(process)
        assert process.stderr is not None
        assert process.stderr.readline().startswith("listening to ")
        return process

    yield start
    for process in running:
        process.kill()
        process.communicate()


def is_one_error_line(text: str) -> bool:
    return text.startswith("headgate: ") and text.count("\n") == 1 and text.endswith("\n")


def error_and_advice(text: str) -> tuple[str, str]:
    """Return the two lines of an error that says what to do."""
    lines = text.splitlines()
    assert len(lines) == 2, text
    assert all(line.startswith("headgate: ") for line in lines), text
    return lines[0], lines[1]


# publish -------------------------------------------------------------------------------------------------------------------


def test_publish_prints_the_receipt(run_process: Any, redis_client: Client) -> None:
    """One line, and the event is in the log as it was typed."""
    result = run_process("publish", "orders.42.shipped", '{"carrier": "UPS"}', "--id", "x:1")

    epoch = call(redis_client, "HGET", keys.head_key("notifications"), "epoch").decode()
    assert (result.stdout, result.stderr, result.returncode) == (f"offset 1 epoch {epoch} id x:1\n", "", 0)
    [(_, fields)] = call(redis_client, "XRANGE", keys.log_key("notifications"), "-", "+")
    assert fields[b"data"] == b'{"carrier": "UPS"}'


def test_publish_says_that_an_id_was_known(run: Any) -> None:
    """The second time nothing is added."""
    run("publish", "a", "1", "--id", "same")

    assert run("publish", "a", "1", "--id", "same").stdout.endswith(" id same (duplicate, not added)\n")


def test_publish_reads_standard_input(run_process: Any, redis_client: Client) -> None:
    """With - as the JSON, into another namespace; the line end of the shell is not part of it."""
    result = run_process("publish", "a", "-", "--namespace", "other", stdin='["é"]\n'.encode())

    assert result.returncode == 0
    [(_, fields)] = call(redis_client, "XRANGE", keys.log_key("other"), "-", "+")
    assert fields[b"data"] == '["é"]'.encode()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("a..b", "1"), "invalid topic 'a..b'"),
        (("a", "1", "--id", "a b"), "invalid event id"),
        (("a", "1", "--namespace", "a b"), "unknown namespace 'a b'"),
        (("a", "1", "--redis", "http://hunter2"), "not of the form"),
        (("a", '"' + "x" * 70_000 + '"'), "payload of 70002 bytes is above the limit of 65536 bytes (bus)"),
    ],
)
def test_publish_fails_with_one_clear_line(run: Any, arguments: tuple[str, ...], says: str) -> None:
    """Exit code 1, nothing on standard output, no secret and no traceback."""
    result = run("publish", *arguments)

    assert (result.stdout, result.returncode) == ("", 1)
    assert is_one_error_line(result.stderr)
    assert says in result.stderr
    assert "hunter2" not in result.stderr


@pytest.mark.parametrize("text", ["hello", "it's me", "{nope}", "NaN", "", 'é "x" \\', "two\nlines", "\x1b[2J"])
def test_publish_shows_how_to_write_what_is_not_json(run: Any, redis_client: Client, text: str) -> None:
    """The words as they were typed, as JSON text in the shell's quotes: pasted, they are published."""
    result = run("publish", "a", text)

    error, advice = error_and_advice(result.stderr)
    assert (result.stdout, result.returncode) == ("", 1)
    assert error.startswith("headgate: data is not JSON: ")
    pasted = advice.removeprefix("headgate: to publish this as text, write ")
    assert pasted.isprintable()
    [shown] = shlex.split(pasted)
    assert run("publish", "a", shown).returncode == 0
    [(_, fields)] = call(redis_client, "XRANGE", keys.log_key("notifications"), "-", "+")
    assert json.loads(fields[b"data"]) == text


@pytest.mark.parametrize(
    ("text", "stdin"),
    [
        ("[" * 100 + "]" * 100, None),  # JSON, and too deep
        ("[" * 20_000 + "]" * 20_000, None),
        ("x" * 1000, None),
        (os.fsdecode(b"\xff"), None),  # no text that JSON has
        ("-", b"hello"),
    ],
    ids=["deep", "deeper", "long", "not UTF-8", "standard input"],
)
def test_publish_shows_no_quotes_where_they_would_not_help(run: Any, text: str, stdin: bytes | None) -> None:
    """One line: the fault is another one, or there is nothing to paste."""
    result = run("publish", "a", text, stdin=stdin)

    assert result.returncode == 1
    assert is_one_error_line(result.stderr)
    assert "data is not JSON" in result.stderr


def test_publish_does_not_read_standard_input_without_end(run_process: Any) -> None:
    """Above the hard limit it stops reading and says so."""
    result = run_process("publish", "a", "-", stdin=b'"' + b"x" * 3_000_000 + b'"')

    assert result.returncode == 1
    assert is_one_error_line(result.stderr)


@pytest.mark.parametrize("arguments", [(), ("a",), ("a", "1", "--no-such-option"), ("a", "1", "2")])
def test_wrong_usage_is_exit_code_2(run: Any, arguments: tuple[str, ...]) -> None:
    """As every command line does."""
    assert run("publish", *arguments).returncode == 2


def test_publish_finds_the_private_server_of_the_folder(run_process: Any, environment: dict[str, str], tmp_path: Path) -> None:
    """Beside a running gateway no configuration is needed; without one the error says what to do."""
    del environment["HEADGATE_REDIS_URL"]
    with start_private_redis(tmp_path / ".headgate"):
        assert run_process("publish", "a", "1", cwd=tmp_path).stdout.startswith("offset 1 ")

    result = run_process("publish", "a", "1", cwd=tmp_path)

    assert result.returncode == 1
    assert "set HEADGATE_REDIS_URL" in result.stderr


# Redis that does not answer --------------------------------------------------------------------------------------------------

COMMANDS = [
    ("publish", "a", "1"),
    ("tail", "#"),
    ("check",),
    ("revoke", "--user", "ana"),
    ("consumers", "list"),
    ("consumers", "remove", "mail"),
    ("dead-letters", "list", "mail"),
    ("dead-letters", "show", "mail", "1-0"),
    ("dead-letters", "retry", "mail", "--all"),
    ("consume",),
    ("consume", "--check"),
    ("consume", "--dry-run"),
    ("serve", "--port", "0"),
]


@pytest.fixture
def places(redis_url: str, tmp_path: Path) -> Iterator[dict[str, str]]:
    """Our Redis, and what is not: a web server, and one that speaks TLS with a certificate that nobody trusts."""
    with contextlib.ExitStack() as running:
        http, tls = (
            running.enter_context(answering(context)) for context in (None, Authority(tmp_path).server_context("localhost"))
        )
        yield {"ours": redis_url, "http": http, "tls": tls}


@contextlib.contextmanager
def answering(context: ssl.SSLContext | None) -> Iterator[str]:
    """Answer every connection as a web server does that was sent no HTTP, over TLS if there is a context; give host and port."""

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection, contextlib.suppress(OSError):  # who asked may have gone, or speak no TLS
                connection.settimeout(DEADLINE_S)
                spoken = connection if context is None else context.wrap_socket(connection, server_side=True)
                spoken.sendall(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")
                while spoken.recv(65536):
                    pass

    listener = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(DEADLINE_S)


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A folder with the configuration of a consumer in it."""
    table = '[consumers.mail]\ntype = "webhook"\npatterns = ["#"]\nurl = "https://example.com/"\n'
    (tmp_path / "headgate.toml").write_text(f'{table}secret = "whsec_{"A" * 44}"\n')
    return tmp_path


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_says_in_two_lines_that_redis_does_not_answer(
    run: Any, run_process: Any, environment: dict[str, str], shop: Path, command: tuple[str, ...]
) -> None:
    """Where, without the password; why; what to do. No traceback, exit code 1."""
    # These two change the process that they run in: the standard library, signals, logs.
    run = run_process if command[0] in ("serve", "consume") else run
    result = run(*command, env={**environment, "HEADGATE_REDIS_URL": "redis://:hunter2@127.0.0.1:1/0"}, cwd=shop)

    error, advice = error_and_advice(result.stderr)
    assert result.returncode == 1
    assert error == "headgate: the bus is unavailable: 127.0.0.1:1: connection refused"
    assert advice.startswith("headgate: start Redis there, or set HEADGATE_REDIS_URL to another")
    assert "hunter2" not in result.stdout


@pytest.mark.parametrize("command", [("publish", "a", "1"), ("tail", "#")], ids=lambda command: command[0])
@pytest.mark.parametrize(
    ("url", "says", "advises"),
    [
        ("{ours}?password=hunter2", "redis.sock: wrong user name or password", "check user and password"),
        ("unix:///nowhere/redis.sock?password=hunter2", "/nowhere/redis.sock: no such file", "start Redis there"),
        ("redis://:hunter2@nowhere.invalid/0", "nowhere.invalid:6379: ", "check the host name"),
        ("redis://:hunter2@{http}/0", "{http} ", "check the port"),
        ("rediss://:hunter2@{http}/0", "{http}: no TLS", "without TLS the URL begins with redis://"),
        ("redis://:hunter2@{tls}/0", "{tls}", "where the server wants TLS, the URL begins with rediss://"),
        ("rediss://:hunter2@{tls}/0", "{tls}: its certificate was not accepted", "?ssl_ca_certs=FILE"),
    ],
    ids=["password", "socket", "host", "not Redis", "no TLS there", "TLS there", "certificate"],
)
def test_it_says_why_redis_cannot_be_talked_to(
    run: Any,
    environment: dict[str, str],
    places: dict[str, str],
    command: tuple[str, ...],
    url: str,
    says: str,
    advises: str,
) -> None:
    """The same two lines for each of the usual faults, and what is usually to be done about it."""
    result = run(*command, env={**environment, "HEADGATE_REDIS_URL": url.format(**places)})

    error, advice = error_and_advice(result.stderr)
    assert result.returncode == 1
    assert says.format(**places) in error
    assert advises in advice
    assert "hunter2" not in result.stdout + result.stderr


# tail ----------------------------------------------------------------------------------------------------------------------


def test_tail_prints_the_events_that_match(run: Any, tail: Any) -> None:
    """Offset, topic, data, one line each; the glob's surplus is not shown."""
    process = tail("orders.*.shipped")
    for topic in ("orders.1.shipped", "orders.1.2.shipped", "orders.1.paid", "orders.2.shipped"):
        run("publish", topic, '{"topic":\n "%s"}' % topic)  # noqa: UP031

    lines = [process.stdout.readline() for _ in range(2)]

    assert lines == ['1 orders.1.shipped {"topic":  "orders.1.shipped"}\n', '4 orders.2.shipped {"topic":  "orders.2.shipped"}\n']


def test_tail_prints_json(run: Any, tail: Any, redis_client: Client) -> None:
    """Everything that is known about an event; a plain PUBLISH has no position."""
    process = tail("#", "--json")
    run("publish", "a.b", '{"x": 1}', "--id", "first")
    call(redis_client, "PUBLISH", keys.channel("notifications", "c"), "[2]")

    logged, plain = (json.loads(process.stdout.readline()) for _ in range(2))

    assert (logged["topic"], logged["data"], logged["id"], logged["offset"]) == ("a.b", {"x": 1}, "first", 1)
    assert {"time", "epoch"} < logged.keys()
    assert (plain["topic"], plain["data"], plain["id"]) == ("c", [2], None)
    assert "offset" not in plain


def test_tail_sets_bad_messages_aside_and_goes_on(run: Any, tail: Any, redis_client: Client) -> None:
    """Poison straight into Redis: a line on standard error for each, and the next good event."""
    process = tail("#")
    bad = [b"nope", b"hg1 truncated", b'"\xff"', b"[" * 100, b"x" * 2_000_000]
    for message in bad:
        call(redis_client, "PUBLISH", keys.channel("notifications", "a"), message)
    call(redis_client, "PUBLISH", keys.channel_prefix("notifications") + "not a topic\x1b[2J", "1")
    run("publish", "a", '"good"')

    assert process.stdout.readline() == '1 a "good"\n'
    lines = [process.stderr.readline() for _ in range(len(bad) + 1)]
    assert all(line.startswith("set aside a message of ") and line[:-1].isprintable() for line in lines)


def test_tail_lets_no_control_character_through(run: Any, tail: Any) -> None:
    """A payload cannot talk to the terminal."""
    process = tail("#")
    run("publish", "a", '"\x7f \u009b2J \\u001b[2J é"')

    assert process.stdout.readline() == '1 a "\\u007f \\u009b2J \\u001b[2J é"\n'


def test_tail_says_when_the_connection_breaks(tail: Any, redis_client: Client) -> None:
    """It does not wait silently for events that will never come."""
    process = tail("#")
    call(redis_client, "CLIENT", "KILL", "TYPE", "pubsub")

    _, stderr = process.communicate(timeout=30)

    assert process.returncode == 1
    assert is_one_error_line(stderr)
    assert "the bus is unavailable" in stderr


def test_tail_ends_with_ctrl_c(tail: Any) -> None:
    """Quietly, with the usual code."""
    process = tail("#")
    process.send_signal(signal.SIGINT)

    stdout, stderr = process.communicate(timeout=30)

    assert (stdout, stderr, process.returncode) == ("", "", 130)


def test_tail_refuses_what_is_no_pattern(run: Any) -> None:
    """Before connecting anywhere."""
    result = run("tail", "orders.a*", "--redis", "redis://127.0.0.1:1")

    assert result.returncode == 1
    assert "invalid pattern 'orders.a*'" in result.stderr


# check, settings, help -----------------------------------------------------------------------------------------------------


def test_check_names_what_is_found_and_needed(run: Any) -> None:
    """The server's version, and the libraries' before and after loading them."""
    before, loading, after = run("check"), run("check", "--load"), run("check")

    found, needed, library, consumers, *served = before.stdout.splitlines()
    assert found.startswith("found: ")
    assert needed == "needed: Redis 7.0 or newer, or Valkey"
    assert library.startswith("function library: not loaded")
    assert consumers.startswith("function library of consumers: not loaded")
    assert [re.sub(r"\d+ s", "N s", line) for line in served] == [
        "namespace notifications: 1 gateway(s) at work, the last one seen N s ago",
        "namespace other: 1 gateway(s) at work, the last one seen N s ago",
    ]
    assert loading.stdout.splitlines()[:4] == after.stdout.splitlines()[:4]
    assert "function library: version " in after.stdout
    assert "function library of consumers: version " in after.stdout


def test_settings_is_a_table_of_all(run: Any) -> None:
    """One row for each setting, in Markdown."""
    from headgate.settings import describe

    lines = run("settings").stdout.splitlines()

    assert lines[1] == "|---|---|---|---|"
    assert [line.split("`")[1] for line in lines[2:]] == [name for name, *_ in describe()]


def test_the_command_line_itself_loads_nothing(environment: dict[str, str]) -> None:
    """`serve` must be able to patch the standard library before anything of ours is loaded."""
    code = (
        "import sys, headgate.cli.main; print([name for name in "
        "('redis', 'msgspec', 'gevent', 'flask', 'headgate.redis.client', 'headgate.event') if name in sys.modules])"
    )

    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


SERVE = """
import socket, sys, types
import headgate.cli.main

def run(overrides, target, config, *, with_consumers):
    from gevent import monkey
    print(monkey.is_module_patched("socket"), sorted(overrides.items()), target, config, with_consumers)
    return 7

sys.modules["headgate.cli.serve"] = types.SimpleNamespace(run=run)
headgate.cli.main.main()
"""


@pytest.mark.parametrize(
    ("arguments", "given"),
    [
        ((), "True [] None None False"),
        (
            ("shop:app", "--host", "::1", "--port", "0", "--redis", "redis://r", "--dev", "--demo"),
            "True [('HEADGATE_DEMO', '1'), ('HEADGATE_DEV', '1'), ('HEADGATE_HOST', '::1'), ('HEADGATE_PORT', '0'), "
            "('HEADGATE_REDIS_URL', 'redis://r')] shop:app None False",
        ),
        (("--config", "shop.toml", "--with-consumers"), "True [] None shop.toml True"),
    ],
)
def test_serve_patches_first_and_passes_on_only_what_was_given(arguments: tuple[str, ...], given: str) -> None:
    """Options become settings' names; what is not given stays with the environment. The exit code is the server's."""
    result = subprocess.run(
        [sys.executable, "-c", SERVE, "serve", *arguments], capture_output=True, text=True, timeout=60, check=False
    )

    assert (result.stdout.strip(), result.returncode) == (given, 7), result.stderr


def test_a_killed_tail_leaves_no_subscription(tail: Any, redis_client: Client) -> None:
    """However it ends, Redis is not left sending to nobody."""
    process = tail("orders.#")
    assert call(redis_client, "PUBSUB", "NUMPAT") == 1
    process.kill()

    wait_until(lambda: call(redis_client, "PUBSUB", "NUMPAT") == 0, "the subscription has ended")
