"""The shared state of one process manager's workers: the configuration file, read again with gunicorn's own configuration."""

import os
import queue
import signal
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gunicorn.arbiter
import pytest
from gevent.event import Event
from gunicorn.glogging import Logger

from headgate.settings.settings import Settings
from headgate.workers.gunicorn_worker import END_S, SUCCESSOR_S, Arbiter, ArbiterState, Worker, graceful_timeout_s
from headgate.workers.scoreboard import Scoreboard, State
from headgate.workers.settings_file import SettingsFile
from tests.support.service_links import SERVICE_LINKS


@pytest.fixture
def environment() -> Iterator[None]:
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)


@pytest.mark.usefixtures("environment")
def test_variables_for_a_service_called_headgate_do_not_end_the_workers(capfd: pytest.CaptureFixture[str]) -> None:
    """As Kubernetes sets them in a pod; the operator reads once that they are ignored."""
    os.environ.update(SERVICE_LINKS)
    arbiter_state = ArbiterState(None)
    arbiter_state.follow(object(), None)
    arbiter_state.follow(object(), None)

    assert arbiter_state.fault is None
    assert (arbiter_state.has_reported("nobody"), arbiter_state.is_first("nobody"), arbiter_state.has_reported("nobody")) == (
        False,
        True,
        True,
    )
    assert Settings.read(os.environ) == Settings()
    assert capfd.readouterr().out.count("ignored 26 variables") == 1


@pytest.mark.usefixtures("environment")
def test_workers_have_the_file_of_the_last_reload(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """One in the place of a killed one has the settings of the others; a wrong file changes nothing, and is one line."""
    path = tmp_path / "headgate.toml"
    arbiter_state = ArbiterState(None)

    def clients() -> str | None:
        return os.environ.get("HEADGATE_MAX_CLIENTS")

    first, second, third = object(), object(), object()  # gunicorn's configuration is another one after each reload
    path.write_text("[settings]\nmax_clients = 1\n")
    arbiter_state.follow(first, SettingsFile(str(path)))
    assert clients() == "1"
    path.write_text("[settings]\nmax_clients = 2\n")
    arbiter_state.follow(first, None)
    assert clients() == "1"
    arbiter_state.follow(second, None)
    assert (clients(), capfd.readouterr().out) == ("2", f"headgate: settings reloaded from {path}\n")
    path.write_text("[settings]\nmax_client = 3\nport = -1\n")
    arbiter_state.follow(third, None)
    arbiter_state.follow(third, None)
    told = capfd.readouterr().err
    assert (clients(), arbiter_state.fault, told.count("\n")) == ("2", None, 1)
    assert told.startswith("headgate: settings not reloaded, the previous ones stay in force: ")
    assert "did you mean max_clients?" in told


@pytest.mark.usefixtures("environment")
def test_under_gunicorn_itself_the_file_is_found_as_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "shop.toml").write_text("[settings]\nmax_clients = 1\n")
    os.environ["HEADGATE_CONFIG"] = str(tmp_path / "shop.toml")
    ArbiterState(None).follow(object(), None)
    assert os.environ["HEADGATE_MAX_CLIENTS"] == "1"


@pytest.mark.usefixtures("environment")
def test_a_file_that_is_wrong_at_the_start_is_the_first_workers_to_tell(tmp_path: Path) -> None:
    """It ends the process manager with it."""
    (tmp_path / "headgate.toml").write_text("[settings]\nmax_client = 3\n")
    arbiter_state = ArbiterState(None)
    arbiter_state.follow(object(), SettingsFile(str(tmp_path / "headgate.toml")))
    assert arbiter_state.fault is not None


@pytest.mark.parametrize(
    ("sent", "handled"),
    [
        (["HUP", "CHLD", "HUP", "HUP"], ["CHLD", "HUP"]),
        (["HUP", "HUP", "TERM"], ["TERM"]),
        (["HUP", "INT", "INT"], ["INT", "INT"]),
        (["TTIN", "TTIN", "HUP", "USR1"], ["TTIN", "TTIN", "HUP", "USR1"]),
    ],
)
def test_reloads_that_pile_up_are_one_and_never_delay_a_stop(sent: list[str], handled: list[str]) -> None:
    """Each takes as long as the old workers need to end, and the process manager handles no other signal in that time."""
    arbiter = Arbiter.__new__(Arbiter)
    arbiter.SIG_QUEUE = queue.SimpleQueue()
    for name in sent:
        arbiter.SIG_QUEUE.put(signal.Signals[f"SIG{name}"])
    assert [signal.Signals(each).name[3:] for each in arbiter.wait_for_signals()] == handled


@pytest.mark.parametrize("stop", ["TERM", "INT", "QUIT"])
def test_a_stop_ends_a_reload_that_waits_for_the_old_workers(stop: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What came before it is outdated; a second stop, which ends the workers at once, is left for it."""
    arbiter = Arbiter.__new__(Arbiter)
    arbiter.SIG_QUEUE = queue.SimpleQueue()
    arbiter.worker_age = 2
    stopped: list[bool] = []
    monkeypatch.setattr(gunicorn.arbiter.Arbiter, "reap_workers", lambda arbiter: None)
    monkeypatch.setattr(gunicorn.arbiter.Arbiter, "stop", lambda arbiter, graceful=True: stopped.append(graceful))

    def reload(arbiter: Arbiter) -> None:
        arbiter.signal(signal.SIGUSR1, None)
        arbiter.reap_workers()
        for name in ("HUP", stop, "INT"):
            arbiter.signal(signal.Signals[f"SIG{name}"], None)
        arbiter.reap_workers()
        pytest.fail("it waits on")

    monkeypatch.setattr(gunicorn.arbiter.Arbiter, "reload", reload)
    with pytest.raises(StopIteration):
        arbiter.reload()
    assert arbiter.SIG_QUEUE.get_nowait() == signal.SIGINT
    assert stopped == ([False] if stop == "QUIT" else [])  # otherwise the caller stops it
    arbiter.signal(signal.SIGTERM, None)
    arbiter.reap_workers()  # no reload waits
    assert arbiter.SIG_QUEUE.get_nowait() == signal.SIGTERM


def test_a_worker_serves_on_only_after_the_workers_of_a_reload_have_ended() -> None:
    """However they ended. Neither a younger worker that serves nor a stop keeps it."""
    worker = Worker.__new__(Worker)
    worker.age, worker._may_have_successor = 1, True
    worker._arbiter_state, worker._asked, worker._successors = ArbiterState(None), Event(), set()
    scoreboard = worker._arbiter_state.scoreboard
    scoreboard.take(1)
    scoreboard.move(scoreboard.take(2).slot, State.SERVING)  # it is younger, and no successor

    worker._terminate()
    assert not worker._has_failed_successor()
    successor = scoreboard.take(3)
    worker._terminate()  # of another reload
    assert not worker._has_failed_successor()
    scoreboard.move(successor.slot, State.FREE)
    assert worker._has_failed_successor()
    worker._terminate()  # of a stop
    assert not worker._has_failed_successor()
    worker._asked.clear()
    successor = scoreboard.take(4)
    worker._terminate()
    scoreboard.move(successor.slot, State.FREE)
    scoreboard.stop()
    assert not worker._has_failed_successor()


def parts_s(graceful_timeout_s: int, drain_s: float, boot_s: float) -> tuple[float, float]:
    """Return for how long a worker waits for a successor that boots, and how long it may drain then."""
    worker = Worker.__new__(Worker)
    worker.cfg = SimpleNamespace(graceful_timeout=graceful_timeout_s)
    waited_s = min(boot_s, worker._successor_s(drain_s))
    return waited_s, worker._graceful_s(drain_s, waited_s)


@pytest.mark.parametrize("drain_s", [0.0, 10.0, 60.0])
@pytest.mark.parametrize("boot_s", [1.0, SUCCESSOR_S, 100.0])
def test_a_reload_of_serve_waits_for_the_new_worker_and_then_has_the_whole_drain(drain_s: float, boot_s: float) -> None:
    """An application that loads slowly neither shortens the drain nor leaves the port to workers that do not listen yet."""
    assert parts_s(graceful_timeout_s(drain_s), drain_s, boot_s) == (min(boot_s, SUCCESSOR_S), drain_s)


@pytest.mark.parametrize(
    ("graceful_timeout_s", "drain_s", "parts"),
    [(30, 10.0, (18.0, 10.0)), (30, 25.0, (14.0, 14.0)), (74, 10.0, (60.0, 10.0)), (1, 10.0, (0.0, 0.0))],
)
def test_a_short_graceful_timeout_is_shared_between_the_wait_and_the_drain(
    graceful_timeout_s: int, drain_s: float, parts: tuple[float, float]
) -> None:
    """The drain has its time if the wait keeps half; otherwise each has half. gunicorn kills the worker after both."""
    assert parts_s(graceful_timeout_s, drain_s, 100.0) == parts
    assert sum(parts) <= max(0.0, graceful_timeout_s - END_S)


@pytest.mark.parametrize(
    ("others", "workers", "requests"),
    [
        ([State.SERVING, State.SERVING], 3, 10),
        ([State.SERVING, State.BOOTING], 3, 20),
        ([State.DRAINING], 2, 20),
        ([], 1, 10),
        ([], 2, 20),
    ],
    ids=["all serve", "one boots", "one drains", "alone", "alone for a moment"],
)
def test_workers_make_room_for_others_one_after_the_other(others: list[State], workers: int, requests: int) -> None:
    """All reach max_requests at about the same time, and gunicorn starts a successor after the end of its predecessor."""
    scoreboard = Scoreboard(4)
    worker = Worker.__new__(Worker)
    worker._arbiter_state, worker._row, worker._requests = SimpleNamespace(scoreboard=scoreboard), scoreboard.take(1), 0  # type: ignore[assignment]
    worker.cfg, worker.log = SimpleNamespace(workers=workers), SimpleNamespace(info=lambda *_: None)
    worker.max_requests, worker.alive = 10, True
    worker._asked = SimpleNamespace(set=lambda: None)  # type: ignore[assignment]
    scoreboard.move(worker._row.slot, State.SERVING)
    for age, state in enumerate(others, 2):
        slot = scoreboard.take(age).slot
        for step in (State.SERVING, State.DRAINING)[: state - State.BOOTING]:
            scoreboard.move(slot, step)

    answered = 0
    while worker.alive:
        worker._count_request()
        answered += 1

    assert (answered, scoreboard.row(worker._row.slot).state) == (requests, State.DRAINING)


def test_no_request_begins_a_line_of_its_own_in_the_access_log() -> None:
    """Its path stands there encoded, and its headers for the formats that name them."""
    environ = {
        "PATH_INFO": '/a\r\nb "%/\xe4',
        "REQUEST_METHOD": "GET",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "HTTP_X_REAL_IP": "10.0.0.1",
    }
    logged: list[Any] = []
    worker = Worker.__new__(Worker)
    worker.log = SimpleNamespace(access=lambda *parts: logged.extend(parts))
    worker._log_access(SimpleNamespace(environ=environ, status="200 OK", headers=[]), 5, 0.25)  # type: ignore[arg-type]
    atoms = Logger.atoms(SimpleNamespace(now=str, _get_user=lambda environ: None), *logged)
    assert (atoms["r"], atoms["{x-real-ip}i"]) == ("GET /a%0D%0Ab%20%22%25/%E4 HTTP/1.1", "10.0.0.1")
