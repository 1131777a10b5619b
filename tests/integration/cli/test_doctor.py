"""`headgate doctor` beside a real gateway with a consumer: every hop, and the view of a bad proxy, origin or Redis."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from click.testing import CliRunner

from headgate.cli.main import main
from headgate.consumers.work.groups import Groups, GroupStatus
from headgate.redis.client import Client, call, open_client
from headgate.redis.keys import log_key
from tests.support.cutting_proxy import CuttingProxy
from tests.support.gateway_process import GatewayProcess, StartGateway
from tests.support.redis_server import wait_until

SECRET = "a secret of the tests, 0123456789abcdef"
# Each step of a busy machine.
PATIENT = ("--timeout", "60", "--idle", "0")
# It would post every event to a port without a listener.
CONSUMERS = """
[consumers.hook]
type = "webhook"
url = "http://127.0.0.1:1/"
patterns = ["#"]
allow_private = ["127.0.0.0/8"]
secret = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
"""
Doctor = Callable[..., tuple[int, dict[str, Any]]]


@pytest.fixture(scope="module")
def gateway(start_module_gateway: StartGateway, tmp_path_factory: pytest.TempPathFactory) -> GatewayProcess:
    """A gateway with tokens, and a consumer that wants everything."""
    config = tmp_path_factory.mktemp("configuration") / "headgate.toml"
    config.write_text(CONSUMERS)
    return start_module_gateway({"HEADGATE_TOKEN_SECRET": SECRET}, "--with-consumers", "--config", str(config))


@pytest.fixture(scope="module")
def client(gateway: GatewayProcess) -> Iterator[Client]:
    """A client of its Redis, when the consumer is at work."""
    client = open_client(f"unix://{gateway.folder}/data/redis.sock")

    def look() -> GroupStatus | None:
        return Groups(client, "notifications").status_of("hook")

    wait_until(lambda: (status := look()) is not None and status.idle_s is not None, "the consumer is at work")
    yield client
    client.close()


@pytest.fixture
def doctor(gateway: GatewayProcess, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Doctor:
    """Run the doctor in this process, in the gateway's environment; return its exit code, and its findings."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str, secret: str | None = SECRET, url: str = gateway.url) -> tuple[int, dict[str, Any]]:
        environment = {"HEADGATE_TOKEN_SECRET": secret, "HEADGATE_DATA_DIR": f"{gateway.folder}/data"}
        result = CliRunner().invoke(main, ["doctor", "--json", "--url", url, *PATIENT, *arguments], env=environment)
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        found = json.loads(result.stdout)
        return result.exit_code, {**found, "by name": {finding["name"]: finding for finding in found["findings"]}}

    return run


def verdicts(found: dict[str, Any], *names: str) -> list[str]:
    return [found["by name"][name]["verdict"] for name in names]


def target(gateway: GatewayProcess) -> tuple[str, int]:
    url = urlsplit(gateway.url)
    assert url.hostname is not None
    assert url.port is not None
    return url.hostname, url.port


def test_one_event_goes_through_every_hop_and_nothing_else_is_left_behind(doctor: Doctor, client: Client) -> None:
    """Each hop has its time. The event is of the user's own probe topic, and the consumer of everything has not worked on it."""
    last = call(client, "XLEN", log_key("notifications"))
    code, found = doctor("--idle", "0.1")

    assert (code, found["ok"], [each for each in found["findings"] if each["verdict"] == "fault"]) == (0, True, [])
    assert [hop["name"] for hop in found["hops"]] == [
        "publish",
        "bus",
        "gateway → WebSocket",
        "gateway → long poll",
        "consumer hook",
    ]
    assert all(hop["ms"] > 0 for hop in found["hops"])
    assert verdicts(found, "quiet WebSocket", "quiet long poll", "clock of this machine") == ["ok"] * 3
    [(_, fields)] = call(client, "XREVRANGE", log_key("notifications"), "+", "-", "COUNT", 1)
    assert call(client, "XLEN", log_key("notifications")) == last + 1
    assert fields[b"topic"] == b"users.headgate-doctor.headgate-probe"

    def work() -> tuple[int, ...]:
        status = Groups(client, "notifications").status_of("hook")
        assert status is not None
        return status.lag, status.leased, status.waiting, status.dead

    wait_until(lambda: work() == (0, 0, 0, 0), "the worker has returned the event that the hop saw it take")


def test_a_proxy_that_drops_upgrades_is_named_with_the_setting_to_change(doctor: Doctor, gateway: GatewayProcess) -> None:
    """The long poll gets through, and its hop is measured."""
    with CuttingProxy(target(gateway), upgrades=False) as proxy:
        code, found = doctor(url=proxy.url)

    assert code == 1
    assert verdicts(found, "WebSocket", "long poll") == ["fault", "ok"]
    assert "proxy_http_version 1.1" in found["by name"]["WebSocket"]["fix"]
    assert "gateway → long poll" in [hop["name"] for hop in found["hops"]]


def test_a_proxy_that_cuts_quiet_connections_is_named(doctor: Doctor, gateway: GatewayProcess) -> None:
    """It does not wait for the whole time (this test would be ended), once both are gone; the hops that can be measured are."""
    with CuttingProxy(target(gateway), cuts=True) as proxy:
        code, found = doctor("--idle", "600", url=proxy.url)

    assert code == 1
    assert verdicts(found, "quiet WebSocket", "quiet long poll", "bus") == ["fault", "fault", "ok"]
    assert "proxy_read_timeout" in found["by name"]["quiet WebSocket"]["fix"]


def test_a_foreign_origin_is_told_which_setting_lets_it_in(doctor: Doctor) -> None:
    """As pages of another site would find it."""
    code, found = doctor("--origin", "https://shop.example.com")
    assert code == 1
    assert {found["by name"][name]["verdict"] for name in ("WebSocket", "long poll")} == {"fault"}
    assert "HEADGATE_ALLOWED_ORIGINS" in found["by name"]["long poll"]["fix"]


def test_without_a_token_it_says_that_one_is_missing(doctor: Doctor) -> None:
    """The way to the gateway was tried; that is no fault of it."""
    code, found = doctor(secret=None)
    assert code == 0
    assert verdicts(found, "WebSocket", "long poll", "publish", "bus") == ["unknown", "unknown", "ok", "ok"]
    assert "--token" in found["by name"]["WebSocket"]["fix"]


def test_without_redis_or_gateway_the_other_parts_are_looked_at(doctor: Doctor) -> None:
    """Each fault is one finding."""
    code, found = doctor("--redis", "redis://127.0.0.1:1")
    assert code == 1
    assert verdicts(found, "Redis", "WebSocket", "probe") == ["fault", "ok", "unknown"]
    code, found = doctor(url="http://127.0.0.1:1")
    assert code == 1
    assert verdicts(found, "found", "WebSocket", "long poll", "bus") == ["ok", "fault", "fault", "ok"]


def test_it_reads_well_on_a_terminal(
    gateway: GatewayProcess, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sections, a word for each verdict, the remedy below it, and the number of faults; no colour in a pipe."""
    monkeypatch.chdir(tmp_path)
    environment = {"HEADGATE_DATA_DIR": f"{gateway.folder}/data"}
    result = CliRunner().invoke(main, ["doctor", "--url", "http://127.0.0.1:1", *PATIENT], env=environment)
    lines = result.stdout.splitlines()
    assert [line for line in lines if not line.startswith(" ")] == [
        "Redis", "clocks", "machine", "public URL http://127.0.0.1:1", "one event through every hop", lines[-1],
    ]  # fmt: skip
    assert "  fault    WebSocket: connection refused" in lines
    assert lines[-1].startswith("2 faults, ")
    assert "\x1b" not in result.stdout
