"""The files around the code: locks, containers, continuous integration. Read, not run, so no engine is needed."""

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from headgate.consumers.process.config import read_consumers
from headgate.settings.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
# A checkout and the image have all extras but Apprise.
LOCKED_EXTRAS = ("server", "consumers", "embedded")
LOCKS = ("requirements.txt", "requirements-dev.txt", "requirements-audit.txt", "requirements-docs.txt")
# An image is named by its purpose, and pinned by its content.
DIGEST = "@sha256:[0-9a-f]{64}"
PIN = re.compile(r"^([a-z0-9-]+)==\S+ \\$")


def normal(name: str) -> str:
    """A package's name as PyPI compares it, without extras and version."""
    return re.sub(r"[-_.]+", "-", re.split(r"[\[<>=!~; ]", name)[0]).lower()


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    parsed = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    assert isinstance(parsed, dict)
    return parsed


def pins(lock: str) -> list[str]:
    return [match[1] for line in (ROOT / lock).read_text().splitlines() if (match := PIN.match(line))]


def copied_into_the_image() -> list[str]:
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    return [source for line in lines if line.startswith("COPY ") and "--from" not in line for source in line.split()[1:-1]]


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_has_pins_with_hashes_and_comments_alone(lock: str) -> None:
    """One that names an index, a folder or a loose version is another on the next machine; one without a hash fails there."""
    for line in (ROOT / lock).read_text().splitlines():
        assert PIN.match(line) or re.fullmatch(r"    --hash=sha256:[0-9a-f]{64}( \\)?|\s*#.*|", line), line
        assert "://" not in line
    blocks = re.split(r"^(?=[a-z0-9-]+==)", (ROOT / lock).read_text(), flags=re.MULTILINE)[1:]
    assert len(blocks) == len(pins(lock)) > 5
    assert all("--hash=sha256:" in block for block in blocks)


def test_every_dependency_of_the_package_is_pinned() -> None:
    """A dependency added without `make requirements` would be missing on a fresh machine only."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    wanted = {normal(name) for names in (project["dependencies"], *(extras[name] for name in LOCKED_EXTRAS)) for name in names}
    assert wanted <= set(pins("requirements.txt"))


def test_every_test_tool_is_pinned() -> None:
    """The same for requirements-dev.in."""
    lines = (ROOT / "requirements-dev.in").read_text().splitlines()
    assert {normal(line) for line in lines if line and line[0] not in "#-"} <= set(pins("requirements-dev.txt"))


def test_continuous_integration_runs_exactly_make_test() -> None:
    """A test that passes there passes here."""
    script = (ROOT / ".ci" / "run").read_text().splitlines()
    assert script[-1] == "exec make test </dev/null"
    assert (ROOT / ".ci" / "run").stat().st_mode & 0o111


PORTS = {"gateway": ["127.0.0.1:8000:8000"], "mail": ["127.0.0.1:8025:8025"]}


def test_a_composed_service_is_reached_on_loopback_or_not_at_all(compose: dict[str, Any]) -> None:
    """The demo is not for the street, the catcher takes mail from anyone who reaches it, and Redis has no password."""
    services = compose["services"]
    assert {name: service["ports"] for name, service in services.items() if "ports" in service} == PORTS
    assert services["redis"]["networks"] == ["bus"]
    assert compose["networks"]["bus"] == {"internal": True}
    assert all(service["cap_drop"] == ["ALL"] for service in services.values())


def test_the_composed_redis_keeps_the_log_and_never_evicts(compose: dict[str, Any]) -> None:
    """An evicted log entry would be an event lost in silence."""
    command = compose["services"]["redis"]["command"]
    options = dict(zip(command[1::2], command[2::2], strict=True))
    assert options["--appendonly"] == "yes"
    assert options["--maxmemory-policy"] == "noeviction"
    assert "redis-data:/data" in compose["services"]["redis"]["volumes"]


def test_the_composed_gateway_has_settings_that_headgate_accepts(compose: dict[str, Any]) -> None:
    """A misspelt or contradictory setting would show at `docker compose up` only."""
    environment = compose["services"]["gateway"]["environment"]
    assert all(isinstance(value, str) for value in environment.values())
    settings = Settings.read(environment)
    assert (settings.demo, settings.dev, settings.host) == (True, False, "0.0.0.0")


@pytest.mark.parametrize("name", ["gateway", "consumers"])
def test_a_composed_process_of_ours_is_healthy_by_its_own_page_and_cannot_write(compose: dict[str, Any], name: str) -> None:
    """The image asks the gateway's page, which is not that of the consumers."""
    service = compose["services"][name]
    command = service.get("command", [])
    port = command[command.index("--listen") + 1].rpartition(":")[2] if "--listen" in command else "8000"
    assert f"http://127.0.0.1:{port}/healthz" in service["healthcheck"]["test"][-1]
    assert service["depends_on"] == {"redis": {"condition": "service_healthy"}}
    assert service["read_only"] is True


def test_the_composed_consumers_have_a_file_that_headgate_accepts(compose: dict[str, Any], tmp_path: Path) -> None:
    """The mail server that it names is the catcher beside it, on a network without other hosts."""
    consumers = compose["services"]["consumers"]
    [mounted] = consumers["configs"]
    assert mounted["target"] == consumers["environment"]["HEADGATE_CONFIG"]
    file = tmp_path / "headgate.toml"
    file.write_text(compose["configs"][mounted["source"]]["content"])

    settings, specs = read_consumers(str(file), consumers["environment"])

    assert settings.redis_url == compose["services"]["gateway"]["environment"]["HEADGATE_REDIS_URL"]
    assert [spec.options.host for spec in specs] == ["mail"]
    assert compose["networks"]["mail"] == {"internal": True}
    assert [name for name, service in compose["services"].items() if "mail" in service["networks"]] == ["consumers", "mail"]


def test_the_image_runs_as_nobody_in_particular_from_pinned_bases() -> None:
    """No root, no `latest`, and the gateway itself is process 1."""
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    bases = [line.split()[1] for line in lines if line.startswith("FROM")]
    assert all(re.fullmatch(r"(node:24|python:3\.11)(-\w+)+" + DIGEST, base) for base in bases), bases
    last_stage = lines[max(index for index, line in enumerate(lines) if line.startswith("FROM")) :]
    assert "USER 10001:10001" in last_stage
    assert 'CMD ["headgate", "serve"]' in last_stage


def test_the_image_sees_every_file_that_it_copies() -> None:
    """The ignore file lists the copied ones; a new missing COPY fails at build time only."""
    allowed = {line[1:].split("/")[0] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert {source.rstrip("/").split("/")[0] for source in copied_into_the_image()} == allowed


def test_the_image_has_what_its_build_of_the_browser_client_refers_to() -> None:
    """A configuration that extends one outside of the copied files breaks the build of the image and no other."""
    copied = {source.rstrip("/") for source in copied_into_the_image()}
    for file in (ROOT / "web").glob("tsconfig*.json"):
        extended = (file.parent / json.loads(file.read_text())["extends"]).resolve().relative_to(ROOT)
        assert extended.parts[0] in copied, f"{file.name} extends {extended}"


# Versions with known holes, by image, to which a later edit must not go back.
KNOWN_HOLES = {
    "redis": (8, 2, 8),  # July 2026: remote code execution in all lines below it
    "axllent/mailpit": (1, 28, 3),  # CVE-2026-23829
}


@pytest.mark.parametrize("image", KNOWN_HOLES)
def test_no_composed_image_is_older_than_its_last_known_hole(compose: dict[str, Any], image: str) -> None:
    """The audit found both pinned to versions with published ones."""
    (named,) = [service["image"] for service in compose["services"].values() if service.get("image", "").startswith(image + ":")]
    version = re.search(r"(\d+)\.(\d+)\.(\d+)", named)
    assert version is not None
    assert tuple(map(int, version.groups())) >= KNOWN_HOLES[image]


def test_updates_of_everything_that_is_pinned_are_looked_for_every_week() -> None:
    """A pin without an update grows old with its holes."""
    parsed = yaml.safe_load((ROOT / ".github" / "dependabot.yml").read_text())
    watched = {update["package-ecosystem"]: update for update in parsed["updates"]}
    assert set(watched) == {"pip", "npm", "docker", "docker-compose", "github-actions"}
    assert all((update["directory"], update["schedule"]["interval"]) == ("/", "weekly") for update in watched.values())
