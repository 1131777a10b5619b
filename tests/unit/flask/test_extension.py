"""The Flask extension in a process without a gateway: a worker of a web server, Celery, cron. It has no Redis."""

import asyncio
import subprocess
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import pytest
from flask import Flask, current_app, url_for

from headgate.auth.identity import Handshake, Identity, PageRequest
from headgate.auth.repair import read_regrants
from headgate.errors import BusUnavailable, Forbidden, InvalidTopic, NotSerializable, SchemaViolation, UnknownNamespace
from headgate.events.event import JsonText
from headgate.flask.extension import SOCKET_PATH, Headgate
from headgate.installation import install_command
from headgate.settings.settings import Settings
from headgate.transport.http_answers import Answer
from headgate.transport.http_routes import RoutedRequest
from tests.support.schema_files import write
from tests.support.service_links import SERVICE_LINKS
from tests.support.small_redis import SmallRedis


@pytest.fixture(autouse=True)
def _unpatched(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process whose standard library is not patched."""
    monkeypatch.setattr("headgate.flask.extension.is_patched", lambda: False)


@pytest.fixture
def app() -> Flask:
    app = Flask("shop")
    Headgate(app, settings=Settings(redis_url="redis://127.0.0.1:1", namespaces=("notifications",)))
    return app


@pytest.fixture
def gate(app: Flask) -> Headgate:
    found: Headgate = app.extensions["headgate"]
    return found


def test_each_event_has_its_own_outcome(gate: Headgate) -> None:
    """In order: an invalid event is reported in its place, and of the others that Redis does not answer."""
    outcomes = gate.publish_each(
        [("orders.1", 1, None), ("orders..1", 1, None), ("orders.1", {"total": object()}, None), ("orders.2", 2, "a")]
    )
    assert [type(outcome) for outcome in outcomes] == [BusUnavailable, InvalidTopic, NotSerializable, BusUnavailable]
    assert isinstance(outcomes[2], NotSerializable)
    assert outcomes[2].path == "$.total"
    gate.close()


def test_a_process_without_browsers_publishes_nothing_in_the_loop(gate: Headgate) -> None:
    """Each request waits for its own answer."""
    assert gate.publishes_at_once(Handshake("notifications", {}, {})) is None
    with pytest.raises(RuntimeError, match="gevent"):
        gate.begin_publish(("orders.1", JsonText(b"1"), None), "notifications", lambda _: None, by="ana")


def test_a_namespace_that_is_not_served_is_named(gate: Headgate) -> None:
    for publish in (lambda: gate.publish("orders.1", 1, namespace="other"), lambda: gate.publish_each([], "other")):
        with pytest.raises(UnknownNamespace, match="other"):
            publish()


@pytest.mark.parametrize("settings", [{}, "headgate.toml", 0])
def test_settings_of_another_kind_are_refused_when_the_extension_is_made(settings: object) -> None:
    """An empty mapping too, in place of which the environment would count."""
    with pytest.raises(TypeError, match=f"settings: expected Settings, got {type(settings).__name__}"):
        Headgate(settings=settings)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ("ana", r"expected a function of \(.*\), got str"),
        (asyncio.sleep, r"expected a function of \(.*\), not a coroutine"),
        (lambda: None, "this one has another signature: too many positional arguments"),
        (lambda one, two, three, four: None, "this one has another signature: missing a required argument: '(two|four)'"),
    ],
)
def test_a_function_that_cannot_be_called_is_refused_where_it_is_registered(gate: Headgate, wrong: Any, reason: str) -> None:
    """A coroutine function would allow nobody anything, and another signature would fail for the first client."""
    for register in (gate.authenticate, gate.authorize, gate.on_request("orders.count")):
        with pytest.raises(TypeError, match=reason):
            register(wrong)


def test_a_decorated_function_counts_with_the_signature_of_its_decorator(gate: Headgate) -> None:
    """It may bring further arguments."""

    def with_session(function: Callable[[Any, str], Any]) -> Callable[[Any], Any]:
        return wraps(function)(lambda handshake: function(handshake, "session"))

    gate.authenticate(with_session(lambda handshake, session: None))


def test_an_extension_without_an_application_says_what_to_do() -> None:
    with pytest.raises(RuntimeError, match="call init_app"):
        Headgate().publish("orders.1", 1)


def test_an_application_with_an_authenticator_lets_somebody_in(app: Flask, gate: Headgate) -> None:
    """Whatever the settings say."""
    assert gate.lets_nobody_in
    gate.authenticate(lambda handshake: Identity("ana"))
    assert not gate.lets_nobody_in


def test_variables_for_a_service_called_headgate_are_no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """As Kubernetes sets them in a pod with a Service of that name."""
    for name, value in SERVICE_LINKS.items():
        monkeypatch.setenv(name, value)
    app = Flask("shop")
    app.config["HEADGATE_PORT"] = 9000

    assert Headgate(app).settings == Settings(port=9000)


def test_a_browser_is_refused_where_none_can_be_served(app: Flask, gate: Headgate) -> None:
    """Each time, with what to use; other requests are the application's, and the gateway is not ready.

    It does not advise to patch the process, since the same server would refuse the browser then too.
    """
    app.add_url_rule("/", view_func=lambda: "hello")
    client = app.test_client()
    for _ in range(2):
        refused = client.get(SOCKET_PATH, query_string="EIO=4&transport=polling", headers={"Origin": "http://localhost"})
        assert (refused.status_code, refused.headers["Cache-Control"]) == (501, "no-store")
        assert refused.headers["Access-Control-Allow-Origin"] == "http://localhost"
        assert refused.json is not None
        assert refused.json["error"]["code"] == "not_implemented"
        assert "headgate serve" in refused.json["error"]["message"]
        assert "patch" not in refused.json["error"]["message"]
    assert client.get("/").text == "hello"
    assert gate.ready()["ready"] is False


def test_a_patched_process_without_the_extra_publishes_and_refuses_browsers() -> None:
    """As in a gevent worker of gunicorn, uWSGI or Celery, with gevent and Flask but without the gateway's other packages."""
    code = (
        "from gevent import monkey\nmonkey.patch_all()\nimport sys\nsys.modules['structlog'] = None\n"
        "from flask import Flask\nfrom headgate import BusUnavailable, Headgate\n"
        "app = Flask('shop')\napp.config['HEADGATE_REDIS_URL'] = 'redis://127.0.0.1:1'\ngate = Headgate(app)\n"
        "print(app.test_client().get('/socket.io/').status_code)\nprint(gate.ready()['error'])\n"
        "try:\n    gate.publish('orders.1', 1)\nexcept BusUnavailable:\n    print('tried')"
    )

    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True).stdout

    assert said.splitlines() == ["501", f"serving browsers needs the package structlog: run {install_command('server')}", "tried"]


@pytest.mark.parametrize(
    ("rule", "is_own"), [("/api/v1/stream", True), ("/api/v1/<name>", True), ("/api/v1/stream/", True), ("/<path:page>", False)]
)
def test_a_route_of_the_application_is_no_stream_of_ours(app: Flask, gate: Headgate, rule: str, *, is_own: bool) -> None:
    """It was there before. One for any path leaves the stream to us, and every path below Socket.IO's is ours in any case."""
    app.add_url_rule(rule, view_func=lambda **_: "shop")
    client = app.test_client()
    assert (client.get("/api/v1/stream", follow_redirects=True).text == "shop") is is_own
    assert client.get("/socket.io/stream").status_code == 501


@pytest.mark.parametrize(
    ("options", "place"), [({"subdomain_matching": True}, "api"), ({"host_matching": True}, "api.shop.example")]
)
def test_a_stream_of_the_application_below_one_of_its_hosts_is_no_stream_of_ours(options: dict[str, bool], place: str) -> None:
    """By subdomains or by whole hosts."""
    app = Flask("shop", static_folder=None, **options)  # type: ignore[arg-type]
    app.config["SERVER_NAME"] = "shop.example"
    Headgate(app, settings=Settings())
    where = {"host" if "host_matching" in options else "subdomain": place}
    app.add_url_rule("/api/v1/stream", view_func=lambda: "shop", **where)  # type: ignore[arg-type]
    assert app.test_client().get("/api/v1/stream", base_url="http://api.shop.example").text == "shop"


@pytest.mark.parametrize(
    ("options", "place"),
    [({"subdomain_matching": True}, "api"), ({"subdomain_matching": True}, ""), ({"host_matching": True}, "api.shop.example")],
)
def test_the_client_for_a_script_tag_is_served_to_each_host_of_the_application(options: dict[str, bool], place: str) -> None:
    """By subdomains or by whole hosts; a page of one of them has an address that is answered."""
    app = Flask("shop", static_folder=None, **options)  # type: ignore[arg-type]
    app.config["SERVER_NAME"] = "shop.example"
    Headgate(app, settings=Settings())
    where = {"host" if "host_matching" in options else "subdomain": place}
    app.add_url_rule("/", view_func=lambda: url_for("headgate_files", name="none.js"), **where)  # type: ignore[arg-type]
    client, own = app.test_client(), f"http://{place.removesuffix('.shop.example')}.shop.example".replace("//.", "//")
    for url in ("/headgate/none.js", client.get("/", base_url=own).text):
        assert "Headgate has no file" in client.get(url, base_url=own).text


def _answer(request: RoutedRequest) -> Answer | None:
    return None


def test_routes_below_an_application_are_those_in_front_of_which_it_has_nothing(app: Flask, gate: Headgate) -> None:
    """A wrapped application sees every request."""
    gate.add_route("POST", "/one", _answer)
    assert set(gate.routes(app)) == {("POST", "/one")}
    inner = app.wsgi_app
    app.wsgi_app = lambda environ, start_response: inner(environ, start_response)  # type: ignore[method-assign]
    assert not gate.routes(app)


@pytest.mark.parametrize(("query", "is_ours"), [("EIO=4&transport=polling", True), ("", False)])
def test_the_slash_behind_the_path_may_be_missing(app: Flask, gate: Headgate, query: str, is_ours: bool) -> None:
    """Some clients leave it out. A request without a version of Engine.IO is the application's."""
    answer = app.test_client().get("/socket.io", query_string=query)
    assert answer.status_code == (501 if is_ours else 404)


def test_events_are_held_against_the_schemas_of_the_configuration(tmp_path: Path) -> None:
    """A worker without a gateway refuses the same events as the gateway."""
    app = Flask("shop")
    app.config["HEADGATE_REDIS_URL"] = "redis://127.0.0.1:1"
    app.config["HEADGATE_SCHEMAS"] = str(write(tmp_path / "schemas", {"orders.#.json": {"type": "integer"}}))
    app.config["HEADGATE_SCHEMA_CHECK"] = "refuse"
    gate = Headgate(app)
    with pytest.raises(SchemaViolation):
        gate.publish("orders.1", "one")
    outcomes = gate.publish_each([("orders.1", "one", None), ("orders.1", 1, None)])
    assert [type(outcome) for outcome in outcomes] == [SchemaViolation, BusUnavailable]
    gate.close()


def test_clients_are_asked_about_in_any_process(gate: Headgate) -> None:
    """Where no gateway lives there are none; explicit grants are kept for those that come."""
    redis = SmallRedis()
    gate._find_clients()._client = redis.client()
    assert (gate.clients().total, gate.clients().clients, gate.clients().silent) == (0, (), ())
    assert gate.client("s") is None
    assert gate.disconnect(user="ana").count == 0
    assert gate.send("s", "a.b", 1) is False
    assert gate.regrant("ana", subscribe=["a.#"]).count == 0
    assert set(read_regrants(redis.client())) == {"ana"}
    gate.close()


def test_authorize_counts_however_early_it_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before there is an application, or when the gateway is there already. It runs in a context of the application."""
    for module in ("headgate.flask.extension", "headgate.transport.socketio_face"):
        monkeypatch.setattr(f"{module}.is_patched", lambda: True)
    gate = Headgate(settings=Settings(redis_url="redis://127.0.0.1:1"))

    @gate.authorize
    def nothing(identity: Identity, pattern: str, action: str) -> bool:
        return False

    gate.init_app(Flask("shop"))
    with pytest.raises(Forbidden):
        gate.check_authorized(Identity("ana"), "a", "replay")
    gate.authorize(lambda identity, pattern, action: (pattern, current_app.name) == ("a", "shop"))
    gate.check_authorized(Identity("ana"), "a", "replay")
    with pytest.raises(Forbidden):
        gate.check_authorized(Identity("ana"), "b", "replay")
    gate.close()


def test_a_request_has_one_function(gate: Headgate) -> None:
    """A second one would answer or not by the order of imports; a name is no pattern."""
    gate.on_request("orders.price")(lambda request: 1)
    with pytest.raises(ValueError, match=r"on_request\('orders.price'\): another function answers it"):
        gate.on_request("orders.price")(lambda request: 2)
    with pytest.raises(InvalidTopic):
        gate.on_request("orders.*")(lambda request: 3)


def test_a_function_is_registered_as_it_is(gate: Headgate) -> None:
    """Code and tests of the application may call it directly."""

    @gate.on_request("orders.price")
    def price(request: PageRequest) -> object:
        return request.data

    assert price(PageRequest("orders.price", 7, Identity("ana"), "notifications", "r1")) == 7


def test_an_extension_follows_the_application_of_a_factory_that_is_called_again() -> None:
    """With its settings and its functions. The connections for the one before are closed."""
    gate = Headgate()

    def create_app(namespace: str) -> Flask:
        app = Flask("shop")
        app.config.update(HEADGATE_REDIS_URL="redis://127.0.0.1:1", HEADGATE_NAMESPACES=namespace)
        gate.init_app(app)

        @gate.on_request("orders.price")
        def price(request: PageRequest) -> object:
            return namespace

        return app

    create_app("one")
    before = gate._find_publisher()
    create_app("one")
    assert gate._find_publisher() is before
    create_app("two")
    assert gate._find_publisher() is not before
    assert gate._answerers["orders.price"](PageRequest("orders.price", 1, Identity("ana"), "two", "r1")) == "two"


def test_an_extension_that_was_closed_serves_the_next_application(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its gateway had stopped listening."""
    for module in ("headgate.flask.extension", "headgate.transport.socketio_face"):
        monkeypatch.setattr(f"{module}.is_patched", lambda: True)
    gate = Headgate(Flask("shop"), settings=Settings(redis_url="redis://127.0.0.1:1"))
    before = gate.gateway
    gate.close()
    assert gate.gateway is before
    gate.init_app(Flask("shop"))
    assert gate.gateway is not before
    gate.close()
