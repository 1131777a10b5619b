"""The Flask extension and `headgate serve`: an application of one's own, and everything that can be wrong at the start."""

from __future__ import annotations

import gzip
import json
import os
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from headgate.auth.revocation import read_revoked
from headgate.cli.serve import _load as load_application
from headgate.errors import InvalidRequest
from headgate.publisher import Publisher
from headgate.redis.client import call, open_client
from headgate.redis.embedded import EmbeddedRedis
from headgate.settings import Settings
from tests.support.gateway_process import GatewayProcess
from tests.support.held_port import HeldPort
from tests.support.raw_client import RawClient

DEADLINE_S = 60

APP = """
from flask import Flask
from headgate import Headgate, Identity

app = Flask(__name__)
gate = Headgate()

@gate.authenticate
def who(handshake):
    return Identity("ana", subscribe=("#",))

gate.init_app(app)

@app.get("/hello")
def hello():
    receipt = app.extensions["headgate"].publish("hello.world", {"from": "a view"})
    return {"offset": receipt.offset, "same": app.extensions["headgate"] is gate}

def make_app():
    other = Flask("other")
    other.get("/which")(lambda: "made by a factory")
    return other

def needs_an_argument(name):
    return app

number = 7
"""


@dataclass
class Finished:
    """A command that has ended."""

    code: int
    out: str
    err: str


Run = Callable[..., Finished]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with an application in shop.py, one that lacks a module of its own, and one that configures itself badly."""
    (tmp_path / "shop.py").write_text(APP)
    (tmp_path / "lacking.py").write_text("import a_module_that_is_not_there\n")
    (tmp_path / "misconfigured.py").write_text(
        "from flask import Flask\nfrom headgate import Headgate\n"
        "app = Flask(__name__)\napp.config.update(HEADGATE_QUEUE_FRAMES=0, HEADGATE_WHAT=1)\nHeadgate(app)\n"
    )
    (tmp_path / "configured.py").write_text(
        "from flask import Flask\nfrom headgate import Headgate\n"
        "app = Flask(__name__)\napp.config.update(HEADGATE_MAX_SUBSCRIPTIONS=5, HEADGATE_DEV=True)\nHeadgate(app)\n"
    )
    return tmp_path


@pytest.fixture
def run(folder: Path, redis_url: str) -> Run:
    """Run `headgate serve` to its end in that folder: `run("shop:nothing", HEADGATE_PORT="x")`."""

    def run(*arguments: str, **settings: str) -> Finished:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("HEADGATE_")}
        ended = subprocess.run(
            [str(Path(sys.executable).with_name("headgate")), "serve", *arguments],
            cwd=folder,
            env={**inherited, "HEADGATE_REDIS_URL": redis_url, "HEADGATE_PORT": "0", **settings},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
        )
        return Finished(ended.returncode, ended.stdout, ended.stderr)

    return run


@pytest.fixture
def serve(folder: Path, redis_url: str) -> Iterator[Callable[..., GatewayProcess]]:
    """Serve an application of that folder: `serve("shop:app")`."""
    started: list[GatewayProcess] = []

    def start(*arguments: str, **settings: str) -> GatewayProcess:
        started.append(GatewayProcess(folder, {"HEADGATE_REDIS_URL": redis_url, **settings}, arguments))
        return started[-1].start()

    yield start
    for gateway in started:
        gateway.stop()


@pytest.fixture
def answering() -> Iterator[Callable[[bytes], str]]:
    """Start a TCP server that answers whatever it is sent with the given bytes; returns its Redis URL."""
    listeners: list[socket.socket] = []

    def start(reply: bytes) -> str:
        listener = socket.create_server(("127.0.0.1", 0))
        listeners.append(listener)

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                # Who has read enough resets the connection.
                with connection, suppress(ConnectionError):
                    while connection.recv(65536):
                        connection.sendall(reply)

        threading.Thread(target=serve, daemon=True).start()
        return f"redis://user:hunter2@127.0.0.1:{listener.getsockname()[1]}/0"

    yield start
    for listener in listeners:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


def get(gateway: GatewayProcess, path: str) -> str:
    with urllib.request.urlopen(gateway.url + path, timeout=DEADLINE_S) as answer:
        text: str = answer.read().decode()
    return text


def one_clear_line(ended: Finished, advice: str | None = None) -> str:
    """Return the one line on standard error of a command that could not start; with `advice`, a second one says what to do."""
    assert ended.code == 1, ended
    line, *rest = ended.err.splitlines()
    assert line.startswith("headgate: ")
    assert len(rest) == (advice is not None)
    assert advice is None or advice in rest[0]
    assert "hunter2" not in ended.out + ended.err
    assert "ready" not in ended.out
    return line


# Applications ------------------------------------------------------------------------------------------------------------


def test_an_application_is_served_with_the_gateway_inside(serve: Callable[..., GatewayProcess]) -> None:
    """Its own routes answer, its authenticator decides, and `app.extensions["headgate"].publish` reaches browsers."""
    gateway = serve("shop:app")
    with RawClient(gateway.url, {"subscriptions": [{"pattern": "hello.*"}]}) as client:
        assert client.welcome["user"] == "ana"
        answer = json.loads(get(gateway, "/hello"))

        ((topic, data, meta),) = client.wait_for_events(1)

    assert (topic, data, meta["offset"]) == ("hello.world", {"from": "a view"}, answer["offset"])
    assert answer["same"] is True


def test_a_factory_is_called_and_gets_a_gateway_that_lets_nobody_in(serve: Callable[..., GatewayProcess]) -> None:
    """An application that knows nothing of Headgate: served, healthy, and closed until it has an authenticator."""
    gateway = serve("shop:make_app")
    assert get(gateway, "/which") == "made by a factory"
    assert json.loads(get(gateway, "/healthz"))["ready"] is True
    with RawClient(gateway.url) as client:
        refusal = client.wait_for(lambda: client.refusal, "the refusal")

    assert refusal["data"]["code"] == "unauthorized"


def test_the_name_app_is_taken_when_only_a_module_is_named(serve: Callable[..., GatewayProcess]) -> None:
    """As Flask itself does."""
    assert json.loads(get(serve("shop"), "/hello"))["same"] is True


def test_app_config_sets_what_the_environment_does_not(serve: Callable[..., GatewayProcess]) -> None:
    """`HEADGATE_*` in app.config, told to clients as their limits."""
    gateway = serve("configured:app", HEADGATE_MAX_WILDCARDS="3")
    with RawClient(gateway.url) as client:
        limits = client.welcome["limits"]

    assert (limits["max_subscriptions"], limits["max_wildcards"]) == (5, 3)


def test_the_environment_wins_over_app_config(serve: Callable[..., GatewayProcess]) -> None:
    """Whoever runs the application has the last word, as do the options of `headgate serve`."""
    gateway = serve("configured:app", HEADGATE_MAX_SUBSCRIPTIONS="7")
    with RawClient(gateway.url) as client:
        assert client.welcome["limits"]["max_subscriptions"] == 7


def test_a_stopped_server_ends_with_0_and_frees_its_port(serve: Callable[..., GatewayProcess]) -> None:
    """SIGTERM is an order, not an accident."""
    with closing(HeldPort()) as held:  # or somebody else might have it before we look
        gateway = serve("shop:app", HEADGATE_PORT=str(held.port))
        with pytest.raises(OSError, match="in use"):
            socket.create_server(("127.0.0.1", held.port))

        assert gateway.stop() == 0
        with socket.create_server(("127.0.0.1", held.port)):
            pass


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("shopp:app", "no module named 'shopp'"),
        ("shop.front:app", "no module named 'shop.front'"),
        ("shop:nothing", "has no 'nothing'"),
        ("shop:app.gate", "has no 'app.gate'"),
        ("shop:number", "is a int; expected a Flask application"),
        ("shop:needs_an_argument", "needs arguments"),
        (":app", "MODULE:APPLICATION"),
        ("../shop:app", "MODULE:APPLICATION"),
        ("shop.py", "no module named 'shop.py'"),
        ("", "MODULE:APPLICATION"),
    ],
)
def test_a_name_that_is_no_application_is_told(folder: Path, monkeypatch: pytest.MonkeyPatch, target: str, says: str) -> None:
    """What was looked for, and what would have been right."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", list(sys.path))
    with pytest.MonkeyPatch.context() as modules:
        modules.delitem(sys.modules, "shop", raising=False)
        with pytest.raises(InvalidRequest) as refused:
            load_application(target, Settings())
        sys.modules.pop("shop", None)
    assert says in refused.value.message


def test_a_name_that_is_no_application_is_one_clear_line(run: Run) -> None:
    """From the command, in words of that error."""
    assert "has no 'nothing'" in one_clear_line(run("shop:nothing"))


def test_a_module_that_the_application_lacks_is_told_with_its_traceback(run: Run) -> None:
    """The fault is in the application: where it stands is what its author needs."""
    ended = run("lacking:app")

    assert ended.code != 0
    assert "a_module_that_is_not_there" in ended.err
    assert 'lacking.py", line 1' in ended.err


# Settings ----------------------------------------------------------------------------------------------------------------


def test_every_wrong_setting_is_told_at_once(run: Run) -> None:
    """One run shows all there is to mend; a secret is not shown."""
    ended = run(HEADGATE_PORT="eighty", HEADGATE_QUEUE_FRAMES="1", HEADGATE_PROT="1", HEADGATE_REDIS_URL="http://:hunter2@x")

    assert ended.code == 1
    head, *faults = ended.err.splitlines()
    assert head == "headgate: 4 settings are wrong:"
    assert [fault.split("=")[0].split(" is ")[0].strip() for fault in faults] == [
        "HEADGATE_PORT", "HEADGATE_PROT", "HEADGATE_QUEUE_FRAMES", "HEADGATE_REDIS_URL",
    ]  # fmt: skip
    assert "did you mean HEADGATE_PORT?" in ended.err
    assert "hunter2" not in ended.err


def test_wrong_settings_of_an_application_are_told_likewise(run: Run) -> None:
    """From app.config."""
    ended = run("misconfigured:app")

    assert ended.code == 1
    assert ended.err.splitlines()[0] == "headgate: 2 settings are wrong:"
    assert "HEADGATE_QUEUE_FRAMES=0" in ended.err
    assert "HEADGATE_WHAT is not a setting" in ended.err


def test_a_port_in_use_is_one_clear_line(run: Run) -> None:
    """With the address, and how to choose another."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        line = one_clear_line(run(HEADGATE_PORT=str(port)))

    assert f"cannot listen on 127.0.0.1:{port}" in line
    assert "--port" in line


def test_an_address_that_is_not_ours_is_one_clear_line(run: Run) -> None:
    """192.0.2.1 is for documentation (RFC 5737): no machine has it."""
    assert "cannot listen on 192.0.2.1:" in one_clear_line(run(HEADGATE_HOST="192.0.2.1"))


# Redis -------------------------------------------------------------------------------------------------------------------


def test_a_redis_that_is_not_there_is_one_clear_line(run: Run) -> None:
    """Where, and why."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))  # and not listened to: nobody else gets the port meanwhile
        port = silent.getsockname()[1]
        line = one_clear_line(run(HEADGATE_REDIS_URL=f"redis://:hunter2@127.0.0.1:{port}/0"), "start Redis there")

    assert f"127.0.0.1:{port}" in line
    assert "refused" in line


def test_a_redis_socket_that_is_not_there_is_one_clear_line(run: Run, folder: Path) -> None:
    """The same over a Unix socket."""
    assert "no such file" in one_clear_line(run(HEADGATE_REDIS_URL=f"unix://{folder}/no.sock"), "start Redis there")


@pytest.mark.parametrize(("credentials", "says"), [("", "password"), ("?password=wrong-hunter2", "password")])
def test_a_redis_that_wants_another_password_is_one_clear_line(
    run: Run, start_redis: Callable[..., EmbeddedRedis], credentials: str, says: str
) -> None:
    """None given, or a wrong one: never shown."""
    server = start_redis()
    with closing(open_client(server.url)) as client:
        call(client, "CONFIG", "SET", "requirepass", "right-hunter2")
    line = one_clear_line(run(HEADGATE_REDIS_URL=server.url + credentials), "check user and password")

    assert says in line


def test_a_redis_that_is_too_old_is_one_clear_line(run: Run, answering: Callable[[bytes], str]) -> None:
    """What was found, and what is needed."""
    body = b"# Server\r\nredis_version:6.2.14\r\n"
    line = one_clear_line(run(HEADGATE_REDIS_URL=answering(b"$%d\r\n%b\r\n" % (len(body), body)).replace("user:hunter2@", "")))

    assert "6.2.14" in line
    assert "7.0" in line


@pytest.mark.parametrize(
    "reply", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"SSH-2.0-OpenSSH_9.2\r\n", b"\x15\x03\x01\x00\x02\x02\x0a"]
)
def test_what_is_no_redis_at_all_is_one_clear_line(run: Run, answering: Callable[[bytes], str], reply: bytes) -> None:
    """A web server, a shell, TLS."""
    assert "Redis" in one_clear_line(run(HEADGATE_REDIS_URL=answering(reply)), "check the port")


# Without gevent ----------------------------------------------------------------------------------------------------------


def python(code: str, **environment: str) -> Finished:
    """Run a program to its end."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("HEADGATE_")}
    ended = subprocess.run(
        [sys.executable, "-c", code], env={**inherited, **environment}, capture_output=True, text=True, timeout=DEADLINE_S
    )
    return Finished(ended.returncode, ended.stdout, ended.stderr)


def errors_of(before: str, codes: Iterable[str], **environment: str) -> list[str]:
    """Run programs that begin alike, one after the other in one process; return the last line of each one's traceback."""
    runs = (
        f"for code in {list(codes)!r}:\n"
        "    try: exec(code)\n"
        "    except Exception: print(traceback.format_exc().splitlines()[-1])\n"
        "    else: print('no error')\n"
    )
    ended = python("import traceback\n" + before + runs, **environment)
    assert ended.code == 0, ended.err
    return ended.out.splitlines()


class FlaskRun(GatewayProcess):
    """`flask run` of shop.py, as its developer starts it."""

    def __init__(self, folder: Path, settings: dict[str, str]) -> None:
        super().__init__(folder, settings)
        self.command = (sys.executable, "-m", "flask", "--app", "shop:app", "run", "--port", "0")

    def start(self, deadline_s: float = DEADLINE_S) -> FlaskRun:
        self._launch()
        self.url = self.wait_for_line(r"Running on (http://\S+)", deadline_s)[1]
        return self


@pytest.fixture
def flask_run(folder: Path, redis_url: str) -> Iterator[GatewayProcess]:
    """The application of shop.py under Flask's own server."""
    with FlaskRun(folder, {"HEADGATE_REDIS_URL": redis_url}) as running:
        yield running


@pytest.mark.parametrize("under", ["headgate serve", "flask run"])
def test_the_browser_client_is_served_beside_the_application(under: str, request: pytest.FixtureRequest) -> None:
    """At one address, compressed, whatever serves the application; a page needs no file of its own."""
    gateway = request.getfixturevalue("serve")("shop:app") if under == "headgate serve" else request.getfixturevalue("flask_run")
    asked = urllib.request.Request(f"{gateway.url}/headgate/headgate.js", headers={"Accept-Encoding": "gzip"})
    with urllib.request.urlopen(asked, timeout=DEADLINE_S) as answer:
        assert (answer.status, answer.headers["Content-Encoding"]) == (200, "gzip")
        assert b"headgate" in gzip.decompress(answer.read())
    assert "headgate" in get(gateway, "/headgate/headgate.js")


def in_folder(folder: Path, code: str, **environment: str) -> Finished:
    """Run a program that begins where the application is, to its end."""
    return python(f"import sys; sys.path.insert(0, {str(folder)!r})\n{code}", **environment)


def test_flask_commands_work_with_an_application_that_has_the_extension(folder: Path) -> None:
    """`flask routes` and `flask shell` import it, without a Redis and without gevent's patches."""
    for arguments, stdin in (
        (("routes",), ""),
        (("shell",), "print('in the shell', app.extensions['headgate'].ready()['ready'])"),
    ):
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("HEADGATE_")}
        ended = subprocess.run(
            [sys.executable, "-m", "flask", "--app", "shop:app", *arguments],
            cwd=folder, env=inherited, input=stdin, capture_output=True, text=True, timeout=DEADLINE_S,
        )  # fmt: skip
        assert ended.returncode == 0, ended.stderr
        assert ("/hello" if arguments == ("routes",) else "in the shell False") in ended.stdout


def test_under_flask_run_the_routes_work_and_publish(flask_run: GatewayProcess, redis_url: str) -> None:
    """A receipt of Redis, which a gateway elsewhere delivers."""
    assert [json.loads(get(flask_run, "/hello"))["offset"] for _ in range(2)] == [1, 2]
    with closing(Publisher(redis_url)) as publisher:
        assert publisher.publish("a", 1).offset == 3


def test_under_flask_run_a_browser_is_refused_with_what_to_do(flask_run: GatewayProcess) -> None:
    """In the answer, and once in the log, however often it comes back."""
    for transport in ("polling", "polling", "websocket"):
        with pytest.raises(urllib.error.HTTPError) as refused:
            get(flask_run, f"/socket.io/?EIO=4&transport={transport}")
        with refused.value as answer:
            assert answer.code == 501
            assert answer.headers["Cache-Control"] == "no-store"
            assert "`headgate serve yourmodule:app`" in answer.read().decode()
    assert json.loads(get(flask_run, "/hello"))["offset"] == 1

    flask_run.stop()

    told = [line for line in flask_run.output.splitlines() if "headgate serve yourmodule:app" in line]
    assert len(told) == 1
    assert "A browser was refused" in told[0]


def test_the_test_client_of_an_application_needs_no_gevent(folder: Path, redis_url: str) -> None:
    """A test of the application's own runs as without the extension."""
    ended = in_folder(
        folder,
        "from shop import app\n"
        "client = app.test_client()\n"
        "print(client.get('/hello').json['offset'], client.get('/nothing').status_code, client.get('/socket.io/').status_code)",
        HEADGATE_REDIS_URL=redis_url,
    )

    assert ended.out.splitlines() == ["1 404 501"], ended.err


def test_to_import_the_application_starts_nothing_and_reaches_nothing(folder: Path) -> None:
    """No thread, no greenlet, no gevent, no connection to Redis: a worker imports it and may never publish."""
    with socket.create_server(("127.0.0.1", 0)) as redis:
        redis.settimeout(0)
        ended = in_folder(
            folder,
            "import threading\nfrom shop import app, gate\nassert not gate.ready()['ready']\n"
            "heavy = {'gevent', 'greenlet', 'socketio', 'engineio', 'prometheus_client', 'websockets'} & set(sys.modules)\n"
            "print(threading.active_count(), sorted(heavy))",
            HEADGATE_REDIS_URL=f"redis://127.0.0.1:{redis.getsockname()[1]}/0",
        )
        with pytest.raises(BlockingIOError):
            redis.accept()

    assert ended.out.splitlines() == ["1 []"], ended.err


def test_a_worker_that_imports_the_application_publishes_and_revokes(folder: Path, redis_url: str) -> None:
    """From a thread, and from a process that was forked off after a first publish, as Celery's are."""
    ended = in_folder(
        folder,
        "import os, threading\nfrom shop import gate\n"
        "print(gate.publish('a', 1).offset, flush=True)\n"
        "if os.fork() == 0:\n"
        "    print(gate.publish('a', 2, user='ana').offset, flush=True)\n"
        "    os._exit(0)\n"
        "os.wait()\n"
        "thread = threading.Thread(target=lambda: print(gate.publish('a', 3).offset)); thread.start(); thread.join()\n"
        "gate.revoke(user='ben'); gate.close(); gate.close()\n",
        HEADGATE_REDIS_URL=redis_url,
    )

    assert ended.out.split() == ["1", "2", "3"], ended.err
    with closing(open_client(redis_url)) as client:
        assert [member for member, _ in read_revoked(client)] == ["user:ben"]


def test_beside_a_gateway_in_the_same_folder_the_application_finds_its_private_redis(folder: Path) -> None:
    """`headgate serve` in one terminal, `flask shell` in another; no setting."""
    settings = {"HEADGATE_DATA_DIR": str(folder / "data")}
    with GatewayProcess(folder, settings, ("shop:app",)) as gateway:
        assert json.loads(get(gateway, "/hello"))["offset"] == 1
        ended = in_folder(folder, "from shop import gate\nprint(gate.publish('a', 1).offset)", **settings)

    assert ended.out.splitlines() == ["2"], ended.err


REFUSED_UNPATCHED = [
    "gate.start()",
    "gate.gateway",
    "gate.events('#')",
    "gate.identify(Handshake('notifications', {}, {}))",
]


def test_without_gevent_patched_in_the_error_says_what_to_do(redis_url: str) -> None:
    """Sockets that block would stop every client at once: what needs the gateway is refused, with both ways out."""
    before = "from flask import Flask\nfrom headgate import Handshake, Headgate\ngate = Headgate(Flask('x'))\n"
    told = errors_of(before, REFUSED_UNPATCHED, HEADGATE_REDIS_URL=redis_url)

    assert len(told) == len(REFUSED_UNPATCHED)
    for last in told:
        assert last.startswith("RuntimeError: ")
        assert "headgate serve yourmodule:app" in last
        assert "monkey.patch_all()" in last


def test_without_any_redis_an_unpatched_publish_says_how_to_get_one(tmp_path: Path) -> None:
    """The import was fine: only now is a Redis needed."""
    before = "from flask import Flask\nfrom headgate import Headgate\ngate = Headgate(Flask('x'))\n"
    (told,) = errors_of(before, ["gate.publish('a', 1)"], HEADGATE_DATA_DIR=str(tmp_path))

    assert "BusUnavailable" in told
    assert "HEADGATE_REDIS_URL" in told


def test_an_application_that_was_imported_before_gevent_patched_serves_browsers_after(redis_url: str) -> None:
    """As when a process manager loads the application first and patches its workers."""
    ended = python(
        "from flask import Flask\nfrom headgate import Headgate\napp = Flask('x'); gate = Headgate(app)\n"
        "from gevent import monkey; monkey.patch_all()\nimport gevent\n"
        "assert app.test_client().get('/socket.io/?EIO=4&transport=polling').status_code == 200\n"
        "with gevent.Timeout(30):\n"
        "    while not gate.ready()['ready']: gevent.sleep(0.01)\n"
        "print(gate.publish('a', 1).offset); gate.close()\n",
        HEADGATE_REDIS_URL=redis_url,
    )

    assert ended.code == 0, ended.err
    assert "1" in ended.out.splitlines()


PATCHED = "from gevent import monkey; monkey.patch_all()\nfrom flask import Flask\nfrom headgate import Headgate\n"


def test_in_a_program_of_ones_own_the_extension_works_after_patching(redis_url: str) -> None:
    """The first request starts the bus; publish gives the receipt of Redis."""
    ended = python(
        PATCHED + "app = Flask('x'); gate = Headgate(app)\n"
        "assert app.extensions['headgate'] is gate\n"
        "assert not gate.ready()['ready']\n"
        "assert app.test_client().get('/').status_code == 404\n"
        "import gevent\n"
        "with gevent.Timeout(30):\n"
        "    while not gate.ready()['ready']: gevent.sleep(0.01)\n"
        "print('offsets', gate.publish('a', 1).offset, gate.publish('a', 1, namespace='/notifications').offset)\n"
        "gate.close(); gate.close()\n",
        HEADGATE_REDIS_URL=redis_url,
    )

    assert ended.code == 0, ended.err
    assert "offsets 1 2" in ended.out.splitlines()
    closed = ended.out.partition("offsets 1 2\n")[2]
    assert "bus down" not in closed, "it was closed, not lost"
    with closing(Publisher(redis_url)) as publisher:
        assert publisher.publish("a", 1).offset == 3


MISUSES = {
    "Headgate().publish('a', 1)": "RuntimeError: Headgate is not attached to an application yet: call init_app(app)",
    "Headgate(Flask('x')).publish('a', 1, namespace='other')": "this gateway serves notifications",
    "Headgate(Flask('x')).publish('a..b', 1)": "InvalidTopic",
    "Headgate(Flask('x')).publish('a', {1: object()})": "NotSerializable",
    "Headgate(Flask('x')).publish('a', 'x' * 70000)": "PayloadTooLarge",
}


def test_a_misuse_of_the_extension_says_what_is_wrong(redis_url: str) -> None:
    """From the error tree, or about the order of calls."""
    told = errors_of(PATCHED, MISUSES, HEADGATE_REDIS_URL=redis_url)

    assert [says in last for says, last in zip(MISUSES.values(), told, strict=True)] == [True] * len(MISUSES), told


def test_without_any_redis_the_extension_says_how_to_get_one(tmp_path: Path) -> None:
    """It brings none itself: that is what `headgate serve` does."""
    last = python(PATCHED + "Headgate(Flask('x'))", HEADGATE_DATA_DIR=str(tmp_path)).err.splitlines()[-1]

    assert "HEADGATE_REDIS_URL" in last
    assert "headgate serve" in last
