"""`headgate consume` as an operator runs it: on a real Redis, in the test's own process, and once as a process with signals."""

import json
import os
import signal
import socket
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence

import pytest
from click.testing import CliRunner, Result
from prometheus_client.parser import text_string_to_metric_families

from headgate.cli.main import main
from headgate.consumers import Consumer
from headgate.consumers.process import dry_run
from headgate.consumers.process.config import read_consumers
from headgate.consumers.work import worker as workers
from headgate.consumers.work.spec import ConsumerSpec
from headgate.errors import InvalidRequest
from headgate.redis.client import Client, call
from headgate.redis.keys import log_key
from headgate.redis.log_walk import Item
from headgate.services.publisher import Publisher
from headgate.services.subscriber import Subscriber
from headgate.settings.settings import Settings
from tests.support.consume_process import SINK_TABLE, ConsumeProcess, SinkFolder
from tests.support.consumers_state import count_leased
from tests.support.redis_server import wait_until
from tests.support.supervised import Supervised

Run = Callable[..., Result]
ANYWHERE = ("127.0.0.1", 0)


@pytest.fixture
def run(sink_here: SinkFolder, redis_url: str) -> Run:
    """Run `headgate consume …` to its end, in the folder of the sink."""

    def run(*arguments: str, **environment: str) -> Result:
        return CliRunner().invoke(main, ["consume", *arguments], env={"HEADGATE_REDIS_URL": redis_url, **environment})

    return run


def configuration(*only: str) -> tuple[Settings, tuple[ConsumerSpec, ...]]:
    """Return the configuration of the folder, or some of its consumers."""
    return read_consumers("headgate.toml", {}, only)


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


def page_in(said: Sequence[str]) -> str:
    """The address of the page in a supervisor's lines."""
    (line,) = (line for line in said if line.startswith("health and metrics at "))
    return line.split()[4].removesuffix("/healthz")


def counted(page: str, name: str, consumer: str) -> float | None:
    """The value of a counter of a consumer on its process's page."""
    for family in text_string_to_metric_families(get(page, "/metrics")[1]):
        for sample in family.samples:
            if sample.name == f"headgate_consumer_{name}_total" and sample.labels == {"consumer": consumer}:
                return sample.value
    return None


# --check -------------------------------------------------------------------------------------------------------------------


def test_a_check_names_each_consumer_and_makes_nothing(run: Run, publisher: Publisher, redis_client: Client) -> None:
    """A line for each consumer and one for Redis; no group is made."""
    publisher.publish("orders.1.paid", 1)

    result = run("--check")

    lines = result.stdout.splitlines()
    assert lines[0] == "headgate: notifications as sink (sink:Sink): orders.#"
    assert lines[1].startswith("headgate: using ")
    assert (len(lines), result.stderr, result.exit_code) == (2, "", 0)
    assert groups(redis_client) == []


def test_a_check_tells_every_fault_of_file_environment_and_redis(run: Run, sink_folder: SinkFolder) -> None:
    """Each one line, all at once, and the remedy for Redis; no password of the URL."""
    sink_folder.configure('[consumers.a]\ntype = "sink:Sink"\n[consumers.b]\ntype = "sink:Snk"\npatterns = ["x"]\nq = 1\n')

    result = run("--check", HEADGATE_REDIS_URL="redis://:hunter2@127.0.0.1:1/0")

    *faults, advice = result.stderr.splitlines()
    assert faults == [
        "headgate: headgate.toml [consumers.a] patterns is missing; expected 1 to 64 patterns such as orders.*.failed",
        "headgate: headgate.toml [consumers.b] type='sink:Snk': module 'sink' has no 'Snk'; expected package.module:Class",
        "headgate: the bus is unavailable: 127.0.0.1:1: connection refused",
    ]
    assert advice.startswith("headgate: start Redis there")
    assert (result.stdout, result.exit_code) == ("", 1)


def test_without_a_file_it_says_where_one_is_looked_for(run: Run, sink_folder: SinkFolder) -> None:
    """One line, exit code 1."""
    (sink_folder.path / "headgate.toml").unlink()

    result = run()

    assert result.stderr.splitlines()[1].strip() == (
        "no configuration file: expected --config FILE, HEADGATE_CONFIG or ./headgate.toml"
    )
    assert result.exit_code == 1


# --dry-run -----------------------------------------------------------------------------------------------------------------


def at_end(monkeypatch: pytest.MonkeyPatch, step: Callable[[], object]) -> None:
    """Take a step whenever a dry run has read a log to its end."""

    class Stepped(Subscriber):
        def __next__(self) -> Item:
            try:
                return super().__next__()
            except StopIteration:
                step()
                raise

    monkeypatch.setattr(dry_run, "Subscriber", Stepped)


def test_a_dry_run_prints_each_preview_and_touches_nothing(
    run: Run, sink_here: SinkFolder, publisher: Publisher, redis_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From an offset on, then live; an event that does not match is not shown, and no control character reaches the terminal."""
    for topic, data in (
        ("orders.1.paid", 1),
        ("orders.2.paid", 2),
        ("mails.1", 3),
        ("orders.3.exit", 4),
        ("orders.3.exit", "exit"),
    ):
        publisher.publish(topic, data)
    later = iter([("orders.4.paid", "\x7f")])

    def publish_or_end() -> None:
        event = next(later, None)
        if event is None:
            raise KeyboardInterrupt
        publisher.publish(*event)

    at_end(monkeypatch, publish_or_end)

    result = run("--dry-run", "--since", "2")

    assert result.stdout == (
        "headgate: dry run: notifications as sink (sink:Sink): orders.#\n"
        "2 orders.2.paid -> sink\n    write orders.2.paid\n    and 2\n"
        "4 orders.3.exit -> sink\n    its preview raised ValueError: no idea\n"
        "5 orders.3.exit -> sink\n    its preview raised SystemExit: 3\n"
        '6 orders.4.paid -> sink\n    write orders.4.paid\n    and "\\u007f"\n'
    )
    assert (result.stderr, result.exit_code) == ("", 130)
    assert (sink_here.got(), groups(redis_client)) == ([], [])


def test_a_dry_run_may_begin_before_there_is_a_log(
    redis_url: str, publisher: Publisher, redis_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It shows later publishes, but for probes, which consumers ignore, and reports what is no longer in the log."""
    said: list[str] = []
    events = [("headgate-probe", 0), ("orders.1", 1)]

    def say(text: str) -> None:
        said.append(text)
        raise KeyboardInterrupt

    at_end(monkeypatch, lambda: publisher.publish_many(events))
    spec = ConsumerSpec("sink", Consumer, None, ("#",), "notifications")
    with pytest.raises(KeyboardInterrupt):
        dry_run.dry_run([spec], redis_url, None, say)

    assert said == ["2 orders.1 -> sink\n    Consumer: orders.1"]

    call(redis_client, "XTRIM", log_key("notifications"), "MAXLEN", 1)
    said.clear()
    with pytest.raises(KeyboardInterrupt):
        dry_run.dry_run([spec], redis_url, 1, say)
    assert said == ["notifications: offsets 1 to 1: trimmed, not in the log any more"]


# Running -------------------------------------------------------------------------------------------------------------------


def test_it_names_each_consumer_and_its_place(supervised: Supervised, sink_here: SinkFolder, publisher: Publisher) -> None:
    """Each consumer of the file with a line; each gets the events of its patterns, from the beginning where it says so."""
    sink_here.configure(
        SINK_TABLE.format(name="first", more='start = "oldest"')
        + SINK_TABLE.format(name="second", more="").replace("orders.#", "orders.*.late")
    )
    publisher.publish("orders.1.early", 1)

    def script() -> None:
        sink_here.wait_for("orders.1.early")
        publisher.publish("orders.2.late", 2)
        wait_until(lambda: sorted(sink_here.got()) == ["orders.1.early", *["orders.2.late"] * 2], "both have got it")

    assert supervised.run(configuration(), script) == 0
    assert supervised.said[1:] == [
        "consuming notifications as first (sink:Sink): orders.#, from offset 1",
        "consuming notifications as second (sink:Sink): orders.*.late, from offset 2",
        "stopping the consumers",
    ]


def test_a_process_finishes_its_work_when_it_is_stopped(
    start_consume: Callable[..., ConsumeProcess], sink_folder: SinkFolder, publisher: Publisher, redis_client: Client
) -> None:
    """The event leased is done and acknowledged, the next is not begun, exit code 0; its page has health and metrics.

    By SIGHUP, and at the end by SIGTERM. test_supervisor.py has signals at any moment.
    """
    process = start_consume("--listen", "127.0.0.1:0")
    page = page_of(process)
    process.wait_for_line(r"^headgate: consuming notifications as sink \(sink:Sink\): orders\.#, from offset 1$")
    assert json.loads(get(page, "/healthz")[1])["ready"] is True
    assert counted(page, "handled", "sink") == 0
    publisher.publish("orders.1.slow", 1)
    publisher.publish("orders.2", 2)
    wait_until((sink_folder.path / "begun").exists, "the sink is at work")

    os.kill(process.pid, signal.SIGHUP)
    process.wait_for_line("^headgate: stopping the consumers$")
    assert sink_folder.got() == []
    (sink_folder.path / "go").touch()

    assert process.end() == 0
    assert sink_folder.got() == ["orders.1.slow"]
    again = start_consume()
    sink_folder.wait_for("orders.1.slow", "orders.2")
    assert again.stop() == 0
    assert count_leased(redis_client, "sink") == 0


# --listen ------------------------------------------------------------------------------------------------------------------


def test_the_page_tells_health_and_metrics(supervised: Supervised, sink_here: SinkFolder, publisher: Publisher) -> None:
    """The state of each consumer, and the counters of the process, labelled with the consumers' names."""

    def script() -> None:
        page = page_in(supervised.said)
        before = counted(page, "handled", "sink") or 0
        publisher.publish("orders.1", 1)
        sink_here.wait_for("orders.1")

        status, text = get(page, "/healthz")

        assert (status, json.loads(text)) == (
            200,
            {"ready": True, "consumers": {"sink": {"ready": True, "namespace": "notifications", "workers": 1, "trouble": None}}},
        )
        wait_until(lambda: counted(page, "handled", "sink") == before + 1, "the event is counted")
        assert get(page, "/")[0] == 404

    supervised.run(configuration(), script, ANYWHERE)


def test_the_page_names_one_in_trouble(supervised: Supervised, sink_here: SinkFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """503 while it cannot start, 200 when it could."""
    monkeypatch.setattr(workers, "BUS_LAST_S", 0.01)  # between two tries
    (sink_here.path / "sick").touch()

    def script() -> None:
        page = page_in(supervised.said)
        wait_until(lambda: get(page, "/healthz")[0] == 503, "the trouble is told")
        assert json.loads(get(page, "/healthz")[1])["consumers"]["sink"]["trouble"] == "RuntimeError"

        (sink_here.path / "sick").unlink()

        wait_until(lambda: get(page, "/healthz")[0] == 200, "the trouble is over")

    supervised.run(configuration(), script, ANYWHERE)


def test_a_page_where_another_program_listens_is_refused(supervised: Supervised, sink_here: SinkFolder) -> None:
    """One line that names the place, before any consumer is begun."""
    with socket.create_server(ANYWHERE) as other:
        port = other.getsockname()[1]
        with pytest.raises(InvalidRequest) as refused:
            supervised.run(configuration(), lambda: None, ("127.0.0.1", port))

    assert refused.value.lines()[0].startswith(f"invalid request: cannot listen on 127.0.0.1:{port}: ")
    assert not [line for line in supervised.said if line.startswith("consuming")]
