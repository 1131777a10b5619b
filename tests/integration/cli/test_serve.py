"""`headgate serve` up to its listening port, in the test's own process: its application, and faults at the start.

test_redis_faults.py has one of these faults as the process reports it, tests/integration/test_flask_extension.py an application
that is served.
"""

import os
import socket
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import structlog

from headgate.auth.identity import Handshake
from headgate.cli.serve import run as serve
from headgate.cli.starting import say_ready
from headgate.errors import InvalidRequest, Unauthorized
from headgate.settings.settings import Settings
from headgate.workers.application import load_application
from tests.support.unstarted_gateway import know_revocations

Refused = Callable[..., list[str]]


@pytest.fixture
def refused(
    in_shop_folder: Path, redis_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Refused]:
    """Start the server, which must fail: `refused("shop:nothing", HEADGATE_PORT="x")`; returns its lines on standard error."""
    kept = dict(os.environ)
    # The log of this process goes where the tests want it.
    monkeypatch.setattr(structlog, "configure", lambda **_: None)

    def start(target: str | None = None, **settings: str) -> list[str]:
        assert serve({"HEADGATE_REDIS_URL": redis_url, "HEADGATE_PORT": "0", **settings}, target) == 1
        out, err = capsys.readouterr()
        assert "hunter2" not in out + err
        assert "ready" not in out
        return str(err).splitlines()

    yield start
    # The command line puts its options into the environment, where applications read them.
    os.environ.clear()
    os.environ.update(kept)


def one_clear_line(lines: list[str], advice: str | None = None) -> str:
    """Return the one line of a server that could not start; with `advice`, a second one has the remedy."""
    line, *rest = lines
    assert line.startswith("headgate: ")
    assert len(rest) == (advice is not None)
    assert advice is None or advice in rest[0]
    return line


# Applications ------------------------------------------------------------------------------------------------------------


def test_a_factory_is_called_and_its_gateway_lets_nobody_in(
    in_shop_folder: Path, patched_here: None, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An application that knows nothing of Headgate, with a health page, and closed until it has an authenticator."""
    monkeypatch.setenv("HEADGATE_REDIS_URL", redis_url)
    app = load_application("bare:make_app", Settings())
    gate = app.extensions["headgate"]
    know_revocations(gate)

    with pytest.raises(Unauthorized):
        gate.identify(Handshake("notifications", {}, {}))
    rules = {rule.rule: rule.endpoint for rule in app.url_map.iter_rules()}
    assert {"/which", "/healthz"} <= rules.keys()
    assert app.view_functions[rules["/which"]]() == "made by a factory"
    gate.close()


def test_the_name_app_is_taken_when_only_a_module_is_named(in_shop_folder: Path) -> None:
    """As Flask itself does."""
    assert load_application("shop", Settings()) is load_application("shop:app", Settings())


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("shopp:app", "no module named 'shopp'"),
        ("shop.front:app", "no module named 'shop.front'"),
        ("shop:nothing", "has no 'nothing'"),
        ("shop:app.gate", "has no 'app.gate'"),
        ("shop:number", "is of type int; expected a Flask application"),
        ("shop:needs_an_argument", "needs arguments"),
        ("shop:returns_nothing", "returned None; expected a Flask application: does it end with `return app`?"),
        ("shop:of_django", "start `headgate serve` without it"),
        (":app", "MODULE:APPLICATION"),
        ("../shop:app", "MODULE:APPLICATION"),
        ("shop.py", "no module named 'shop.py'"),
        ("", "MODULE:APPLICATION"),
    ],
)
def test_a_name_that_is_no_application_is_told(in_shop_folder: Path, target: str, says: str) -> None:
    """The error names the target, and the form that would have been right."""
    with pytest.raises(InvalidRequest) as refused:
        load_application(target, Settings())
    assert says in refused.value.message


def test_an_address_that_is_taken_starts_nothing(refused: Refused, tmp_path: Path) -> None:
    """Nor does one that is not ours (no machine has 192.0.2.1, RFC 5737). The line says how to choose another."""
    folder = tmp_path / "data"
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = {"HEADGATE_PORT": str(other.getsockname()[1]), "HEADGATE_REDIS_URL": "", "HEADGATE_DATA_DIR": str(folder)}
        line = one_clear_line(refused("shop:app", **taken))
    assert line.startswith(f"headgate: cannot listen on 127.0.0.1:{taken['HEADGATE_PORT']}: ")
    assert "--port" in line
    assert not folder.exists()
    assert "cannot listen on 192.0.2.1:" in one_clear_line(refused(HEADGATE_HOST="192.0.2.1"))


def test_a_module_that_the_application_lacks_keeps_its_traceback(refused: Refused) -> None:
    """The fault is in the application, and its author needs the place."""
    with pytest.raises(ModuleNotFoundError, match="a_module_that_is_not_there") as raised:
        refused("lacking:app")
    places = traceback.extract_tb(raised.tb)
    assert [(Path(place.filename).name, place.lineno) for place in places][-1] == ("lacking.py", 1)


# Settings ----------------------------------------------------------------------------------------------------------------


def test_every_wrong_setting_is_told_at_once(refused: Refused) -> None:
    """One run shows all there is to fix; a secret is not shown."""
    head, *faults = refused(
        HEADGATE_PORT="eighty", HEADGATE_QUEUE_FRAMES="1", HEADGATE_PROT="1", HEADGATE_REDIS_URL="http://:hunter2@x"
    )

    assert head == "headgate: 4 settings are wrong:"
    assert [fault.split("=")[0].split(" is ")[0].strip() for fault in faults] == [
        "HEADGATE_PORT", "HEADGATE_PROT", "HEADGATE_QUEUE_FRAMES", "HEADGATE_REDIS_URL",
    ]  # fmt: skip
    assert "did you mean HEADGATE_PORT?" in faults[1]


def test_wrong_settings_of_an_application_are_told_likewise(refused: Refused) -> None:
    head, *faults = refused("misconfigured:app")

    assert head == "headgate: 2 settings are wrong:"
    assert "HEADGATE_QUEUE_FRAMES=0" in faults[0]
    assert "HEADGATE_WHAT is not a setting" in faults[1]


# Redis -------------------------------------------------------------------------------------------------------------------


def test_a_redis_that_is_too_old_is_one_clear_line(refused: Refused, answer: Callable[[bytes], str]) -> None:
    body = b"# Server\r\nredis_version:6.2.14\r\n"
    url = answer(b"$%d\r\n%b\r\n" % (len(body), body)).replace(":hunter2@", "")
    line = one_clear_line(refused(HEADGATE_REDIS_URL=url))

    assert "6.2.14" in line
    assert "7.0" in line


# Ready -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("nobody", "namespace", "says"),
    [
        (True, "notifications", "; nobody may connect: give `Headgate` an authenticator, or set HEADGATE_TOKEN_SECRET, "),
        (False, "notifications", "; open it, and see its events with: headgate tail '#'\n"),
        (False, "shop", "headgate tail '#' --namespace shop\n"),
    ],
)
def test_the_ready_line_says_what_to_do_next(capsys: pytest.CaptureFixture[str], nobody: bool, namespace: str, says: str) -> None:
    """Open the page, and watch the events; or let a user in first."""
    say_ready(Settings(namespaces=(namespace,)), ("127.0.0.1", 8000), nobody=nobody)
    told = capsys.readouterr().out
    assert told.startswith("headgate: ready at http://127.0.0.1:8000/ (headgate ")
    assert says in told
