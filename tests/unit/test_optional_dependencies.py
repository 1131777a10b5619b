"""The message about a missing package, which must name an extra that brings it."""

import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from gunicorn.config import Config

import headgate
from headgate.gunicorn import Worker
from headgate.installation import EXTRAS, MissingExtra, advice, install_command, needing

ROOT = Path(__file__).resolve().parents[2]
# PyJWT's own extra, which [server] asks for.
BROUGHT = {"pyjwt[crypto]": ["pyjwt", "cryptography"]}


def named(requirement: str) -> list[str]:
    name = re.split(r"[<>=! ]", requirement)[0].lower()
    return BROUGHT.get(name, [name])


def test_each_extra_brings_the_packages_that_are_told_to_be_missing_without_it() -> None:
    """pyproject.toml and extras.py say the same, in the names of installing and of importing."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    distributions = packages_distributions()
    for extra, packages in EXTRAS.items():
        brought = {name for requirement in project[extra] for name in named(requirement) if not name.startswith("headgate")}
        # Several distributions may share a package.
        told = {name.lower().replace("_", "-") for package in packages for name in distributions[package]}
        assert told == brought or (len(packages) == 1 and brought < told)
    assert set(project["all"]) == {f"headgate[{','.join(sorted(project.keys() - {'all'}))}]"}


@pytest.mark.parametrize(
    ("name", "extra", "brings"),
    [
        ("gevent", "server", "server"),
        ("click", "server", "server"),
        ("click", "consumers", "consumers"),
        ("jinja2.sandbox", "server", "consumers"),
        ("apprise", "consumers", "apprise"),
        ("cryptography", "push", "push"),
        ("jinja2", "push", "consumers"),
    ],
)
def test_a_missing_package_is_told_with_an_extra_that_brings_it(name: str, extra: str, brings: str) -> None:
    """The extra of the part that was asked for, if it has it; else another."""
    with (
        pytest.raises(MissingExtra, match=rf"^a part needs the package \w+: run {re.escape(install_command(brings))}$") as raised,
        needing(extra, "a part"),
    ):
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)
    assert raised.value.name == name


@pytest.mark.parametrize("name", ["shop", "shop.gevent", None])
def test_a_missing_module_of_somebody_else_is_not_touched(name: str | None) -> None:
    """Its author needs the traceback."""
    error = ModuleNotFoundError("No module", name=name)
    assert advice(error, "server") is None
    with pytest.raises(ModuleNotFoundError) as raised, needing("server", "a part"):
        raise error
    assert raised.value is error


def test_a_part_that_cannot_be_loaded_keeps_the_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    """A library of another version lacks a name: `from headgate import …` alone would drop that."""

    def lacks_a_name(*_: object) -> object:
        raise AttributeError("type object 'BaseParser' has no attribute 'parse_error'")

    monkeypatch.setattr(headgate, "import_module", lacks_a_name)
    with pytest.raises(ImportError, match=r"headgate\.Publisher cannot be loaded: .*parse_error") as caught:
        exec("from headgate import Publisher", {})
    assert isinstance(caught.value.__cause__, AttributeError)


def test_an_application_with_flask_alone_refuses_browsers() -> None:
    """It answers 501 without a package of a gateway (docs/operations/install.md). A traceback for each try would hide why."""
    program = (
        "import sys; from headgate.installation import EXTRAS\n"
        "for name in {*EXTRAS['server']} - {'click', 'flask'}: sys.modules[name] = None\n"
        "from flask import Flask; from headgate import Headgate\n"
        "app = Flask('shop'); gate = Headgate(app)\n"
        "answer = app.test_client().get('/socket.io/?EIO=4&transport=polling', headers={'Origin': 'http://localhost'})\n"
        "print(answer.status_code, answer.headers['Access-Control-Allow-Origin'], gate.ready()['ready'])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stdout == "501 http://localhost False\n", done.stderr


def test_everything_of_a_publisher_can_be_imported_without_a_gateway() -> None:
    """`Headgate` needs Flask, so it is imported by name alone."""
    program = (
        "import sys; from headgate.installation import EXTRAS\n"
        "for name in EXTRAS['server']: sys.modules[name] = None\n"
        "from headgate import *\n"
        "import headgate; print(Publisher.__name__, Identity.__name__, {'Headgate', 'Publisher'} <= set(dir(headgate)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stdout == "Publisher Identity True\n", done.stderr


def test_a_worker_of_gunicorn_names_the_extra_that_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the error that gunicorn shows in one line."""
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(RuntimeError, match=re.escape(f"needs the package prometheus_client: run {install_command('server')}")):
        Worker.check_config(Config(), None)
