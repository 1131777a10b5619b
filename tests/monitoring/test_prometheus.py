"""The real Prometheus reads a real gateway's metrics, and finds every series of the dashboard and of the alert rules.

`make monitoring` runs this.
"""

import json
import re
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from headgate.services.publisher import Publisher
from tests.support.gateway_process import GatewayProcess
from tests.support.metric_names import asked, expressions_of_dashboard, expressions_of_rules
from tests.support.raw_client import RawClient
from tools.prometheus import bring

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(180)]

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "monitoring"
DEADLINE_S = 60.0
EVENTS = 200
CLIENTS = 3
SUFFIXES = {"histogram": ("_bucket", "_sum", "_count")}
CONFIGURATION = """
global: {{scrape_interval: 1s, evaluation_interval: 1s}}
rule_files: [{rules}]
scrape_configs:
  - job_name: headgate
    static_configs: [{{targets: ["{target}"]}}]
"""


class Prometheus:
    """One Prometheus that scrapes one gateway once a second."""

    def __init__(self, folder: Path, gateway: str) -> None:
        folder.mkdir()
        configuration = folder / "prometheus.yml"
        target = gateway.removeprefix("http://").rstrip("/")
        configuration.write_text(CONFIGURATION.format(rules=FOLDER / "alerts.yml", target=target))
        self._log = (folder / "log").open("w+")
        words = [
            f"--config.file={configuration}",
            f"--storage.tsdb.path={folder / 'data'}",
            "--web.listen-address=127.0.0.1:0",
        ]
        self._process = subprocess.Popen([str(bring() / "prometheus"), *words], stderr=self._log, stdout=self._log)
        self.url = ""

    def log(self) -> str:
        self._log.flush()
        return Path(self._log.name).read_text()

    def listen(self) -> None:
        """Wait for its port, and until it answers queries, because it listens before it has read its data."""
        until(lambda: re.search(r"Listening on\" address=(\S+:\d+)", self.log()), self.log)
        found = re.search(r"Listening on\" address=(\S+:\d+)", self.log())
        assert found is not None
        self.url = f"http://{found[1]}"
        until(self._is_ready, self.log)

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/-/ready", timeout=30):
                return True
        except urllib.error.HTTPError as error:
            if error.code != 503:
                raise
            return False

    def ask(self, path: str, **words: str) -> Any:
        with urllib.request.urlopen(f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(words)}", timeout=30) as answer:
            told = json.loads(answer.read())
        assert told["status"] == "success", told
        return told["data"]

    def query(self, expression: str) -> list[Any]:
        found: list[Any] = self.ask("query", query=expression)["result"]
        return found

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(30)
        self._log.close()


def until(condition: Any, told: Any) -> None:
    give_up = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < give_up, told()
        time.sleep(0.1)


def has_all(client: RawClient) -> bool:
    return len(client.named("event")) == EVENTS


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    """Two workers, some clients, and events."""
    folder = tmp_path_factory.mktemp("gateway")
    with GatewayProcess(folder, {}, ("--dev", "--workers", "2")) as gateway:
        hello = {"subscriptions": [{"pattern": "#"}]}
        clients = [RawClient(gateway.url, hello) for _ in range(CLIENTS)]
        for client in clients:
            client.wait_for(partial(client.named, "welcome"), "welcome", DEADLINE_S)
        publisher = Publisher(f"unix://{folder / 'data' / 'redis.sock'}")
        for number in range(EVENTS):
            publisher.publish("orders.1.shipped", {"number": number})
        for client in clients:
            client.wait_for(partial(has_all, client), "every event", DEADLINE_S)
        yield gateway
        for client in clients:
            client.close()


@pytest.fixture(scope="module")
def prometheus(gateway: GatewayProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    prometheus = Prometheus(tmp_path_factory.mktemp("prometheus") / "data", gateway.url)
    try:
        prometheus.listen()
        until(lambda: prometheus.query("count_over_time(up[1m]) > 3 and up == 1"), prometheus.log)
        yield prometheus
    finally:
        prometheus.close()


def test_the_rules_and_the_configuration_are_valid() -> None:
    """By promtool."""
    for kind, file in (("rules", "alerts.yml"), ("config", "prometheus.yml")):
        checked = subprocess.run([str(bring() / "promtool"), "check", kind, str(FOLDER / file)], capture_output=True, text=True)
        assert checked.returncode == 0, checked.stdout + checked.stderr


def test_prometheus_knows_every_series_and_can_answer_every_query(prometheus: Prometheus) -> None:
    """Of the dashboard and the rules; no rule fails."""
    families = {each["metric"]: each["type"] for each in prometheus.ask("targets/metadata")}
    known = {name + suffix for name, kind in families.items() for suffix in SUFFIXES.get(kind, ("",))}
    panels = expressions_of_dashboard((FOLDER / "dashboard.json").read_text())
    rules = expressions_of_rules((FOLDER / "alerts.yml").read_text())
    for expression in [*panels, *rules]:
        assert asked(expression) <= known, expression
        if not expression.startswith(("prometheus", "label_values")):
            prometheus.query(expression.replace("$namespace", ".*").replace("$__rate_interval", "1m"))
    for group in prometheus.ask("rules")["groups"]:
        for rule in group["rules"]:
            assert rule["health"] in ("ok", "unknown"), rule


def test_the_numbers_are_those_of_all_workers(prometheus: Prometheus) -> None:
    """Each event for each client was sent, and the sum closes."""

    def number(expression: str) -> float:
        [only] = prometheus.query(expression)
        return float(only["value"][1])

    assert number("sum(headgate_clients)") == CLIENTS
    assert number('sum(headgate_outcomes_total{outcome="sent"})') == EVENTS * CLIENTS
    assert number("sum(headgate_routed_total) - sum(headgate_outcomes_total) - sum(headgate_waiting)") == 0
    assert number('max(headgate_publish_to_socket_greatest_seconds{window="all"})') > 0


def test_a_percentile_is_that_of_all_workers(prometheus: Prometheus) -> None:
    """As the dashboard asks for it, within a bucket of a histogram with limits at powers of two."""
    [told] = prometheus.query("sum(headgate_publish_to_socket_seconds_count)")
    workers = {each["metric"]["worker"] for each in prometheus.query("headgate_worker_up == 1")}
    assert workers == {"1", "2"}
    assert EVENTS <= float(told["value"][1]) <= EVENTS * len(workers), "once for each worker that has clients"
    [panel] = [each for each in expressions_of_dashboard((FOLDER / "dashboard.json").read_text()) if "quantile(0.5" in each]
    asked_for = panel.replace("$namespace", ".*").replace("rate(", "(").replace("[$__rate_interval]", "")
    [median] = prometheus.query(asked_for)
    greatest = prometheus.query('max(headgate_publish_to_socket_greatest_seconds{window="all"})')
    assert 0 < float(median["value"][1]) <= float(greatest[0]["value"][1]) * 2
