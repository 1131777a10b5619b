"""An application before it is served: its additions, and its own parts. No gateway is started."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from flask import Flask

from headgate import Headgate
from headgate.auth.identity import Handshake, Identity
from headgate.errors import InvalidRequest, SettingsError
from headgate.runtime.loop import Signal, sleep, spawn
from headgate.settings.settings import Settings
from headgate.workers.application import async_views, load_application, made_ready, start_gateway

KEY = "the-admin-key-of-this-test-0123456789"


def status(app: Flask, path: str = "/console", **headers: str) -> int:
    """The answer to a request for a path of an application that was made ready."""
    return made_ready(app, "app").test_client().get(path, headers=headers).status_code


def test_an_application_is_given_a_console_only_with_a_key() -> None:
    """And a health page in any case, with metrics that a proxy is refused."""
    assert status(Flask(__name__)) == 404
    assert status(Flask(__name__), "/livez") == 200
    assert status(Flask(__name__), "/metrics", Forwarded="for=192.0.2.7") == 403


@pytest.mark.parametrize("attach", [Headgate, lambda app: None])
def test_the_settings_of_app_config_count(attach: Callable[[Flask], object]) -> None:
    """Whether the application attaches the gateway itself or leaves that to `headgate serve`."""
    app = Flask(__name__)
    app.config["HEADGATE_ADMIN_KEY"] = KEY
    attach(app)
    assert status(app) == 200


def test_an_app_config_that_changed_after_the_gateway_read_it_is_refused() -> None:
    """Otherwise a secret that is set one line too late would have no effect, and nobody could sign in."""
    app = Flask(__name__)
    gate = Headgate(app)
    app.config.update(HEADGATE_ADMIN_KEY=KEY, OTHER=1)
    for use in (lambda: made_ready(app, "app"), lambda: gate.publish("orders.1", 1), gate.clients):
        with pytest.raises(SettingsError) as refused:
            use()
        assert refused.value.faults == ("HEADGATE_ADMIN_KEY in app.config changed after Headgate(app) read it: set it before",)


def test_a_setting_of_app_config_that_serve_needs_before_the_import_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as the Redis that other services publish to, while the gateway has started a private one."""
    config = "HEADGATE_REDIS_URL='redis://127.0.0.1:1', HEADGATE_PORT=8001, HEADGATE_QUEUE_FRAMES=90"
    (tmp_path / "late.py").write_text(f"from flask import Flask\napp = Flask(__name__)\napp.config.update({config})\n")
    monkeypatch.syspath_prepend(str(tmp_path))

    with pytest.raises(SettingsError, match=r"HEADGATE_REDIS_URL in app\.config comes too late") as refused:
        load_application("late:app", Settings(), {"HEADGATE_PORT"})

    assert len(refused.value.faults) == 1


def test_a_console_of_the_application_stays() -> None:
    """The application has a page there already."""
    app = Flask(__name__)
    app.config["HEADGATE_ADMIN_KEY"] = KEY
    app.add_url_rule("/console", view_func=lambda: ("mine", 418))
    assert status(app) == 418


@pytest.mark.parametrize(("admin", "found"), [("read", 200), (None, 404)])
def test_an_authenticator_of_the_application_lets_into_the_console_whom_it_marks(admin: Any, found: int) -> None:
    """Without a key; it is asked with the request's own cookie."""

    def who(handshake: Handshake) -> Identity | None:
        return Identity("ann", admin=admin) if "app=ann" in handshake.environ.get("HTTP_COOKIE", "") else None

    app = Flask(__name__)
    gate = Headgate(app, authenticator=who, settings=Settings(redis_url="redis://127.0.0.1:1/0"))
    gate.identify = lambda handshake: who(handshake) or Identity("nobody")  # type: ignore[method-assign]
    ready = made_ready(app, "app").test_client()
    assert ready.get("/console").status_code == 404
    ready.set_cookie("app", "ann")
    assert ready.get("/console").status_code == found


def test_an_application_that_is_no_flask_application_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="the chat is of type function; expected a Flask application"):
        made_ready(lambda environ, start_response: [], "the chat")


def test_flask_socketio_at_the_gateways_path_is_refused() -> None:
    """Its clients would reach the gateway without an error."""
    app = Flask("shop")
    app.extensions["socketio"] = SimpleNamespace(sockio_mw=SimpleNamespace(engineio_path="/socket.io/"))

    with pytest.raises(InvalidRequest, match=r"has Flask-SocketIO at /socket.io/, where the gateway's clients come"):
        made_ready(app, "'shop:app'")


def test_async_views_are_named_at_the_start() -> None:
    """One request at a time works, as in every trial, so the operator would learn of it under load only."""

    async def ship() -> str:
        return "shipped"

    app = Flask("shop")
    app.add_url_rule("/", "page", lambda: "hello")
    assert async_views(app) == []
    for name in ("a", "b", "c", "d"):
        app.add_url_rule(f"/{name}", name, ship)

    (line,) = async_views(app)

    assert line.startswith("async views (a, b, c and 1 more) fail when their requests overlap")


@pytest.mark.parametrize("missing", ["was_up", "tried", "was_known"])
@pytest.mark.parametrize("asked_to_stop", [False, True])
def test_a_gateway_takes_connections_once_it_can_admit_clients(missing: str, asked_to_stop: bool) -> None:
    """It follows its namespaces, is registered, and has read the revocations, without which it refuses every login; a stop
    ends the wait.
    """
    signals = {name: Signal() for name in ("was_up", "tried", "was_known")}
    asked = Signal()
    gate: Any = SimpleNamespace(start=lambda: None, gateway=SimpleNamespace(not_ready=list))
    gate.gateway.namespaces = {"n": SimpleNamespace(bus=SimpleNamespace(was_up=signals["was_up"]))}
    gate.gateway.cluster = SimpleNamespace(table=SimpleNamespace(tried=signals["tried"]))
    gate.gateway.access = SimpleNamespace(revocations=SimpleNamespace(was_known=signals["was_known"]))
    returned: list[list[str]] = []
    starting = spawn(lambda: returned.append(start_gateway(gate, asked)))
    for name, signal in signals.items():
        if name != missing:
            signal.set()
    for _ in range(5):
        sleep(0)
    assert returned == []
    (asked if asked_to_stop else signals[missing]).set()
    starting.join()
    assert returned == [[]]
