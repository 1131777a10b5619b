"""A silent Redis, or another server: every command says so in two lines, with the fault and the remedy."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.cli.conftest import Run, error_and_advice
from tests.support.answering import answering
from tests.support.certificates import Authority
from tests.support.redis_process import Server

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
    ("consume", "--check"),
    ("consume", "--dry-run"),
]


@pytest.fixture
def places(redis_url: str, tmp_path: Path) -> Iterator[dict[str, str]]:
    """Our Redis, and three servers that are none.

    A web server, one that speaks TLS with an untrusted certificate, and a Sentinel.
    """
    reply = b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"
    with (
        answering(reply) as http,
        answering(reply, Authority(tmp_path).server_context("localhost")) as tls,
        Server(tmp_path / "sentinel", sentinel=True) as sentinel,
    ):
        yield {"ours": redis_url, "http": http, "tls": tls, "sentinel": f"127.0.0.1:{sentinel.port}"}


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A folder with the configuration of a consumer in it."""
    table = '[consumers.mail]\ntype = "webhook"\npatterns = ["#"]\nurl = "https://example.com/"\n'
    (tmp_path / "headgate.toml").write_text(f'{table}secret = "whsec_{"A" * 44}"\n')
    return tmp_path


def check_refused(run: Run, environment: dict[str, str], folder: Path, command: tuple[str, ...]) -> None:
    result = run(*command, env={**environment, "HEADGATE_REDIS_URL": "redis://:hunter2@127.0.0.1:1/0"}, cwd=folder)

    error, advice = error_and_advice(result.stderr)
    assert result.returncode == 1
    assert error == "headgate: the bus is unavailable: 127.0.0.1:1: connection refused"
    assert advice.startswith("headgate: start Redis there, or set HEADGATE_REDIS_URL to another")
    assert "hunter2" not in result.stdout


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_says_in_two_lines_that_redis_does_not_answer(
    run: Run, environment: dict[str, str], shop: Path, command: tuple[str, ...]
) -> None:
    """Where, without the password; why; the remedy. No traceback, exit code 1."""
    check_refused(run, environment, shop, command)


@pytest.mark.parametrize("command", [("consume",), ("serve", "--port", "0")], ids=" ".join)
def test_a_command_that_runs_on_says_it_at_its_start(
    run_process: Run, environment: dict[str, str], shop: Path, command: tuple[str, ...]
) -> None:
    """As a process, because these two take over signals, and `serve` the standard library."""
    check_refused(run_process, environment, shop, command)


@pytest.mark.parametrize("command", [("publish", "a", "1"), ("tail", "#")], ids=lambda command: command[0])
@pytest.mark.parametrize(
    ("url", "says", "advises"),
    [
        ("{ours}?password=hunter2", "redis.sock: wrong user name or password", "check user and password"),
        ("unix:///nowhere/redis.sock?password=hunter2", "/nowhere/redis.sock: no such file", "start Redis there"),
        ("redis://:hunter2@nowhere.invalid/0", "nowhere.invalid:6379: ", "check the host name"),
        ("redis://:hunter2@{http}/0", "{http} ", "check the port"),
        ("rediss://:hunter2@{http}/0", "{http}: no TLS", "without TLS the URL begins with redis://"),
        ("redis://:hunter2@{tls}/0", "{tls}", "if it requires TLS, begin the URL with rediss://"),
        ("rediss://:hunter2@{tls}/0", "{tls}: its certificate is not accepted", "?ssl_ca_certs=FILE"),
        ("redis://{sentinel}/0", "the server at {sentinel} does not know the command", "redis+sentinel://HOST:PORT/PRIMARY/0"),
    ],
    ids=["password", "socket", "host", "not Redis", "no TLS there", "TLS there", "certificate", "Sentinel"],
)
def test_it_says_why_redis_cannot_be_talked_to(
    run: Run, environment: dict[str, str], places: dict[str, str], command: tuple[str, ...], url: str, says: str, advises: str
) -> None:
    """The same two lines for each of the usual faults, and its usual remedy."""
    result = run(*command, env={**environment, "HEADGATE_REDIS_URL": url.format(**places)})

    error, advice = error_and_advice(result.stderr)
    assert result.returncode == 1
    assert says.format(**places) in error
    assert advises in advice
    assert "hunter2" not in result.stdout + result.stderr
