"""The Flask extension in an application: served, under `flask run`, in a worker, and with and without gevent's patches.

Most of it runs in the test's own process, which is like one without browsers, because gevent has not patched it.
"""

from __future__ import annotations

import gzip
import json
import logging
import os
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import cast

import pytest
from flask import Flask, session
from flask.cli import routes_command, shell_command

from headgate import BusUnavailable, Handshake, Headgate, Identity
from headgate.auth.repair import read_revoked
from headgate.errors import UnknownNamespace
from headgate.redis.client import open_client
from headgate.runtime.importing import import_string
from headgate.services.publisher import Publisher
from headgate.settings.settings import Settings
from tests.support.gateway_process import GatewayProcess
from tests.support.held_port import HeldPort
from tests.support.raw_client import RawClient
from tests.support.redis_server import record_private_redis
from tests.support.unstarted_gateway import know_revocations

DEADLINE_S = 60


@pytest.fixture
def shop(in_shop_folder: Path, redis_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Flask]:
    monkeypatch.setenv("HEADGATE_REDIS_URL", redis_url)
    app = cast(Flask, import_string("shop:app", "MODULE:APPLICATION"))
    yield app
    app.extensions["headgate"].close()


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment in which no Redis is set, and none runs in the data folder."""
    monkeypatch.delenv("HEADGATE_REDIS_URL", raising=False)
    monkeypatch.setenv("HEADGATE_DATA_DIR", str(tmp_path))


def get(gateway: GatewayProcess, path: str) -> str:
    with urllib.request.urlopen(gateway.url + path, timeout=DEADLINE_S) as answer:
        text: str = answer.read().decode()
    return text


# Served ------------------------------------------------------------------------------------------------------------------


def test_an_application_is_served_with_the_gateway_inside_until_it_is_stopped(shop_folder: Path, redis_url: str) -> None:
    """Its routes answer, its authenticator decides, its events reach browsers; SIGTERM ends it with 0 and frees its port.

    app.config sets a limit unless the environment does, and browsers are notified.
    """
    with closing(HeldPort()) as held:  # or another process might have it before we look
        settings = {"HEADGATE_REDIS_URL": redis_url, "HEADGATE_PORT": str(held.port), "HEADGATE_QUEUE_FRAMES": "30"}
        with GatewayProcess(shop_folder, settings, ("shop:app",)) as gateway:
            with RawClient(gateway.url, {"subscriptions": [{"pattern": "hello.*"}]}) as client:
                assert client.welcome["user"] == "ana"
                limits = client.welcome["limits"]
                assert (limits["max_subscriptions"], limits["queue_frames"]) == (5, 30)
                answer = json.loads(get(gateway, "/hello"))
                ((topic, data, meta),) = client.wait_for_events(1)
            assert (topic, data, meta["offset"]) == ("hello.world", {"from": "a view"}, answer["offset"])
            assert answer["same"] is True
            check_browser_client(gateway)

            with pytest.raises(OSError, match="in use"):
                socket.create_server(("127.0.0.1", held.port))
            assert gateway.stop() == 0
            with socket.create_server(("127.0.0.1", held.port)):
                pass


def check_browser_client(gateway: GatewayProcess) -> None:
    """Check that the browser client is served beside the application, compressed; a page needs no other file."""
    asked = urllib.request.Request(f"{gateway.url}/headgate/headgate.js", headers={"Accept-Encoding": "gzip"})
    with urllib.request.urlopen(asked, timeout=DEADLINE_S) as answer:
        assert (answer.status, answer.headers["Content-Encoding"]) == (200, "gzip")
        assert b"headgate" in gzip.decompress(answer.read())
    assert "headgate" in get(gateway, "/headgate/headgate.js")


def test_the_environment_wins_over_app_config(shop_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The operator of the application decides, and a namespace in app.config alone is not served."""
    app = Flask(__name__)
    app.config["HEADGATE_NAMESPACES"] = "configured"
    with closing(Headgate(app)) as gate, pytest.raises(UnknownNamespace, match="this gateway serves configured"):
        gate.publish("a", 1, namespace="other")
    monkeypatch.setenv("HEADGATE_NAMESPACES", "chosen")
    with closing(Headgate(app)) as gate, pytest.raises(UnknownNamespace, match="this gateway serves chosen"):
        gate.publish("a", 1, namespace="configured")


class FlaskRun(GatewayProcess):
    """`flask run` of shop.py, as its developer starts it."""

    def __init__(self, folder: Path, settings: dict[str, str]) -> None:
        super().__init__(folder, settings)
        self.command = (sys.executable, "-m", "flask", "--app", "shop:app", "run", "--port", "0")

    def start(self, deadline_s: float = DEADLINE_S) -> FlaskRun:
        self._launch()
        self.url = self.wait_for_line(r"Running on (http://\S+)", deadline_s)[1]
        return self


def test_under_flask_run_the_routes_work_and_browsers_are_refused(shop_folder: Path, redis_url: str) -> None:
    """A view gets a receipt of Redis, pages get the browser client, and a browser that connects gets an error with a remedy."""
    with FlaskRun(shop_folder, {"HEADGATE_REDIS_URL": redis_url}) as running:
        assert json.loads(get(running, "/hello"))["offset"] == 1
        check_browser_client(running)
        for transport in ("polling", "websocket"):
            with pytest.raises(urllib.error.HTTPError) as refused:
                get(running, f"/socket.io/?EIO=4&transport={transport}")
            with refused.value as answer:
                assert (answer.code, answer.headers["Cache-Control"]) == (501, "no-store")
                assert "`headgate serve --workers auto yourmodule:app`" in answer.read().decode()
        assert json.loads(get(running, "/hello"))["offset"] == 2


# In a process that gevent has not patched ----------------------------------------------------------------------------------


def test_flask_commands_work_with_an_application_that_has_the_extension(shop: Flask) -> None:
    """`flask routes` and `flask shell` import it and need nothing of the gateway."""
    runner = shop.test_cli_runner()
    shown = runner.invoke(routes_command)
    assert (shown.exit_code, "/hello" in shown.output) == (0, True)

    shown = runner.invoke(shell_command, input="print('in the shell', app.extensions['headgate'].ready()['ready'])")
    assert (shown.exit_code, "in the shell False" in shown.output) == (0, True)


def test_the_test_client_of_an_application_needs_no_gevent(shop: Flask, redis_url: str) -> None:
    """A test of the application's own runs as without the extension; its events are in the log."""
    client = shop.test_client()
    assert [client.get("/hello").get_json()["offset"] for _ in range(2)] == [1, 2]
    assert client.get("/nothing").status_code == 404
    with closing(Publisher(redis_url)) as publisher:
        assert publisher.publish("a", 1).offset == 3


def test_a_browser_that_comes_again_and_again_is_logged_once(shop: Flask, caplog: pytest.LogCaptureFixture) -> None:
    """Each time it is refused; one line in the log has the remedy."""
    client = shop.test_client()
    with caplog.at_level(logging.ERROR):
        for transport in ("polling", "polling", "websocket"):
            assert client.get(f"/socket.io/?EIO=4&transport={transport}").status_code == 501

    (told,) = [record.getMessage() for record in caplog.records]
    assert told.startswith("A browser was refused: ")
    assert "headgate serve --workers auto yourmodule:app" in told


def test_an_application_publishes_and_revokes_without_a_gateway(shop: Flask, redis_url: str) -> None:
    """To all, to one user, into a namespace by either of its names."""
    gate = shop.extensions["headgate"]
    assert [
        gate.publish("a", 1).offset,
        gate.publish("a", 2, user="ana").offset,
        gate.publish("a", 3, namespace="/notifications").offset,
    ] == [1, 2, 3]
    gate.revoke(user="ben")
    with closing(open_client(redis_url)) as client:
        assert [member for member, *_ in read_revoked(client)] == ["user:ben"]


def test_beside_a_gateway_the_application_finds_its_private_redis(tmp_path: Path, nowhere: None, redis_url: str) -> None:
    """`headgate serve` in one terminal, `flask shell` in another; no setting."""
    record_private_redis(tmp_path, redis_url)
    with closing(Headgate(Flask(__name__))) as gate:
        assert gate.publish("a", 1).offset == 1


def test_an_authenticator_reads_the_session_of_flask(patched_here: None, redis_url: str) -> None:
    """Also from the few variables of a request that a gateway keeps of a connection."""
    app = Flask("shop")
    app.secret_key = "for the test"
    settings = Settings(redis_url=redis_url)
    with closing(Headgate(app, authenticator=lambda handshake: Identity(session["user"]), settings=settings)) as gate:
        know_revocations(gate)
        with app.test_client() as browser, browser.session_transaction() as signed_in:
            signed_in["user"] = "ana"
        cookie = browser.get_cookie("session")
        assert cookie is not None
        assert gate.identify(Handshake("notifications", {}, {"HTTP_COOKIE": f"session={cookie.value}"})).user == "ana"


NEEDS_A_GATEWAY: list[Callable[[Headgate], object]] = [
    lambda gate: gate.start(),
    lambda gate: gate.gateway,
    lambda gate: gate.events("#"),
    lambda gate: gate.identify(Handshake("notifications", {}, {})),
]


@pytest.mark.parametrize("use", NEEDS_A_GATEWAY, ids=["start", "gateway", "events", "identify"])
def test_without_gevent_patched_in_the_error_says_what_to_do(use: Callable[[Headgate], object]) -> None:
    """Blocking sockets would stop every client at once, so a call that needs the gateway is refused, with both ways out."""
    with pytest.raises(RuntimeError) as refused:
        use(Headgate(Flask(__name__)))
    assert "headgate serve yourmodule:app" in str(refused.value)
    assert "monkey.patch_all()" in str(refused.value)


def test_without_any_redis_a_publish_says_how_to_get_one(nowhere: None) -> None:
    """The import was fine, and only now is a Redis needed."""
    with pytest.raises(BusUnavailable, match="HEADGATE_REDIS_URL"):
        Headgate(Flask(__name__)).publish("a", 1)


def test_without_any_redis_an_application_that_serves_browsers_says_how_to_get_one(nowhere: None, patched_here: None) -> None:
    """At its start. It brings none itself: `headgate serve` does."""
    with pytest.raises(BusUnavailable, match=r"HEADGATE_REDIS_URL.*headgate serve"):
        Headgate(Flask(__name__))


OWN_SERVER = """
from gevent import monkey
monkey.patch_all()
import gevent
from flask import Flask
from headgate import Headgate
from headgate.node.presence import presence
looks = []
looked = presence.store.any_process
def counted(*given):
    looks.append(given)
    return looked(*given)
presence.store.any_process, presence.IDLE_CHECK_S, presence.LAST_RETRY_S = counted, 0.1, 0.01
gate = Headgate(Flask(__name__))
gate.start()
with gevent.Timeout(60):
    while not gate.gateway.not_ready() or len(looks) < 9:
        gevent.sleep(0.01)
lines = gate.gateway.not_ready()
gate.close()
print(*lines, sep="\\n")
"""


def test_an_own_server_that_never_had_redis_says_so_once(tmp_path: Path) -> None:
    """It runs on, as its other pages may. Each part says once that Redis is out of reach, and the bus adds the remedy."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HEADGATE_")}
    ended = subprocess.run(
        [sys.executable, "-c", OWN_SERVER],
        env={**environment, "HEADGATE_REDIS_URL": "redis://:hunter2@127.0.0.1:1/0", "NO_COLOR": "1"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert ended.returncode == 0, ended.stderr
    wrong, advice = ended.stdout.splitlines()[-2:]
    assert wrong == "not ready, clients are refused for now: the bus is unavailable: 127.0.0.1:1: connection refused"
    assert advice.startswith("start Redis there, or set HEADGATE_REDIS_URL to another")
    lines = (ended.stdout + ended.stderr).splitlines()
    for event, says in (("bus down", "start Redis there"), ("presence out of reach", "connection refused")):
        (told,) = [line for line in lines if event in line]
        assert says in told
    assert "Traceback" not in ended.stderr
    assert "hunter2" not in ended.stdout + ended.stderr


# In separate processes --------------------------------------------------------------------------------------------------------


def python(code: str, **environment: str) -> list[str]:
    """Run a program to its end; return the lines that it wrote."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("HEADGATE_")}
    ended = subprocess.run(
        [sys.executable, "-c", code], env={**inherited, **environment}, capture_output=True, text=True, timeout=DEADLINE_S
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.splitlines()


def test_to_import_the_application_starts_nothing_and_reaches_nothing(shop_folder: Path) -> None:
    """No thread, no greenlet, no gevent, no connection to Redis, because a worker imports it and may never publish."""
    with socket.create_server(("127.0.0.1", 0)) as redis:
        redis.settimeout(0)
        lines = python(
            f"import sys, threading; sys.path.insert(0, {str(shop_folder)!r})\n"
            "from shop import app, gate\nassert not gate.ready()['ready']\n"
            "assert app.test_client().get('/nothing').status_code == 404\n"
            "heavy = {'gevent', 'greenlet', 'socketio', 'engineio', 'prometheus_client', 'websockets'} & set(sys.modules)\n"
            "print(threading.active_count(), sorted(heavy))",
            HEADGATE_REDIS_URL=f"redis://127.0.0.1:{redis.getsockname()[1]}/0",
        )
        with pytest.raises(BlockingIOError):
            redis.accept()

    assert lines == ["1 []"]


def test_an_application_that_was_imported_before_gevent_patched_serves_browsers_after(redis_url: str) -> None:
    """As when a process manager loads the application first and patches its workers."""
    lines = python(
        "from flask import Flask\nfrom headgate import Headgate\napp = Flask('x'); gate = Headgate(app)\n"
        "from gevent import monkey; monkey.patch_all()\nimport gevent\n"
        "assert app.test_client().get('/socket.io/?EIO=4&transport=polling').status_code == 200\n"
        "with gevent.Timeout(30):\n"
        "    while not gate.ready()['ready']: gevent.sleep(0.01)\n"
        "print(gate.publish('a', 1).offset); gate.close()\n",
        HEADGATE_REDIS_URL=redis_url,
    )

    assert "1" in lines


def test_in_a_program_of_ones_own_the_extension_works_after_patching(redis_url: str) -> None:
    """The first request starts the bus; publish gives the receipt of Redis."""
    lines = python(
        "from gevent import monkey; monkey.patch_all()\nfrom flask import Flask\nfrom headgate import Headgate\n"
        "from headgate.runtime.metrics import PUBLISHED_ELSEWHERE, totals\nfrom headgate.services.publisher import Receipt\n"
        "app = Flask('x'); gate = Headgate(app)\n"
        "assert app.extensions['headgate'] is gate\n"
        "assert not gate.ready()['ready']\n"
        "assert app.test_client().get('/').status_code == 404\n"
        "import gevent\n"
        "with gevent.Timeout(30):\n"
        "    while not gate.ready()['ready']: gevent.sleep(0.01)\n"
        "print('offsets', gate.publish('a', 1).offset, gate.publish('a', 1, namespace='/notifications').offset)\n"
        # Another server, as far as this gateway can see, because its feed never meets the epoch of this receipt.
        "gate.gateway.publisher.publish = lambda *_, **__: Receipt('another', 1, False, 'id')\n"
        "gate.publish('a', 2)\n"
        "with gevent.Timeout(30):\n"
        "    while not totals(PUBLISHED_ELSEWHERE).get('notifications'): gevent.sleep(0.01)\n"
        "gate.close(); gate.close()\n",
        HEADGATE_REDIS_URL=redis_url,
    )

    closed = lines[lines.index("offsets 1 2") + 1 :]
    assert not [line for line in closed if "bus down" in line], "it was closed, not lost"
    with closing(Publisher(redis_url)) as publisher:
        assert publisher.publish("a", 1).offset == 3
