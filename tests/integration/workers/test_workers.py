"""Several workers on one port, as real processes: one `headgate serve --workers 2`, one gunicorn, and the refusals at the
start.

Each process is for many claims. It is started once, goes through its life in order, and is ended by the test.
"""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from headgate.cli.main import main
from headgate.installation import install_command
from headgate.redis.client import Client, call, open_client
from headgate.redis.embedded import EmbeddedRedis
from headgate.redis.keys import table_key
from headgate.redis.loads import Load
from headgate.services.publisher import Publisher
from headgate.transport.http_limits import BACKLOG
from tests.support.gateway_process import GatewayProcess, StartGateway
from tests.support.listening import granted, places_of
from tests.support.metric_names import asked, exported, expressions_of_dashboard
from tests.support.raw_client import RawClient
from tests.support.redis_server import wait_until
from tests.support.registered import write_row

ROOT = Path(__file__).resolve().parents[3]
DEADLINE_S = 60.0
OPEN = {"subscriptions": [{"pattern": "orders.#"}]}


def get(url: str, body: bytes | None = None, kind: str = "text/plain") -> str:
    request = urllib.request.Request(url, data=body, headers={"Connection": "close", "Content-Type": kind})
    try:
        with urllib.request.urlopen(request, timeout=DEADLINE_S) as answer:
            return str(answer.read().decode())
    except urllib.error.HTTPError as error:
        return f"{error.code} {error.read().decode()}"


def get_over(path: Path, target: str) -> str:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(DEADLINE_S)
        connection.connect(str(path))
        connection.sendall(f"GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        answer = b""
        while part := connection.recv(65536):
            answer += part
        return answer.decode()


def publish(url: str) -> str:
    """Publish an event over HTTP, over a separate connection; return the answer's text."""
    return get(f"{url}/api/v1/events", b'{"topic": "other.1", "data": {}}', "application/json")


def workers_told_of_publishes(client: Client) -> int:
    """How many workers report the spending of the anonymous caller, which they do until its bucket is full again."""
    told = [call(client, "HGET", key, "anonymous") for key in call(client, "KEYS", table_key("rates:publish", "*"))]
    return sum(1 for each in told if each and int(each.split()[0]))


def health(url: str) -> dict[str, Any]:
    answer = get(f"{url}/healthz")
    return dict(json.loads(answer[answer.index("{") :]))


def wait_for(client: RawClient, condition: Callable[[RawClient], Any], what: str) -> None:
    client.wait_for(lambda: condition(client), what, DEADLINE_S)


def serving(url: str) -> dict[int, int]:
    return {each["worker"]: each["process"] for each in health(url)["workers"] if each.get("ready")}


def sample(url: str, name: str) -> float:
    return sum(float(line.split()[-1]) for line in get(f"{url}/metrics").splitlines() if re.match(rf"{name}[ {{]", line))


def poll_session(url: str) -> str:
    """Open a session over polling; return the address of its polls."""
    polling = f"{url}/socket.io/?EIO=4&transport=polling"
    opening = json.loads(get(polling)[1:])
    assert get(f"{polling}&sid={opening['sid']}", b"40/notifications," + json.dumps(OPEN).encode()) == "ok"
    return f"{polling}&sid={opening['sid']}"


def read_until(address: str, wanted: str) -> None:
    """Poll a session, each time over another connection, until it has brought a text."""

    def brought() -> bool:
        answer = get(address)
        assert "Session ID unknown" not in answer
        if "\x1e2" in f"\x1e{answer}":
            assert get(address, b"3") == "ok"
        return wanted in answer

    wait_until(brought, f"{wanted} over polling")


def test_two_workers_are_one_gateway_from_start_to_stop(start_gateway: StartGateway, tmp_path: Path) -> None:
    """One port, one private Redis, one health page, one set of counts; a killed worker comes back, a reload loses no request."""
    file = tmp_path / "headgate.toml"
    file.write_text("[settings]\nmax_subscriptions = 5\n")
    settings = {"HEADGATE_PUBLISH_PER_S": "20", "WEB_CONCURRENCY": "auto"}  # the second is gunicorn's, which takes only numbers
    gateway = start_gateway(settings, "--dev", "--workers", "2", "--config", str(file))
    url = gateway.url
    data = tmp_path / "gateway-0" / "data"

    # They are named, and share the private Redis.
    first = wait_until(lambda: len(found := serving(url)) == 2 and found, "both serve")
    assert first.keys() == {1, 2}
    assert gateway.output.count("started a private") == 1
    publisher = Publisher(f"unix://{data / 'redis.sock'}")

    # Clients of both get every event; each worker has some of them.
    clients = [RawClient(url, OPEN) for _ in range(24)]
    polls = [poll_session(url) for _ in range(4)]
    for client in clients:
        wait_for(client, lambda of: of.named("welcome"), "welcome")
    publisher.publish("orders.1.shipped", {"first": True})
    for client in clients:
        wait_for(client, lambda of: len(of.events) == 1, "its event")

    # A poll that arrives at the wrong worker is its owner's nevertheless.
    for poll in polls:
        read_until(poll, '"first":true')

    # Whichever worker is asked, the counts are those of both.
    assert {sample(url, "headgate_clients") for _ in range(6)} == {28}
    assert sample(url, "headgate_worker_up") == 2
    assert health(url)["namespaces"]["notifications"]["clients"] == 28
    counted = sample(url, "headgate_events_received_total")
    assert counted == 2
    page = get(f"{url}/metrics")
    monitoring = ROOT / "examples" / "monitoring"
    for expression in expressions_of_dashboard((monitoring / "dashboard.json").read_text()):
        assert asked(expression) <= exported(page), "the dashboard asks for what a live gateway exports"
    assert asked((monitoring / "alerts.yml").read_text()) <= exported(page)
    # Every event for every client has become something, over both workers, and each worker has measured it once.
    routed, waiting = sample(url, "headgate_routed_total"), sample(url, "headgate_waiting")
    assert routed == sample(url, "headgate_outcomes_total") + waiting == 28
    assert sample(url, "headgate_publish_to_socket_seconds_count") == 2
    assert 0 < sample(url, r'headgate_publish_to_socket_greatest_seconds\{namespace="notifications",window="all"\}') < 3600

    # A caller's rate is counted over all processes, and another one reports that this caller has spent it all.
    with_rates = open_client(f"unix://{data / 'redis.sock'}", timeout_s=DEADLINE_S)
    assert '"offset"' in publish(url)
    wait_until(lambda: publish(url) and workers_told_of_publishes(with_rates) == 2, "both tell what they let the caller spend")
    call(with_rates, "HSET", table_key("rates:publish", "test"), "anonymous", "1000000 400")
    write_row(with_rates, "test", Load(0, 0, "", versions={"rates:publish": 1}))
    wait_until(lambda: all("publish_per_s" in publish(url) for _ in range(8)), "both refuse")
    with_rates.close()

    # A killed worker is replaced, with its number; the counts do not go back; the clients of the other one stay.
    os.kill(first[2], signal.SIGKILL)
    wait_until(lambda: serving(url).get(2, first[2]) != first[2], "another worker 2")
    assert serving(url)[1] == first[1]
    assert sample(url, "headgate_events_received_total") >= counted
    stayed = [client for client in clients if client.closed is None]
    publisher.publish("orders.2.shipped", {})
    for client in stayed:
        wait_for(client, lambda of: len(of.events) == 2 or of.closed, "its event, or its end")
    assert 0 < len([client for client in stayed if client.closed is None]) < 24

    # At a reload others serve before these end, no request is refused, and the configuration file is read again.
    second = serving(url)
    file.write_text("[settings]\nmax_subscriptions = 6\n")
    os.kill(gateway.pid, signal.SIGHUP)
    wait_until(
        lambda: "alive" in get(f"{url}/livez") and not set(second.values()) & set(serving(url).values()), "two other workers"
    )
    assert sample(url, "headgate_events_received_total") >= counted + 1
    assert gateway.output.count(f"settings reloaded from {file}") == 1
    with RawClient(url) as newcomer:
        assert newcomer.welcome["limits"]["max_subscriptions"] == 6

    # The end.
    assert gateway.stop(DEADLINE_S) == 0
    assert "Traceback" not in gateway.output
    with pytest.raises(OSError, match="refused"), socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2]))):
        pass
    assert not (data / "redis.sock").exists() or "socket" not in (data / "redis.lock").read_text()
    publisher.close()
    for client in clients:
        client.close()


@pytest.mark.nightly
def test_a_stop_during_a_reload_does_not_wait_for_the_old_workers(start_gateway: StartGateway) -> None:
    """They move their clients for ten minutes; SIGTERM stops the new ones, and Ctrl-C then ends all at once."""
    gateway = start_gateway({"HEADGATE_DRAIN_S": "600"}, "--dev", "--workers", "2")
    first = wait_until(lambda: len(found := serving(gateway.url)) == 2 and found, "both serve")
    clients = [RawClient(gateway.url, OPEN) for _ in range(24)]
    os.kill(gateway.pid, signal.SIGHUP)
    wait_until(lambda: not set(serving(gateway.url).values()) & set(first.values()), "only new workers take requests")

    os.kill(gateway.pid, signal.SIGTERM)
    gateway.wait_for_line("headgate: stopping", DEADLINE_S)
    os.kill(gateway.pid, signal.SIGINT)

    assert gateway.wait_until_ended() == 0
    assert "Traceback" not in gateway.output
    for client in clients:
        client.close()


LOADS_SLOWLY = """
import time
from pathlib import Path
from headgate_server.app import create_app
from headgate.settings.settings import Settings
if Path("slow").exists():
    Path("loading").touch()
    time.sleep(600)
app = create_app(Settings.from_environment())
"""


@pytest.mark.nightly
def test_a_stop_does_not_wait_for_workers_that_load_their_application(start_gateway: StartGateway, tmp_path: Path) -> None:
    """They serve nobody yet."""
    folder = tmp_path / "gateway-0"
    folder.mkdir()
    (folder / "slow_shop.py").write_text(LOADS_SLOWLY)
    gateway = start_gateway({"HEADGATE_DRAIN_S": "600"}, "slow_shop:app", "--dev", "--workers", "2")
    (folder / "slow").touch()
    os.kill(gateway.pid, signal.SIGHUP)
    wait_until((folder / "loading").exists, "a new worker loads it")

    gateway.ask_to_stop()

    assert gateway.wait_until_ended() == 0


CANNOT_LOAD = """
import os
from pathlib import Path
from headgate_server.app import create_app
from headgate.settings.settings import Settings
if Path("killed").exists():
    os.kill(os.getpid(), 9)
if Path("broken").exists():
    raise RuntimeError("a mistake of the new code")
app = create_app(Settings.from_environment())
"""


def test_a_reload_of_broken_code_leaves_the_workers_that_serve(start_gateway: StartGateway, tmp_path: Path) -> None:
    """Until a later reload loads the application; also where the kernel kills the new ones, as without memory."""
    folder = tmp_path / "gateway-0"
    folder.mkdir()
    (folder / "new_shop.py").write_text(CANNOT_LOAD)
    gateway = start_gateway({}, "new_shop:app", "--dev", "--workers", "2")
    first = wait_until(lambda: len(found := serving(gateway.url)) == 2 and found, "both serve")
    (folder / "broken").touch()
    os.kill(gateway.pid, signal.SIGHUP)
    wait_until(lambda: gateway.output.count("not reloaded") == 1, "both fail", DEADLINE_S)
    (folder / "killed").touch()
    os.kill(gateway.pid, signal.SIGHUP)
    wait_until(lambda: gateway.output.count("not reloaded") == 2, "both fail again", DEADLINE_S)
    assert "RuntimeError: a mistake of the new code" in gateway.output
    wait_until(lambda: serving(gateway.url) == first, "the workers from before serve on", DEADLINE_S)

    (folder / "broken").unlink()
    (folder / "killed").unlink()
    os.kill(gateway.pid, signal.SIGHUP)
    wait_until(lambda: not set(serving(gateway.url).values()) & set(first.values()), "new workers serve", DEADLINE_S)

    gateway.ask_to_stop()
    assert gateway.wait_until_ended() == 0


def test_a_process_manager_that_replaces_another_keeps_the_private_redis(tmp_path: Path) -> None:
    """Also where the first one was started as a module, whose folder hides other packages from its file."""
    gateway = GatewayProcess(tmp_path, {}, ("--dev", "--workers", "2"))
    gateway.command = (sys.executable, "-m", "headgate", *gateway.command[1:])
    with gateway, closing(open_client(f"unix://{tmp_path / 'data' / 'redis.sock'}")) as client:
        first = call(client, "INFO", "server")["run_id"]
        os.kill(gateway.pid, signal.SIGUSR2)
        wait_until(lambda: gateway.output.count("headgate: ready") == 2, "the new one serves", DEADLINE_S)

        gateway.ask_to_stop()
        wait_until(lambda: os.waitid(os.P_PID, gateway.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT), "the old one ends", DEADLINE_S)

        assert call(client, "INFO", "server")["run_id"] == first
        worker = next(iter(serving(gateway.url).values()))
        parent = subprocess.run(["ps", "-o", "ppid=", "-p", str(worker)], capture_output=True, text=True, check=True).stdout
        os.kill(int(parent), signal.SIGTERM)
        gateway.wait_until_ended()


class GunicornProcess(GatewayProcess):
    """gunicorn with our worker class, on a Unix socket and a port."""

    def __init__(self, folder: Path, settings: Mapping[str, str], arguments: tuple[str, ...]) -> None:
        super().__init__(folder, settings)
        self.command = (sys.executable, "-m", "gunicorn", *arguments, "--no-control-socket")

    def start(self, deadline_s: float = DEADLINE_S) -> GatewayProcess:
        self._launch()
        return self


def on_a_port(folder: Path, redis_url: str, listener: socket.socket, *options: str) -> GunicornProcess:
    """Return a gunicorn with one worker for a port that is listened to."""
    arguments = ("-k", "headgate.gunicorn.Worker", "-b", f"fd://{listener.fileno()}", "-w", "1")
    gunicorn = GunicornProcess(folder, {"HEADGATE_REDIS_URL": redis_url}, (*arguments, *options, "shop:app"))
    gunicorn.pass_fds = (listener.fileno(),)
    return gunicorn


def test_gunicorn_runs_the_worker_class(tmp_path: Path, redis_url: str, shop_folder: Path) -> None:
    """With its own settings: a Unix socket, an access log, and max_requests, after which another worker takes over."""
    path = tmp_path / "shop.sock"
    arguments = ("-k", "headgate.gunicorn.Worker", "-w", "1", "-b", f"unix:{path}", "--access-logfile", "-", "--threads", "8")
    settings = {"HEADGATE_REDIS_URL": redis_url}
    with GunicornProcess(shop_folder, settings, (*arguments, "--max-requests", "3", "shop:app")) as gunicorn:
        gunicorn.wait_for_line("no meaning for headgate.gunicorn.Worker: threads")

        def booted() -> bool:
            try:
                return " 200 " in get_over(path, "/healthz")
            except OSError:
                return False

        wait_until(booted, "it serves")
        gunicorn.wait_for_line('"GET /healthz HTTP/1.1" 200')
        for _ in range(8):
            assert '"ready":' in get_over(path, "/healthz")
        gunicorn.wait_for_line("Worker exiting")
        assert gunicorn.stop(DEADLINE_S) == 0
        assert "Traceback" not in gunicorn.output


WAITS_AFTER_THE_FORK = """
import time
from pathlib import Path
def post_fork(server, worker):
    while not Path("goes on").exists():
        time.sleep(0.01)
"""


@pytest.mark.parametrize("name", ["term", "int"])
def test_gunicorn_stops_at_once_while_its_workers_start(redis_url: str, tmp_path: Path, name: str) -> None:
    """Also when they have the signal handlers of their process manager."""
    (tmp_path / "slow").touch()
    (tmp_path / "slow_shop.py").write_text(LOADS_SLOWLY)
    (tmp_path / "gunicorn.conf.py").write_text(WAITS_AFTER_THE_FORK)
    arguments = ("-k", "headgate.gunicorn.Worker", "-w", "2", "-b", "127.0.0.1:0", "--graceful-timeout", "600")
    with GunicornProcess(tmp_path, {"HEADGATE_REDIS_URL": redis_url}, (*arguments, "slow_shop:app")) as gunicorn:
        wait_until(lambda: gunicorn.output.count("Booting worker") == 2, "both are forked", DEADLINE_S)
        os.kill(gunicorn.pid, signal.Signals[f"SIG{name.upper()}"])
        gunicorn.wait_for_line(f"Handling signal: {name}")
        (tmp_path / "goes on").touch()
        assert gunicorn.wait_until_ended(DEADLINE_S) == 0


def test_gunicorn_ends_where_redis_cannot_be_used(shop_folder: Path, redis_url: str) -> None:
    """As `headgate serve` does, with the fault and the remedy, once for all workers. No traceback, no second try."""
    arguments = ("-k", "headgate.gunicorn.Worker", "-w", "2", "-b", "127.0.0.1:0", "shop:app")
    with GunicornProcess(shop_folder, {"HEADGATE_REDIS_URL": f"{redis_url}?password=hunter2"}, arguments) as gunicorn:
        assert gunicorn.wait_until_ended(DEADLINE_S) == 4
    error, advice = (line for line in gunicorn.output.splitlines() if line.startswith("headgate: "))
    assert "wrong user name or password" in error
    assert "check user and password in the URL" in advice
    assert "Traceback" not in gunicorn.output
    assert "hunter2" not in gunicorn.output
    assert gunicorn.output.count("Booting worker") <= 2  # the second may be ended before it says so


def test_gunicorn_that_has_served_goes_on_without_redis(shop_folder: Path, start_redis: Callable[..., EmbeddedRedis]) -> None:
    """A worker in the place of a killed one serves without Redis, and the arbiter does not end for it.

    The port has the backlog of `headgate serve`: all clients of a machine may come back at once, and gunicorn's own is 2,048.
    """
    redis = start_redis()
    with socket.create_server(("127.0.0.1", 0), backlog=77) as listener:  # which gunicorn takes as it is
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"

        def booted() -> list[str]:
            return re.findall(r"Booting worker with pid: (\d+)", gunicorn.output)

        with on_a_port(shop_folder, redis.url, listener) as gunicorn:
            assert "alive" in get(f"{url}/livez")
            assert places_of(listener) == granted(BACKLOG)
            redis.close()
            os.kill(int(booted()[0]), signal.SIGKILL)
            wait_until(lambda: len(booted()) == 2, "another worker")
            gunicorn.wait_for_line("not ready, clients are refused for now: the bus is unavailable: ")
            assert "alive" in get(f"{url}/livez")
            assert len(booted()) == 2
            assert gunicorn.stop(DEADLINE_S) == 0


ASKED_WHILE_IT_LOADS = """
import atexit, os, signal, weakref
from flask import Flask
app = Flask(__name__)
if not os.path.exists("asked"):
    open("asked", "w").close()
    forgotten = {1}
"""
DISCARDS = """
    known = weakref.ref(forgotten, lambda _: os.kill(os.getpid(), signal.SIGTERM))
    del forgotten
"""
TWICE = """
    atexit.register(os.kill, os.getpid(), signal.SIGTERM)
    os.kill(os.getpid(), signal.SIGTERM)
"""


@pytest.mark.parametrize(("then", "tracebacks"), [(DISCARDS, 1), (TWICE, 0)], ids=["discarded", "twice"])
def test_a_worker_that_still_loads_ends_whatever_becomes_of_the_exception_of_the_signal(
    redis_url: str, tmp_path: Path, then: str, tracebacks: int
) -> None:
    """Python discards one that comes during a callback of the garbage collection. A service manager may signal all processes,
    so a worker gets a second signal while its interpreter ends, and says nothing of it. The next worker serves.
    """
    (tmp_path / "shop.py").write_text(ASKED_WHILE_IT_LOADS + then)
    with socket.create_server(("127.0.0.1", 0)) as listener, on_a_port(tmp_path, redis_url, listener) as gunicorn:
        wait_until(lambda: gunicorn.output.count("Booting worker") == 2, "another worker")
        assert "alive" in get(f"http://127.0.0.1:{listener.getsockname()[1]}/livez")
        assert gunicorn.output.count("Worker exiting") == 1
        assert gunicorn.output.count("Traceback") == tracebacks


def test_a_backlog_that_was_set_is_left(shop_folder: Path, redis_url: str) -> None:
    listening = socket.create_server(("127.0.0.1", 0), backlog=77)
    with listening as listener, on_a_port(shop_folder, redis_url, listener, "--backlog", "77"):
        assert "alive" in get(f"http://127.0.0.1:{listener.getsockname()[1]}/livez")
        assert places_of(listener) == granted(77)


SLOW = """
import os, time
from flask import Flask
app = Flask(__name__)

@app.get("/slow")
def slow():
    print("asked", flush=True)
    while not os.path.exists("go"):
        time.sleep(0.02)
    time.sleep(0.3)
    return "whole"
"""


@pytest.mark.parametrize("arguments", [(), ("--workers", "2")], ids=["serve", "worker"])
def test_a_request_is_answered_by_a_process_that_ends(tmp_path: Path, redis_url: str, arguments: tuple[str, ...]) -> None:
    """Within the time of the drain, also without any client to be moved."""
    (tmp_path / "slow.py").write_text(SLOW)
    settings = {"HEADGATE_REDIS_URL": redis_url, "HEADGATE_DRAIN_S": "30"}
    with GatewayProcess(tmp_path, settings, (*arguments, "slow:app")) as gateway, ThreadPoolExecutor() as threads:
        answer = threads.submit(get, f"{gateway.url}/slow")
        gateway.wait_for_line("asked")
        gateway.ask_to_stop()
        gateway.wait_for_line("stopping")
        (tmp_path / "go").touch()
        assert (answer.result(), gateway.wait_until_ended(DEADLINE_S)) == ("whole", 0)


@pytest.mark.parametrize("workers", ["0", "-1", "257", "many", "1.5"])
def test_a_number_of_workers_that_is_none_is_one_clear_line(workers: str) -> None:
    done = CliRunner().invoke(main, ["serve", "--workers", workers])
    assert done.exit_code == 1
    assert f"HEADGATE_WORKERS={workers}: expected a whole number from 1 to 256, or auto" in done.stderr.replace("'", "")


def test_a_port_in_use_is_one_clear_line(redis_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Before any worker is forked."""
    monkeypatch.chdir(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        arguments = ("serve", "--workers", "2", "--port", str(port), "--redis", redis_url)
        command = [sys.executable, "-m", "headgate", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=DEADLINE_S)
    assert done.returncode == 1
    assert f"cannot listen on 127.0.0.1:{port}: Address already in use; choose another" in done.stderr


FAILS = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
try:
    os.symlink(str(os.getpid()), "first")
    while not os.path.lexists("second"):
        time.sleep(0.01)
except FileExistsError:
    os.symlink(str(os.getpid()), "second")
    try:
        while True:  # until the process manager has noted the end of the first worker
            os.kill(int(os.readlink("first")), 0)
            time.sleep(0.01)
    except ProcessLookupError:
        pass
raise ValueError("a fault of mine")
app = None
"""


def test_an_application_that_no_worker_can_import_ends_with_its_own_traceback(redis_url: str, tmp_path: Path) -> None:
    """The other worker fails while the first one ends the process manager, which adds no traceback of its own."""
    (tmp_path / "fails.py").write_text(FAILS)
    command = [sys.executable, "-m", "headgate", "serve", "fails:app", "--workers", "2", "--port", "0", "--redis", redis_url]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=DEADLINE_S)
    assert done.returncode == 1
    assert done.stderr.count("\nValueError: a fault of mine") == 2
    assert "HaltServer" not in done.stderr


def test_a_stop_before_redis_is_known_leaves_no_traceback(redis_url: str) -> None:
    """Ctrl-C ends the process manager at once. The keeper then finds both of its pipes closed."""
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "headgate.cli.keeper", str(writer)]
    environ = {**os.environ, "HEADGATE_REDIS_URL": redis_url}
    done = subprocess.run(
        command, env=environ, stdin=subprocess.DEVNULL, pass_fds=[writer], capture_output=True, text=True, check=False
    )
    os.close(writer)
    assert (done.returncode, "Traceback" in done.stderr) == (0, False)


def test_without_gunicorn_one_line_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing has been started then."""
    monkeypatch.chdir(tmp_path)
    for module in ("headgate.gunicorn", "headgate.workers.gunicorn_worker"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.setitem(sys.modules, "gunicorn", None)
    done = CliRunner().invoke(main, ["serve", "--workers", "2"])
    assert done.exit_code == 1
    assert "serving with several workers needs the package gunicorn: run " + install_command("gunicorn") in done.stderr
    assert not (tmp_path / ".headgate").exists()
