"""examples/deploy/compose without containers: what the composed services run and read, as processes of this machine.

Names of services become addresses of loopback, free ports take the place of fixed ones, and local programs (Redis, nginx,
Prometheus) that of the images. A mail server of the tests takes the mails. Grafana cannot run here, so its files are read.
"""

import json
import re
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import jwt
import pytest
import yaml

from headgate.services.publisher import Publisher
from tests.support.gateway_process import GatewayProcess
from tests.support.held_port import HeldPort
from tests.support.raw_client import RawClient
from tests.support.redis_process import RedisProcess
from tests.support.redis_server import wait_until
from tests.support.smtp_server import SmtpServer
from tools.prometheus import bring

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(300)]
FOLDER = Path(__file__).parents[2] / "examples/deploy/compose"
ENV = {
    "HEADGATE_TOKEN_SECRET": "a secret of the test that is long enough",
    "GRAFANA_PASSWORD": "x",
    "HEADGATE_HOSTS": "localhost",
}
PER_S = 50


def filled(text: str) -> str:
    """Return a text with its variables, as Compose fills them in from .env."""
    return re.sub(r"\$\{(\w+)(?::[?-][^}]*)?\}", lambda found: ENV[found[1]], text)


class Site:
    """The composed site; `services` is the content of the file."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.services: dict[str, Any] = yaml.safe_load(filled((FOLDER / "docker-compose.yml").read_text()))["services"]
        self._folder, self._stack = folder, stack
        self._redis = stack.enter_context(RedisProcess(folder / "redis"))
        self._mail = stack.enter_context(closing(SmtpServer()))
        names = ("nginx", "gateway-1", "gateway-2", "consumers", "prometheus")
        self._ports = {name: stack.enter_context(closing(HeldPort())).port for name in names}
        self.redis_url = self._redis.url
        self.gateways = {name: self._gateway(name) for name in ("gateway-1", "gateway-2")}

    def here(self, text: str) -> str:
        """Return a text in which services have the addresses of this run."""
        text = text.replace("redis://redis:6379/0", self.redis_url).replace(
            "listen 8080", f"listen 127.0.0.1:{self._ports['nginx']}"
        )
        for name in ("gateway-1", "gateway-2"):
            text = text.replace(f"{name}:8000", f"127.0.0.1:{self._ports[name]}")
        text = text.replace("consumers:9100", f"127.0.0.1:{self._ports['consumers']}")
        return text.replace('host = "mail"', 'host = "127.0.0.1"').replace("port = 1025", f"port = {self._mail.port}")

    def _gateway(self, name: str) -> GatewayProcess:
        service = self.services[name]
        settings = {key: self.here(str(value)) for key, value in service["environment"].items()}
        settings |= {"HEADGATE_HOST": "127.0.0.1", "HEADGATE_PORT": str(self._ports[name])}
        gateway = GatewayProcess(self._folder / name, settings, tuple(service["command"][2:]))
        gateway.folder.mkdir()
        self._stack.callback(gateway.stop)
        return gateway.start()

    def start_nginx(self) -> str:
        program = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
        if program is None:
            pytest.skip("there is no nginx here (Debian: apt-get install nginx-light)")
        file = self._folder / "nginx.conf"
        file.write_text(self.here((FOLDER / "nginx.conf").read_text()).replace("/tmp/", f"{self._folder}/nginx-"))
        self._start([program, "-c", str(file), "-g", "daemon off; error_log stderr;", "-p", str(self._folder)], "nginx")
        return f"http://127.0.0.1:{self._ports['nginx']}"

    def start_consumers(self) -> None:
        """Start them with the file, until their page says that they are well."""
        file = self._folder / "headgate.toml"
        file.write_text(self.here((FOLDER / "headgate.toml").read_text()))
        words = [str(Path(sys.executable).with_name("headgate")), *self.services["consumers"]["command"][1:3]]
        environment = {"HEADGATE_CONFIG": str(file), "HEADGATE_REDIS_URL": self.redis_url}
        self._start([*words, f"127.0.0.1:{self._ports['consumers']}"], "consumers", environment)
        wait_until(lambda: get(f"http://127.0.0.1:{self._ports['consumers']}/healthz") is not None, "the consumers are well")

    def start_prometheus(self) -> str:
        (self._folder / "alerts.yml").write_text((FOLDER.parents[1] / "monitoring/alerts.yml").read_text())
        file = self._folder / "prometheus.yml"
        file.write_text(self.here((FOLDER / "prometheus.yml").read_text()).replace("15s", "1s"))
        url = f"127.0.0.1:{self._ports['prometheus']}"
        options = [f"--config.file={file}", f"--web.listen-address={url}", f"--storage.tsdb.path={self._folder / 'tsdb'}"]
        self._start([str(bring() / "prometheus"), *options], "prometheus")
        return f"http://{url}"

    def _start(self, words: list[str], name: str, environment: dict[str, str] | None = None) -> None:
        with (self._folder / f"{name}.log").open("w") as log:
            process = subprocess.Popen(words, stdout=log, stderr=log, env=environment)
        self._stack.callback(process.wait, 30)
        self._stack.callback(process.terminate)

    def mails(self) -> list[Any]:
        return self._mail.mails


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """The site, with both gateways up."""
    with ExitStack() as stack:
        yield Site(tmp_path_factory.mktemp("site"), stack)


def get(url: str) -> str | None:
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return str(answer.read().decode())
    except OSError:
        return None


def polled(url: str, origin: str) -> int:
    """Return the status of a handshake that a page of an origin begins."""
    asked = urllib.request.Request(f"{url}/socket.io/?EIO=4&transport=polling", headers={"Origin": origin})
    try:
        with urllib.request.urlopen(asked, timeout=10) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def test_a_gateway_ends_under_load_and_no_event_is_missing(site: Site) -> None:
    """Clients come through nginx; one gateway is stopped as a deploy stops it, and its clients go on at the other."""
    url = site.start_nginx()
    wait_until(lambda: get(f"{url}/healthz") is not None, "nginx answers")
    # Nothing of the figures and no console is outside; a page of the site may connect, and no other.
    assert json.loads(get(f"{url}/healthz") or "") == {"ready": True, "missing": []}
    assert [get(f"{url}{path}") for path in ("/metrics", "/console", "/console/session")] == [None] * 3
    assert [polled(url, origin) for origin in (url, "https://evil.example", url.replace("http:", "https:"))] == [200, 403, 403]
    claims = {"sub": "ana", "aud": "headgate", "exp": time.time() + 600, "subscribe": ["orders.#"]}
    auth = {"token": jwt.encode(claims, ENV["HEADGATE_TOKEN_SECRET"]), "subscriptions": [{"pattern": "orders.#"}]}
    clients = [RawClient(url, auth) for _ in range(10)]
    assert all(client.welcome["subscriptions"][0]["ok"] for client in clients)
    publisher = Publisher(site.redis_url)
    published = [publisher.publish(f"orders.{number}.packed", {"id": number}).offset for number in range(PER_S)]
    for client in clients:
        client.wait_for_events(PER_S)
    site.gateways["gateway-1"].stop()
    published += [publisher.publish(f"orders.{number}.shipped", {"id": number}).offset for number in range(PER_S)]
    moved = 0
    for client in clients:
        seen = [meta["offset"] for _, _, meta in client.named("event")]
        if client.closed is not None:  # asked to move: a client comes back with its position
            moved += 1
            resume = {"epoch": client.welcome["epoch"], "offset": seen[-1]}
            with RawClient(url, {**auth, "resume": resume}) as again:
                again.wait_for_events(len(published) - len(seen))
                assert again.welcome["resumed"] is True
                seen += [meta["offset"] for _, _, meta in again.named("event")]
        else:
            client.wait_for_events(len(published))
            seen = [meta["offset"] for _, _, meta in client.named("event")]
        assert seen == published
        client.close()
    assert 0 < moved < len(clients)
    publisher.close()
    # The first gateway comes back and the other one ends: nginx gives all clients to the first at once.
    site.gateways["gateway-1"].start()
    site.gateways["gateway-2"].stop()
    back = [RawClient(url, auth) for _ in range(3)]
    assert all(client.welcome["subscriptions"][0]["ok"] for client in back)
    for client in back:
        client.close()


def test_a_failed_order_is_mailed(site: Site) -> None:
    """By the consumers, with the file as it is."""
    site.start_consumers()
    with closing(Publisher(site.redis_url)) as publisher:
        publisher.publish("orders.7.failed", {"id": 7})
    wait_until(lambda: any(mail.header("Subject") == "Order 7 failed" for mail in site.mails()), "the mail")


def test_prometheus_scrapes_all_and_grafana_finds_its_files(site: Site) -> None:
    """Each target of the file answers, but for the gateway that has ended."""
    url = site.start_prometheus()

    def up() -> dict[str, str]:
        found = json.loads(get(f"{url}/api/v1/query?query=up") or '{"data": {"result": []}}')["data"]["result"]
        return {each["metric"]["instance"]: each["value"][1] for each in found}

    wait_until(lambda: sorted(up().values()) == ["0", "1", "1"], "both targets are up")
    mounts = dict(each.split(":")[:2] for each in site.services["grafana"]["volumes"])
    assert all((FOLDER / source).exists() for source in mounts)
    providers = yaml.safe_load((FOLDER / "grafana/dashboards.yml").read_text())["providers"]
    assert providers[0]["options"]["path"] == str(Path(mounts["../../monitoring/dashboard.json"]).parent)
    datasource = yaml.safe_load((FOLDER / "grafana/datasource.yml").read_text())["datasources"][0]
    assert datasource["url"] == "http://prometheus:9090"
