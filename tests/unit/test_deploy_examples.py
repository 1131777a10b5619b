"""The files of examples/deploy: their content fits the gateway, and their parts fit each other."""

import re
import shutil
import subprocess
import sys
from configparser import ConfigParser
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import yaml

from headgate.node.access.origin import Hosts, origin_check
from headgate.settings.settings import Settings, is_weak_secret
from headgate.transport.peer_address import address_of
from headgate.workers.gunicorn_worker import END_S
from headgate_server.app import create_app
from tests.support.recording_gate import RecordingGate

ROOT = Path(__file__).parents[2]
OPERATIONS = ROOT / "docs/operations/deploy.md"
SYSTEMD = ROOT / "examples/deploy/systemd"


def unit(name: str) -> ConfigParser:
    parsed = ConfigParser(interpolation=None, strict=True)
    parsed.optionxform = str  # type: ignore[assignment, method-assign]
    parsed.read_string((SYSTEMD / name).read_text())
    return parsed


def environment_of(text: str) -> dict[str, str]:
    """Return the settings of an environment file."""
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return dict(line.split("=", 1) for line in lines)


@pytest.fixture(scope="module")
def objects() -> dict[str, Any]:
    text = (ROOT / "examples/deploy/kubernetes/headgate.yaml").read_text()
    return {each["kind"]: each for each in yaml.safe_load_all(text)}


@pytest.fixture(scope="module")
def container(objects: dict[str, Any]) -> Any:
    [container] = objects["Deployment"]["spec"]["template"]["spec"]["containers"]
    return container


@pytest.fixture(scope="module")
def settings(container: Any) -> Settings:
    """The settings of the container, with its secrets in their places."""
    secrets = {"redis-url": "rediss://redis.internal:6380/0", "token-secret": bytes(range(24)).hex()}
    environ: dict[str, str] = {}
    for each in container["env"]:
        source = each.get("valueFrom", {})
        if source:
            environ[each["name"]] = secrets[source["secretKeyRef"]["key"]]
        else:
            environ[each["name"]] = each["value"]
    return Settings.read(environ)


def test_the_pods_get_no_variables_for_a_service_of_our_name(objects: dict[str, Any]) -> None:
    """The Service of the same file would set names that begin as settings do."""
    assert objects["Deployment"]["spec"]["template"]["spec"]["enableServiceLinks"] is False


def test_the_deployment_gives_a_gateway_time_to_stop(objects: dict[str, Any], container: Any, settings: Settings) -> None:
    """preStop, drain, and the end, within the pod's period of grace; another pod serves before."""
    spec = objects["Deployment"]["spec"]
    waited_s = int(container["lifecycle"]["preStop"]["exec"]["command"][1])
    assert spec["template"]["spec"]["terminationGracePeriodSeconds"] > waited_s + settings.drain_s + 2 * END_S
    probe = container["readinessProbe"]
    assert waited_s > probe["periodSeconds"] * probe["failureThreshold"]
    assert spec["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
    assert objects["PodDisruptionBudget"]["spec"]["maxUnavailable"] < spec["replicas"]


def test_all_objects_name_the_same_pods_and_the_port_of_the_image(objects: dict[str, Any], container: Any) -> None:
    """Selectors, labels, ports and probes."""
    labels = objects["Deployment"]["spec"]["template"]["metadata"]["labels"]
    assert objects["Deployment"]["spec"]["selector"]["matchLabels"] == labels
    assert objects["Service"]["spec"]["selector"] == labels
    assert objects["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"] == labels
    [port] = container["ports"]
    assert f"HEADGATE_PORT={port['containerPort']}" in (ROOT / "Dockerfile").read_text()
    assert objects["Service"]["spec"]["ports"][0]["targetPort"] == port["name"]
    assert objects["Service"]["spec"]["sessionAffinity"] == "None"
    probes = {name: container[name]["httpGet"] for name in ("startupProbe", "readinessProbe", "livenessProbe")}
    assert {each["port"] for each in probes.values()} == {port["name"]}
    assert [each["path"] for each in probes.values()] == ["/livez", "/healthz", "/livez"]
    written = {each["mountPath"] for each in container["volumeMounts"]}
    assert "HEADGATE_DATA_DIR=/tmp/" in (ROOT / "Dockerfile").read_text()
    assert written == {"/tmp"}


def test_the_units_give_a_gateway_time_to_stop() -> None:
    """With the settings of the environment file, which are settings."""
    settings = Settings.read(environment_of((SYSTEMD / "headgate.env").read_text()))
    service = unit("headgate.service")["Service"]
    assert int(service["TimeoutStopSec"]) > settings.drain_s + 2 * END_S
    assert service["KillMode"] == "mixed"
    assert service["ExecReload"] == "/bin/kill -HUP $MAINPID"
    assert unit("headgate.service")["Unit"]["Requires"] == "headgate.socket"
    assert unit("headgate.socket")["Socket"]["ListenStream"].startswith("127.0.0.1:")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd here")
def test_systemd_understands_the_units(tmp_path: Path) -> None:
    """Every section and setting. The program, its user and its folder are those of this machine for that."""
    for name in ("headgate.service", "headgate.socket"):
        text = (SYSTEMD / name).read_text().replace("/opt/shop/.venv/bin/headgate", sys.executable)
        (tmp_path / name).write_text(text.replace("/opt/shop\n", "/tmp\n").replace("User=headgate", "User=root"))
    done = subprocess.run(
        ["systemd-analyze", "verify", *(str(each) for each in sorted(tmp_path.iterdir()))],
        env={"SYSTEMD_UNIT_PATH": f"{tmp_path}:", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")


COMPOSE = ROOT / "examples/deploy/compose"


@pytest.mark.parametrize("name", ["gateway-1", "gateway-2"])
def test_a_composed_gateway_has_settings_that_headgate_accepts(name: str) -> None:
    """A misspelt or contradictory one would show at `docker compose up` only; `make compose` runs them."""
    text = (COMPOSE / "docker-compose.yml").read_text()
    asked = set(re.findall(r"\$\{(\w+)", text))
    assert asked == set(environment_of((COMPOSE / "env.example").read_text()))
    service = yaml.safe_load(re.sub(r"\$\{\w+[^}]*\}", "a-value-that-is-long-enough-for-a-secret", text))["services"][name]
    settings = Settings.read({}, {key: str(value) for key, value in service["environment"].items()})
    assert settings.proxies == 1
    assert int(service["stop_grace_period"].removesuffix("s")) > settings.drain_s


def test_the_composed_files_name_services_that_are_there() -> None:
    """A rename of one must not forget nginx, Prometheus or the consumers."""
    services = yaml.safe_load((COMPOSE / "docker-compose.yml").read_text())["services"]
    for file, named in {
        "nginx.conf": r"server ([\w-]+):",
        "prometheus.yml": r"([\w-]+):(?:8000|9100)",
        "headgate.toml": r'host = "([\w-]+)"',
        "grafana/datasource.yml": r"http://([\w-]+):",
    }.items():
        found = set(re.findall(named, (COMPOSE / file).read_text()))
        assert found
        assert found <= set(services), file
    mounted = [each.split(":")[0] for service in services.values() for each in service.get("volumes", []) if each.startswith(".")]
    assert all((COMPOSE / path).exists() for path in mounted)


# Secrets -------------------------------------------------------------------------------------------------------------

# Of Redis an address, with a password that is Redis' own affair.
_SECRET_NAMES = [each.name for each in fields(Settings) if each.metadata.get("secret") and each.name != "redis_url"]
_SECRETS = "|".join(f"HEADGATE_{name.upper()}|{name}" for name in _SECRET_NAMES)


def secrets_in(text: str) -> list[str]:
    """Return every value of a secret setting in a text; `$…` is filled in by the reader."""
    found = re.findall(rf"\b(?:{_SECRETS})[\"']?[ \t]*[=:][ \t]*[\"']?([^\s\"'`,;)|]*)", text)
    return [value for value in found if value and not value.startswith(("$", "os.environ", "…", "settings."))]


def shown_secrets() -> list[tuple[str, str]]:
    """Return the secrets in the documents and examples, each with its file."""
    places = [*ROOT.glob("docs/**/*.md"), *ROOT.glob("*.md"), ROOT / "docker-compose.yml"]
    places += [each for each in ROOT.glob("examples/**/*") if each.is_file() and "node_modules" not in each.parts]
    return [(str(each.relative_to(ROOT)), value) for each in places for value in secrets_in(each.read_text(errors="replace"))]


def test_every_secret_of_an_example_is_refused_by_a_gateway() -> None:
    """A gateway does not run with the public secret of an example. Secrets are shipped empty."""
    for place, value in shown_secrets():
        assert is_weak_secret(value.encode()), f"{place} shows the secret {value!r}, which a gateway takes"
    # Those of webhooks, in base64, are read by their own grammar.
    text = "".join(each.read_text(errors="replace") for each in ROOT.glob("examples/**/*") if each.suffix in (".toml", ".py"))
    assert re.findall(r"whsec_[A-Za-z0-9+/=]{8,}", text) == []
    assert secrets_in("HEADGATE_TOKEN_SECRET=abc\nadmin_key = 'd-e'\nHEADGATE_CONSOLE_KEY: ${KEY}") == ["abc", "d-e"]
    assert environment_of((SYSTEMD / "headgate.env").read_text())["HEADGATE_TOKEN_SECRET"] == ""


def test_the_pods_have_their_secrets_from_a_secret(container: Any) -> None:
    """Not from the manifest, which is in a repository."""
    secret = {f"HEADGATE_{name.upper()}" for name in (*_SECRET_NAMES, "redis_url")}
    named = {each["name"]: each.get("valueFrom", {}) for each in container["env"] if each["name"] in secret}
    assert named.keys() == {"HEADGATE_REDIS_URL", "HEADGATE_TOKEN_SECRET"}
    assert all("secretKeyRef" in source for source in named.values())


# Proxies -------------------------------------------------------------------------------------------------------------


def code_of(page: Path, language: str) -> str:
    """Return the example of a page in a language; it has one."""
    [code] = re.findall(rf"```{language}\n(.*?)```", page.read_text(), re.DOTALL)
    return str(code)


def sent_by_nginx(text: str) -> dict[str, str]:
    """Return the header fields that nginx sets, as its file says."""
    values = {
        "$http_host": "shop.example.com",
        "$scheme": "https",
        "$proxy_add_x_forwarded_for": "198.51.100.7, 203.0.113.9",
    }
    named = re.findall(r"proxy_set_header\s+(\S+)\s+(\S+);", text)
    return {name: values.get(value, value) for name, value in named if name not in ("Upgrade", "Connection")}


def sent_by_haproxy(text: str) -> dict[str, str]:
    sent = {"Host": "shop.example.com"}
    if "option forwardfor" in text:
        sent["X-Forwarded-For"] = "198.51.100.7, 203.0.113.9"
    return sent | dict(re.findall(r"http-request set-header (\S+) (\S+) if \{ ssl_fc \}", text))


def sent_by_caddy(text: str) -> dict[str, str]:
    """Its reverse_proxy sets all three by itself, and ignores a stranger's headers (caddyserver.com/docs, reverse_proxy)."""
    assert "reverse_proxy" in text
    own = {"X-Forwarded-For": "203.0.113.9", "X-Forwarded-Proto": "https", "X-Forwarded-Host": "shop.example.com"}
    return {"Host": "shop.example.com", **own}


PROXIES = {
    "nginx of compose": lambda: sent_by_nginx((COMPOSE / "nginx.conf").read_text()),
    "nginx": lambda: sent_by_nginx(code_of(OPERATIONS, "nginx")),
    "haproxy": lambda: sent_by_haproxy(code_of(OPERATIONS, "haproxy")),
    "caddy": lambda: sent_by_caddy(code_of(OPERATIONS, "caddy")),
}


@pytest.mark.parametrize("proxy", PROXIES)
def test_a_gateway_behind_a_proxy_of_the_examples_knows_page_and_client(proxy: str) -> None:
    """Its own page may connect, without a list of origins; the client has its own address, and not a claimed one."""
    sent = PROXIES[proxy]()
    environ = {"REMOTE_ADDR": "10.0.0.2", "wsgi.url_scheme": "http"} | {
        f"HTTP_{name.upper().replace('-', '_')}": value for name, value in sent.items()
    }
    settings = Settings(proxies=1, hosts=("shop.example.com",))
    Hosts(settings).check(environ)
    assert origin_check(settings)("https://shop.example.com", environ)
    assert not origin_check(settings)("http://shop.example.com", environ)
    assert not origin_check(settings)("https://evil.example", environ)
    assert address_of(environ, settings.proxies) == "203.0.113.9"


@pytest.mark.parametrize("proxy", PROXIES)
def test_what_comes_through_a_proxy_of_the_examples_sees_no_figures(proxy: str, settings: Settings) -> None:
    """Neither /metrics, open for Prometheus in the cluster, nor the connected clients; a probe sees its page."""
    headers = {name: value for name, value in PROXIES[proxy]().items() if name != "Host"}
    assert settings.metrics_open
    gate = RecordingGate(state={"ready": True, "bus": "up", "namespaces": {"n": {"bus": "up", "clients": 3}}})
    client = create_app(Settings(metrics_open=True, proxies=1), gate=gate).test_client()
    assert client.get("/metrics", headers=headers).status_code == 403
    assert client.get("/healthz", headers=headers).get_json() == {"ready": True, "missing": []}
    inside = {"REMOTE_ADDR": "10.0.0.3"}
    assert client.get("/metrics", environ_base=inside).status_code == 200
    assert client.get("/healthz", environ_base=inside).get_json() == {"ready": True, "missing": []}


def test_the_composed_nginx_keeps_figures_and_console_inside() -> None:
    """Even if the gateways behind it would show them."""
    text = (COMPOSE / "nginx.conf").read_text()
    for place in ("= /metrics", "^~ /console"):
        assert re.search(rf"location {re.escape(place)} {{ return 404; }}", text), place


# Pins ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "file",
    [*ROOT.glob("examples/**/*.yml"), *ROOT.glob("examples/**/*.yaml"), ROOT / "docker-compose.yml"],
    ids=lambda each: each.name,
)
def test_every_image_is_pinned_by_digest(file: Path) -> None:
    """By version for people, and by content. An image of the reader's own registry is the reader's."""
    for image in re.findall(r"^\s*image:\s*(\S+)", file.read_text(), re.MULTILINE):
        if not image.startswith("registry.example.com/"):
            assert re.fullmatch(r"[a-z0-9/-]+:v?\d+\.\d+\.\d+(-alpine)?@sha256:[0-9a-f]{64}", image), image


@pytest.mark.parametrize("file", sorted(ROOT.glob(".github/workflows/*.yml")), ids=lambda each: each.name)
def test_every_action_is_pinned_to_a_release(file: Path) -> None:
    """GitHub's own by the tag of one; another's by its commit, which cannot be moved. A branch is neither."""
    for action, version, comment in re.findall(r"uses:\s*([\w./-]+)@(\S+)(?:\s+#\s*(\S+))?", file.read_text()):
        if action.startswith("actions/"):
            assert re.fullmatch(r"v\d+(\.\d+)*|[0-9a-f]{40}", version), action
        else:
            assert re.fullmatch(r"[0-9a-f]{40}", version), action
            assert re.fullmatch(r"v\d+(\.\d+)*", comment), action
