"""`headgate consume` as an operator runs it: a real process, a real Redis, signals."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import closing
from types import SimpleNamespace

import pytest
from click.testing import CliRunner
from prometheus_client.parser import text_string_to_metric_families

from headgate.cli.main import main
from headgate.consumers import Consumer
from headgate.consumers.process import dry_run
from headgate.consumers.process.dry_run import DryRun
from headgate.consumers.work.spec import ConsumerSpec
from headgate.publisher import Publisher
from headgate.redis.client import Client, call
from headgate.redis.keys import log_key
from tests.support.consume_process import SINK_TABLE, ConsumeProcess, SinkFolder, StartConsume
from tests.support.consumers_state import count_leased
from tests.support.redis_server import wait_until

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def publisher(redis_url: str) -> Publisher:
    return Publisher(redis_url)


@pytest.fixture
def run(sink_folder: SinkFolder, redis_url: str) -> Run:
    """Run `headgate consume …` to its end, in the folder of the sink."""

    def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("HEADGATE_")}
        command = [sys.executable, "-m", "headgate.cli.main", "consume", *arguments]
        settings = {**inherited, "HEADGATE_REDIS_URL": redis_url, **environment}
        return subprocess.run(
            command, cwd=sink_folder.path, env=settings, capture_output=True, text=True, timeout=60, check=False
        )

    return run


def groups(client: Client) -> list[str]:
    """The groups on the log."""
    return [found[1].decode().partition("@")[0] for found in call(client, "XINFO", "GROUPS", log_key("notifications"))]


def get(page: str, path: str) -> tuple[int, str]:
    """Return status and text of a page."""
    try:
        with urllib.request.urlopen(f"{page}{path}", timeout=30) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def page_of(process: ConsumeProcess) -> str:
    """The address of a process's page."""
    return process.wait_for_line(r"health and metrics at (http://\S+)/healthz")[1]


def counted(page: str, name: str, consumer: str) -> float | None:
    """The value of a counter of a consumer on its process's page."""
    for family in text_string_to_metric_families(get(page, "/metrics")[1]):
        for sample in family.samples:
            if sample.name == f"headgate_consumer_{name}_total" and sample.labels == {"consumer": consumer}:
                return sample.value
    return None


# --check -------------------------------------------------------------------------------------------------------------------


def test_a_check_says_what_would_run_and_makes_nothing(run: Run, publisher: Publisher, redis_client: Client) -> None:
    """A line for each consumer and one for Redis; no group is made."""
    publisher.publish("orders.1.paid", 1)

    result = run("--check")

    lines = result.stdout.splitlines()
    assert lines[0] == "headgate: notifications as sink (sink:Sink): orders.#"
    assert lines[1].startswith("headgate: using ")
    assert (len(lines), result.stderr, result.returncode) == (2, "", 0)
    assert groups(redis_client) == []


def test_a_check_tells_every_fault_of_file_environment_and_redis(run: Run, sink_folder: SinkFolder) -> None:
    """Each one line, all at once, and what to do about Redis; no password of the URL."""
    sink_folder.configure('[consumers.a]\ntype = "sink:Sink"\n[consumers.b]\ntype = "sink:Snk"\npatterns = ["x"]\nq = 1\n')

    result = run("--check", HEADGATE_REDIS_URL="redis://:hunter2@127.0.0.1:1/0")

    *faults, advice = result.stderr.splitlines()
    assert faults == [
        "headgate: headgate.toml [consumers.a] patterns is missing; expected 1 to 64 patterns such as orders.*.failed",
        "headgate: headgate.toml [consumers.b] type='sink:Snk': module 'sink' has no 'Snk'; expected package.module:Class",
        "headgate: the bus is unavailable: 127.0.0.1:1: connection refused",
    ]
    assert advice.startswith("headgate: start Redis there")
    assert (result.stdout, result.returncode) == ("", 1)


def test_without_a_file_it_says_where_one_is_looked_for(run: Run, sink_folder: SinkFolder) -> None:
    """One line, exit code 1."""
    (sink_folder.path / "headgate.toml").unlink()

    result = run()

    assert result.stderr.splitlines()[1].strip() == (
        "no configuration file: expected --config FILE, HEADGATE_CONFIG or ./headgate.toml"
    )
    assert result.returncode == 1


@pytest.mark.parametrize(
    "arguments", [("--since", "3"), ("--listen", "9100"), ("--listen", "127.0.0.1:x"), ("--dry-run", "--since", "0")]
)
def test_wrong_usage_is_exit_code_2(arguments: tuple[str, ...]) -> None:
    """As every command line does."""
    assert CliRunner().invoke(main, ["consume", *arguments]).exit_code == 2


# --dry-run -----------------------------------------------------------------------------------------------------------------


def test_a_dry_run_prints_what_would_be_done_and_touches_nothing(
    sink_folder: SinkFolder, redis_url: str, publisher: Publisher, redis_client: Client
) -> None:
    """From an offset on, then live; what does not match is not shown, and no control character reaches the terminal."""
    for topic, data in (("orders.1.paid", 1), ("orders.2.paid", 2), ("mails.1", 3), ("orders.3.exit", 4)):
        publisher.publish(topic, data)
    command = [sys.executable, "-m", "headgate.cli.main", "consume", "--dry-run", "--since", "2", "--redis", redis_url]
    with subprocess.Popen(command, cwd=sink_folder.path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(6)]
        publisher.publish("orders.4.paid", "\x7f")
        lines += [process.stdout.readline() for _ in range(3)]
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=30)

    assert "".join(lines) == (
        "headgate: dry run: notifications as sink (sink:Sink): orders.#\n"
        "2 orders.2.paid -> sink\n    write orders.2.paid\n    and 2\n"
        "4 orders.3.exit -> sink\n    its preview raised ValueError: no idea\n"
        '5 orders.4.paid -> sink\n    write orders.4.paid\n    and "\\x7f"\n'
    )
    assert (stderr, process.returncode) == ("", 130)
    assert (sink_folder.got(), groups(redis_client)) == ([], [])


def test_a_dry_run_may_begin_before_there_is_a_log(redis_url: str, publisher: Publisher, monkeypatch: pytest.MonkeyPatch) -> None:
    """It shows what is published from then on."""
    said: list[str] = []

    def say(text: str) -> None:
        said.append(text)
        raise KeyboardInterrupt

    monkeypatch.setattr(dry_run, "time", SimpleNamespace(sleep=lambda _: publisher.publish("orders.1", 1)))
    spec = ConsumerSpec("sink", Consumer, None, ("#",), "notifications")
    with closing(DryRun([spec], redis_url, say)) as run, pytest.raises(KeyboardInterrupt):
        run.run(None)

    assert said == ["1 orders.1 -> sink\n    Consumer: orders.1"]


# Running -------------------------------------------------------------------------------------------------------------------


def test_it_says_what_it_consumes_and_from_where(
    start_consume: StartConsume, sink_folder: SinkFolder, publisher: Publisher
) -> None:
    """Each consumer of the file with a line; each gets the events of its patterns, from the beginning where it says so."""
    sink_folder.configure(
        SINK_TABLE.format(name="first", more='start = "oldest"')
        + SINK_TABLE.format(name="second", more="").replace("orders.#", "orders.*.late")
    )
    publisher.publish("orders.1.early", 1)

    process = start_consume()

    process.wait_for_line(r"^headgate: consuming notifications as first \(sink:Sink\): orders\.#, from offset 1$")
    process.wait_for_line(r"^headgate: consuming notifications as second \(sink:Sink\): orders\.\*\.late, from offset 2$")
    sink_folder.wait_for("orders.1.early")
    publisher.publish("orders.2.late", 2)
    wait_until(lambda: sorted(sink_folder.got()) == ["orders.1.early", *["orders.2.late"] * 2], "both have got it")


def test_only_those_that_are_named_run(
    start_consume: StartConsume, sink_folder: SinkFolder, publisher: Publisher, redis_client: Client
) -> None:
    """The others' groups are not even made."""
    sink_folder.configure("".join(SINK_TABLE.format(name=name, more='start = "oldest"') for name in ("first", "second")))
    publisher.publish("orders.1", 1)

    process = start_consume("--only", "second")

    process.wait_for_line("consuming notifications as second")
    sink_folder.wait_for("orders.1")
    assert groups(redis_client) == ["second"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_finishes_what_it_has_begun_when_it_is_stopped(
    start_consume: StartConsume, sink_folder: SinkFolder, publisher: Publisher, redis_client: Client, number: signal.Signals
) -> None:
    """The event leased is done and acknowledged, the next is not begun, exit code 0."""
    process = start_consume()
    publisher.publish("orders.1.slow", 1)
    publisher.publish("orders.2", 2)
    wait_until((sink_folder.path / "begun").exists, "the sink is at work")

    os.kill(process.pid, number)
    process.wait_for_line("^headgate: stopping the consumers$")
    assert sink_folder.got() == []
    (sink_folder.path / "go").touch()

    assert process.end() == 0
    assert sink_folder.got() == ["orders.1.slow"]
    again = start_consume()
    sink_folder.wait_for("orders.1.slow", "orders.2")
    assert again.stop() == 0
    assert count_leased(redis_client, "sink") == 0


def test_a_worker_that_ended_is_started_again_and_told(
    start_consume: StartConsume, sink_folder: SinkFolder, publisher: Publisher
) -> None:
    """Code that ends its thread ends no other consumer, and its own only for a moment."""
    more = "lease_s = 600"  # the event that ended them does not come again
    sink_folder.configure(SINK_TABLE.format(name="frail", more=more) + SINK_TABLE.format(name="other", more=more))
    process = start_consume("--listen", "127.0.0.1:0")
    process.wait_for_line("consuming notifications as other")
    publisher.publish("orders.1.exit", 1)

    for name in ("frail", "other"):
        process.wait_for_line(f"^headgate: {name}: a worker has ended; starting it again in 1 s$")
    publisher.publish("orders.2", 2)

    wait_until(lambda: sink_folder.got() == ["orders.2"] * 2, "both have got the next event")
    assert len(sink_folder.pids()) == 4
    assert [counted(page_of(process), "restarts", name) for name in ("frail", "other")] == [1, 1]
    assert process.stop() == 0


def test_the_end_of_the_parent_is_the_end(start_consume: StartConsume) -> None:
    """As under `headgate serve`; a process number that never was the parent's counts as an end."""
    process = start_consume("--parent", str(os.getpid()))
    other = start_consume("--parent", str(os.getppid()))

    assert other.end() == 0
    other.wait_for_line("^headgate: stopping the consumers$")
    assert process.stop() == 0


# --listen ------------------------------------------------------------------------------------------------------------------


def test_the_page_tells_health_and_metrics(start_consume: StartConsume, sink_folder: SinkFolder, publisher: Publisher) -> None:
    """What the consumers do, and what the process counts, labelled with their names."""
    page = page_of(start_consume("--listen", "127.0.0.1:0"))
    publisher.publish("orders.1", 1)
    sink_folder.wait_for("orders.1")

    status, text = get(page, "/healthz")

    assert (status, json.loads(text)) == (
        200,
        {"ready": True, "consumers": {"sink": {"ready": True, "namespace": "notifications", "workers": 1, "trouble": None}}},
    )

    wait_until(lambda: counted(page, "handled", "sink") == 1, "the event is counted")
    assert get(page, "/")[0] == 404


def test_a_consumer_in_trouble_is_told_on_the_page(start_consume: StartConsume, sink_folder: SinkFolder) -> None:
    """503 while it cannot start, 200 when it could."""
    (sink_folder.path / "sick").touch()
    page = page_of(start_consume("--listen", "127.0.0.1:0"))
    wait_until(lambda: get(page, "/healthz")[0] == 503, "the trouble is told")
    assert json.loads(get(page, "/healthz")[1])["consumers"]["sink"]["trouble"] == "RuntimeError"

    (sink_folder.path / "sick").unlink()

    wait_until(lambda: get(page, "/healthz")[0] == 200, "the trouble is over")


def test_a_page_where_somebody_listens_already_is_refused(start_consume: StartConsume, run: Run) -> None:
    """One line that names the place."""
    port = page_of(start_consume("--listen", "127.0.0.1:0")).rpartition(":")[2]

    result = run("--listen", f"127.0.0.1:{port}")

    assert result.returncode == 1
    assert result.stderr.startswith(f"headgate: invalid request: cannot listen on 127.0.0.1:{port}: ")
