"""The files of examples/deploy: what they say fits the gateway, and their parts fit each other."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from configparser import ConfigParser
from pathlib import Path
from typing import Any

import pytest
import yaml

from headgate.settings import Settings

ROOT = Path(__file__).parents[2]
SYSTEMD = ROOT / "examples/deploy/systemd"
# cli/workers.py: a worker may take so much longer than its drain.
END_S = 15


def unit(name: str) -> ConfigParser:
    """Return a unit file."""
    parsed = ConfigParser(interpolation=None, strict=True)
    parsed.optionxform = str  # type: ignore[assignment, method-assign]
    parsed.read_string((SYSTEMD / name).read_text())
    return parsed


def environment_of(text: str) -> dict[str, str]:
    """Return what an environment file sets."""
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return dict(line.split("=", 1) for line in lines)


@pytest.fixture(scope="module")
def objects() -> dict[str, Any]:
    """The objects for Kubernetes, by kind."""
    text = (ROOT / "examples/deploy/kubernetes/headgate.yaml").read_text()
    return {each["kind"]: each for each in yaml.safe_load_all(text)}


@pytest.fixture(scope="module")
def container(objects: dict[str, Any]) -> Any:
    """The one container of a pod."""
    [container] = objects["Deployment"]["spec"]["template"]["spec"]["containers"]
    return container


@pytest.fixture(scope="module")
def settings(container: Any) -> Settings:
    """The settings of the container, with its secrets, and the address of its pod, in their places."""
    secrets = {"redis-url": "rediss://redis.internal:6380/0", "token-secret": bytes(range(24)).hex()}
    environ: dict[str, str] = {}
    for each in container["env"]:
        source = each.get("valueFrom", {})
        if "fieldRef" in source:
            assert source["fieldRef"] == {"fieldPath": "status.podIP"}
            environ[each["name"]] = "10.0.0.7"
        elif source:
            environ[each["name"]] = secrets[source["secretKeyRef"]["key"]]
        else:
            environ[each["name"]] = each["value"].replace("$(POD_IP)", environ.get("POD_IP", ""))
    settings = Settings.read(environ)
    assert settings.internal_address is not None
    return settings


def test_the_deployment_gives_a_gateway_time_to_stop(objects: dict[str, Any], container: Any, settings: Settings) -> None:
    """preStop, drain, and the end, within the pod's period of grace; another pod serves before."""
    spec = objects["Deployment"]["spec"]
    waited_s = int(container["lifecycle"]["preStop"]["exec"]["command"][1])
    assert spec["template"]["spec"]["terminationGracePeriodSeconds"] > waited_s + settings.drain_s + END_S
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
    assert int(service["TimeoutStopSec"]) > settings.drain_s + END_S
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
    assert settings.internal_address == (name, 8100)
    assert settings.proxies == 1
    assert int(service["stop_grace_period"].removesuffix("s")) > settings.drain_s


def test_the_composed_files_name_services_that_are_there() -> None:
    """Whoever renames one must not forget nginx, Prometheus or the consumers."""
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
