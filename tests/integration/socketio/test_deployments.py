"""The usual servers of python-socketio and Flask-SocketIO: each carries our transport, or says that it does not.

`make deployments` brings the packages (deployments.txt) into a separate environment. test_beside_stock.py has, in the test
command, the servers that are dependencies of ours.
"""

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.integration.transport.clients import WebSocket
from tests.support.certificates import Authority
from tests.support.redis_process import RedisProcess
from tests.support.redis_server import wait_until
from tests.support.served_chat import (
    POLLING,
    UPGRADED,
    WEBSOCKET,
    Guest,
    Served,
    Told,
    commanded,
    evening,
    serving,
    talk_over_tls,
)

pytestmark = pytest.mark.nightly
PYTHON = os.environ.get("DEPLOYMENTS_PYTHON", "")
CHAT, FLASK_CHAT = "tests.support.chat:application('headgate')", "tests.support.flask_chat:application('headgate')"
Way = Callable[[Authority], AbstractContextManager[Served]]


def gunicorn(worker: str, application: str, *, tls: bool = False) -> Way:
    """Return a way to serve, which is gunicorn with a worker class, as its documentation and Flask-SocketIO's have it."""

    def serve(authority: Authority) -> AbstractContextManager[Served]:
        options = ("--certfile", "--keyfile") if tls else ()
        paths = [each for pair in zip(options, authority.issue("127.0.0.1"), strict=False) for each in pair]
        command = [PYTHON, "-m", "gunicorn", "-k", worker, "-w", "1", "--no-control-socket", *paths]
        return commanded(lambda address: [*command, "-b", address, application], scheme="https" if tls else "http")

    return serve


def flask_run(kind: str, *, tls: bool = False, env: dict[str, str] | None = None) -> Way:
    def serve(authority: Authority) -> AbstractContextManager[Served]:
        certificate = authority.issue("127.0.0.1") if tls else ()
        return commanded(
            lambda address: [PYTHON, "-m", "tests.support.flask_chat", kind, address.rpartition(":")[2], *certificate],
            env=env,
            scheme="https" if tls else "http",
        )

    return serve


WORKS: dict[str, Way] = {
    "gevent-websocket's handler": lambda _: serving("gevent-websocket", python=PYTHON),
    "gunicorn -k gevent": gunicorn("gevent", CHAT),
    "gunicorn -k gevent, TLS": gunicorn("gevent", CHAT, tls=True),
    "gunicorn -k gevent_pywsgi": gunicorn("gevent_pywsgi", CHAT),
    "gunicorn -k GeventWebSocketWorker": gunicorn("geventwebsocket.gunicorn.workers.GeventWebSocketWorker", CHAT),
    "gunicorn -k GeventWebSocketWorker, TLS": gunicorn("geventwebsocket.gunicorn.workers.GeventWebSocketWorker", CHAT, tls=True),
    "Flask-SocketIO, run": flask_run("headgate"),
    "Flask-SocketIO, run with TLS": flask_run("headgate", tls=True),
    "Flask-SocketIO, gunicorn -k gevent": gunicorn("gevent", FLASK_CHAT),
    "Flask-SocketIO, gunicorn -k GeventWebSocketWorker": gunicorn(
        "geventwebsocket.gunicorn.workers.GeventWebSocketWorker", FLASK_CHAT
    ),
}


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def on_stock() -> Iterator[dict[tuple[str, ...], dict[str, Told]]]:
    with serving("stock") as stock:
        yield {transports: evening(stock.url, transports) for transports in (WEBSOCKET, POLLING, UPGRADED)}


@pytest.mark.parametrize("way", WORKS.values(), ids=WORKS.keys())
def test_the_chat_is_the_same_as_on_python_socketio(
    way: Way, authority: Authority, on_stock: dict[tuple[str, ...], dict[str, Told]]
) -> None:
    with way(authority) as served:
        if served.url.startswith("https"):
            talk_over_tls(served.url, authority.ca_file)
            on_stock = {POLLING: on_stock[POLLING]}
        for transports, told in on_stock.items():
            assert evening(served.url, transports, ca_file=authority.ca_file) == told, (transports, served.errors)


REFUSING: dict[str, tuple[Way, str]] = {
    "gunicorn -k sync": (gunicorn("sync", CHAT), "gunicorn with another worker class"),
    "flask run": (
        lambda _: commanded(
            lambda address: [PYTHON, "-m", "flask", "--app", FLASK_CHAT, "run", "--port", address.rpartition(":")[2]]
        ),
        "Werkzeug's development server carries no WebSocket",
    ),
    "uWSGI": (
        lambda _: commanded(
            lambda address: [
                str(Path(PYTHON).with_name("pyuwsgi")), "--http-socket", address, "--gevent", "50", "--master", "--lazy-apps",
                "--pythonpath", ".", "--module", "tests.support.chat:application()",
            ]
        ),
        "uWSGI carries no WebSocket",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("way", "reason"), REFUSING.values(), ids=REFUSING.keys())
def test_a_server_that_carries_no_websocket_is_named(
    way: Way, reason: str, authority: Authority, on_stock: dict[tuple[str, ...], dict[str, Told]]
) -> None:
    """The WebSocket is answered 501 with the reason, and one error in the log has it."""
    with way(authority) as served:
        for _ in range(2):
            with pytest.raises(AssertionError, match=r"HTTP/1\.1 501 "):
                WebSocket(urlsplit(served.url).port or 0)
        served.said(reason)
        assert served.errors.count("a client was refused") == 1
        if reason.startswith("Werkzeug"):
            assert evening(served.url, POLLING) == on_stock[POLLING]


@pytest.mark.parametrize(
    "command",
    [
        ("-m", "gunicorn", "-k", "gthread", "--no-control-socket", "headgate.socketio:Server()"),
        ("-m", "gunicorn", "-k", "sync", "--no-control-socket", "headgate.socketio:Server()"),
        ("-c", "import eventlet; eventlet.monkey_patch(); import headgate.socketio; headgate.socketio.Server()"),
        ("-c", "import headgate.socketio; headgate.socketio.Server()"),
    ],
    ids=["gunicorn -k gthread", "gunicorn -k sync", "eventlet", "threads"],
)
def test_a_process_that_gevent_has_not_patched_is_refused_at_its_start(command: tuple[str, ...]) -> None:
    """The application does not load, and the message has the remedy."""
    with commanded(lambda _: [PYTHON, *command], ends=True) as served:
        assert "headgate.socketio needs gevent's cooperative sockets" in served.errors, served.errors
        assert served.process.returncode


def test_a_worker_of_a_task_queue_emits_by_the_message_queue(tmp_path: Path) -> None:
    """The same class without an application, in an unpatched process."""
    emit = "SocketIO(message_queue=sys.argv[1]).emit('from the worker', namespace='/chat')"
    emit = f"import sys; from headgate.socketio.flask import SocketIO; {emit}"
    with (
        RedisProcess(tmp_path / "redis") as redis,
        flask_run("headgate", env={"CHAT_REDIS": redis.url})(Authority(tmp_path)) as served,
    ):
        guest = Guest(served.url, WEBSOCKET, {"name": "ana"})
        guest.until("welcome")

        def emitted() -> bool:
            subprocess.run([PYTHON, "-c", emit, redis.url], check=True, timeout=60)
            return "from the worker" in [name for name, _ in guest.told]

        wait_until(emitted, "the server listening to Redis")
        guest.leave()


@pytest.mark.parametrize("value", ["float('nan')", "{'price': [float('inf')]}", "[b'x', float('nan')]"])
@pytest.mark.parametrize("send", ["emit('e', {})", "send({})"])
def test_a_worker_of_a_task_queue_hears_of_numbers_that_are_not_json(value: str, send: str) -> None:
    """Where it emits them, because the browsers that they would disconnect are other processes'. The queue is not reached."""
    emit = f"SocketIO(message_queue='redis://127.0.0.1:1').{send.format(value)}"
    emit = f"from headgate.socketio.flask import SocketIO; {emit}"
    ended = subprocess.run([PYTHON, "-c", emit], capture_output=True, text=True, timeout=60, check=False)
    assert ended.stderr.rstrip().splitlines()[-1].startswith("ValueError: NaN and infinities are not JSON")


def test_the_commands_of_flask_load_an_application(tmp_path: Path) -> None:
    """Flask-SocketIO would choose threads there, which we refuse."""
    command = [PYTHON, "-m", "flask", "--app", FLASK_CHAT, "routes"]
    with commanded(lambda _: command, ends=True) as served:
        assert served.process.returncode == 0, served.errors


@pytest.mark.parametrize(
    ("application", "reason"), [(CHAT, "expected a Flask application"), (FLASK_CHAT, "has Flask-SocketIO at /socket.io/")]
)
def test_the_worker_class_of_gateways_refuses_an_application_of_the_transport_alone(application: str, reason: str) -> None:
    """It serves Flask applications with a gateway; the words say so."""
    command = [PYTHON, "-m", "gunicorn", "-k", "headgate.gunicorn.Worker", "--no-control-socket"]
    with commanded(lambda address: [*command, "-b", address, application], ends=True) as served:
        assert reason in served.errors, served.errors
