"""`pip install headgate` and its extras, each into a fresh environment: with the lowest versions and the newest."""

import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import click
import pytest

from headgate.installation import install_command
from tests.support.checkout import DEADLINE_S, make_environment, users_environment
from tests.support.token_keys import SECRET
from tools.floors import floors

BASE = {"headgate", "msgspec", "redis"} | ({"async-timeout"} if sys.version_info < (3, 11, 3) else set())
HEAVY = ("gevent", "greenlet", "flask", "socketio", "engineio", "websockets", "click", "jinja2", "structlog", "hiredis", "jwt")
PUBLISH = """
import sys
from importlib.metadata import distributions
from headgate import NotSerializable, Publisher
with Publisher(sys.argv[1]) as publisher:
    offsets = [publisher.publish("orders.1.shipped", {"carrier": "UPS"}).offset]
    offsets += [receipt.offset for receipt in publisher.publish_many([("a", 1), ("b", 2)])]
    publisher.revoke(user="ben")
    try:
        publisher.publish("a", object())
    except NotSerializable:
        print("offsets", *offsets)
print("heavy", *sorted(set(sys.argv[2].split()) & set(sys.modules)))
print("installed", *sorted(found.name.lower() for found in distributions()))
"""

Install = Callable[..., Path]


@pytest.fixture(scope="module")
def install(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Install:
    """Make a separate environment and install the wheel into it: `install("lowest")`, `install("newest", "[consumers]")`."""

    def install(versions: str, extras: str = "") -> Path:
        folder = tmp_path_factory.mktemp(versions)
        binaries = make_environment(folder / "env")
        (folder / "floors.txt").write_text("\n".join(sorted(set(floors())) if versions == "lowest" else []))
        words = ["--quiet", "--disable-pip-version-check", "--constraint", str(folder / "floors.txt"), f"{wheel}{extras}"]
        code, _, err = run(binaries / "pip", "install", *words)
        assert code == 0, err
        return binaries

    return install


def run(*words: str | Path, environment: Mapping[str, str] | None = None, folder: Path | None = None) -> tuple[int, str, str]:
    ended = subprocess.run(
        [str(word) for word in words],
        cwd=folder or Path(words[0]).parent, env=users_environment(environment or {}), stdin=subprocess.DEVNULL,
        capture_output=True, text=True,
        timeout=DEADLINE_S,
    )  # fmt: skip
    return ended.returncode, ended.stdout, ended.stderr


@pytest.mark.parametrize("versions", [pytest.param("lowest", marks=pytest.mark.nightly), "newest"])
def test_a_publisher_installs_three_distributions(install: Install, redis_url: str, tmp_path: Path, versions: str) -> None:
    """It publishes to a real Redis, imports no part of the gateway, and the error names the extra that brings one.

    `headgate publish` needs nothing beyond click, nor does `headgate token` with a secret. Other commands name the package and
    the extra that they lack.
    """
    binaries = install(versions)

    code, out, err = run(binaries / "python", "-c", PUBLISH, redis_url, " ".join(HEAVY))

    assert code == 0, err
    assert out.splitlines() == ["offsets 1 2 3", "heavy", f"installed {' '.join(sorted(BASE))}"]

    assert run(binaries / "headgate", "--version") == (
        1, "", f"headgate: the headgate command needs the package click: run {install_command('server')}\n",
    )  # fmt: skip
    for line, told in {
        "from headgate import Headgate": "headgate.Headgate needs the package flask",
        "from headgate.socketio import Server": "headgate.socketio needs the package socketio",
    }.items():
        code, _, err = run(binaries / "python", "-c", line)
        assert (code, err.splitlines()[-1]) == (
            1,
            f"headgate.installation.MissingExtra: {told}: run {install_command('server')}",
        )
    if versions == "newest":  # what the commands say is the same
        check_commands(binaries, tmp_path / "with-click", redis_url)


def check_commands(binaries: Path, folder: Path, redis_url: str) -> None:
    """Check, beside a click of another package, that a command without its extra names it in one line."""
    folder.mkdir()
    (folder / "click").symlink_to(Path(click.__file__).parent)
    (folder / "headgate.toml").write_text('[consumers.mail]\ntype = "email"\npatterns = ["#"]\n')
    (folder / "keys.json").write_text('{"k": {"alg": "RS256", "key": "-"}}')
    environment = {"PYTHONPATH": str(folder), "HEADGATE_REDIS_URL": redis_url, "HEADGATE_TOKEN_SECRET": SECRET.decode()}
    code, out, err = run(binaries / "headgate", "token", "--user", "ana", environment=environment, folder=folder)
    assert (code, out.count("."), err) == (0, 2, "")  # a secret needs no package
    environment |= {"HEADGATE_TOKEN_KEYS": str(folder / "keys.json")}
    for words, package, extra in (
        (("serve",), "gevent", "server"),
        (("demo",), "gevent", "server"),
        (("tail", "#"), "hiredis", "server"),
        (("token", "--user", "ana"), "jwt", "server"),
        (("consume", "--check"), "jinja2", "consumers"),
    ):
        code, out, err = run(binaries / "headgate", *words, environment=environment, folder=folder)
        assert (code, out) == (1, "")
        assert err == f"headgate: headgate {words[0]} needs the package {package}: run {install_command(extra)}\n"
    code, out, err = run(binaries / "headgate", "publish", "a", "1", environment=environment, folder=folder)
    assert (code, out[:9]) == (0, "offset 4 "), err


@pytest.mark.nightly
def test_the_extra_of_consumers_brings_no_gateway(install: Install, tmp_path: Path, redis_url: str) -> None:
    """They run without gevent, Flask and python-socketio, and `headgate serve` names the missing packages."""
    binaries = install("newest", "[consumers]")
    (tmp_path / "headgate.toml").write_text(
        '[consumers.mail]\ntype = "email"\npatterns = ["#"]\nhost = "localhost"\n'
        'mail_from = "a@example.com"\nto = ["b@example.com"]\n'
    )
    environment = {"HEADGATE_REDIS_URL": redis_url}

    code, out, err = run(binaries / "headgate", "consume", "--check", environment=environment, folder=tmp_path)
    assert code == 0, err
    assert "mail" in out
    gateway = ("gevent", "flask", "socketio", "jwt", "simple_websocket")
    find = f"from importlib.util import find_spec; print([name for name in {gateway} if find_spec(name)])"
    assert run(binaries / "python", "-c", find)[1] == "[]\n"
    code, _, err = run(binaries / "headgate", "serve", environment=environment, folder=tmp_path)
    assert (code, err) == (1, f"headgate: headgate serve needs the package gevent: run {install_command('server')}\n")
