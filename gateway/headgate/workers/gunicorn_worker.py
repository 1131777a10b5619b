"""The worker class for gunicorn: `gunicorn -k headgate.gunicorn.Worker -w 4 shop:app`. Only this file uses gunicorn.

In: listening sockets, and the name of an application, from gunicorn's process manager (the arbiter), which forks, restarts,
reloads on SIGHUP and upgrades on SIGUSR2. Out: a worker that serves the application and the gateway on our HTTP server. No
Redis connection, greenlet or loop starts before the fork. gevent patches the worker, never the arbiter.

The first workers of an arbiter check Redis before they serve. If it is unusable they end the arbiter, with the exit status of
`headgate serve`. Once a worker has served, later ones skip this check, so the arbiter keeps running while Redis is unreachable.

A worker is BOOTING until it listens, then SERVING, then DRAINING (scoreboard.py). After SIGTERM it keeps serving while a younger
worker boots, at most for SUCCESSOR_S and until a second SIGTERM, so that a reload does not leave the port without a listener.
If the younger worker ends while it boots, this one ignores the SIGTERM.
Then it stops listening, moves its clients and finishes its requests, and ends. It has the shorter of `HEADGATE_DRAIN_S` and the
rest of gunicorn's graceful_timeout for this.

It relies on this private API of gunicorn. Each has a contract test. The arbiter creates a worker object before it forks, and its
handlers put signals into SIG_QUEUE. `alive` and signals ask a worker to end. `tmp.notify` is its heartbeat. Settings have their
defaults. A reload waits with `reap_workers`. `reexec` executes START_CTX, and `reexec_pid` has the process id.
"""

from __future__ import annotations

import atexit
import importlib
import math
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import partial
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import quote

from headgate.installation import MissingExtra, needing

with needing("gunicorn", "serving with several workers"):
    import gunicorn.arbiter
    from gunicorn.app.base import BaseApplication
    from gunicorn.config import Config
    from gunicorn.errors import HaltServer
    from gunicorn.workers.base import Worker as BaseWorker

from headgate.errors import HeadgateError
from headgate.runtime.operator_lines import complain, open_closed_streams, say
from headgate.runtime.patching import plugins_loaded_once
from headgate.settings.settings import DEVELOPMENT, LET_IN, Settings, environment

from .gunicorn_settings import REFUSED, WITHOUT_MEANING, named
from .scoreboard import Scoreboard, State, turns
from .settings_file import SettingsFile

if TYPE_CHECKING:
    from flask import Flask

    from headgate.flask.extension import Headgate
    from headgate.transport.http_server import HTTPServer
    from headgate.transport.http_wsgi import WsgiExchange

    from .peer_workers import PeerWorkers

_DEFAULTS = Config().settings
# The part of graceful_timeout reserved for the steps after the drain. gunicorn kills a worker at its end.
END_S = 2.0
# The arbiter imports these for its workers, so that a replacement starts sooner. gevent may patch the process after their
# import. Not redis and python-socketio, which bind `sleep` or import a library that does.
_IMPORTED_BEFORE = ("flask", "prometheus_client", "structlog", "msgspec", "cryptography", "gevent.monkey")
# How long an ending worker keeps serving while a younger one boots, because requests wait in the backlog if neither serves. A
# boot takes 0.8 s of CPU, and took 17 to 25 s on two cores under load.
SUCCESSOR_S = 60.0
BUS_S = 10.0
POLL_S = 0.05
HEARTBEAT_S = 1.0
# The longest pause of a worker before its boot, after others have died in theirs.
MAX_PAUSE_S = 5.0
_STOPS = {signal.SIGINT, signal.SIGQUIT, signal.SIGTERM}
# Signals that make an earlier SIGHUP pointless.
_OUTDATES_RELOAD = {signal.SIGHUP, *_STOPS}
# gunicorn's exit code for an application that failed to load, which also ends the arbiter.
APP_LOAD_ERROR: int = gunicorn.arbiter.Arbiter.APP_LOAD_ERROR


def graceful_timeout_s(drain_s: float) -> int:
    """Return the graceful_timeout that lets a worker wait for its successor and then drain for `drain_s`.

    It has END_S twice, because a worker killed at its end loses its last metrics.
    """
    return math.ceil(SUCCESSOR_S + drain_s + 2 * END_S)


class ArbiterState:
    """The shared scoreboard and private folder of one arbiter's workers. The arbiter creates them before its first fork."""

    _of_process: tuple[int, ArbiterState] | None = None

    def __init__(self, owner: tuple[int, int] | None) -> None:
        self.scoreboard = Scoreboard()
        self.folder = Path(tempfile.mkdtemp(prefix="headgate-"))
        if owner is not None:
            os.chown(self.folder, *owner)
        self._cfg: object = None
        self._file: SettingsFile | None = None
        self.fault: HeadgateError | None = None
        atexit.register(self._remove, os.getpid())

    def follow(self, cfg: object, file: SettingsFile | None) -> None:
        """Read the configuration file at the start, and again when the arbiter has reloaded its configuration (SIGHUP).

        If the file is invalid after a SIGHUP, the new workers keep the settings of the old ones.
        """
        if cfg is self._cfg:
            return  # this worker replaces an ended one
        is_first, self._cfg = self._file is None, cfg
        if self._file is None:
            self._file = file or SettingsFile.of_config(None)
        try:
            self._file.put(self._file.read(environment()), environment())
            self.fault = None
        except HeadgateError as error:
            if is_first:
                self.fault = error  # the first worker reports it and ends the arbiter
            else:
                faults = getattr(error, "faults", error.lines())
                complain(f"settings not reloaded, the previous ones stay in force: {'; '.join(faults)}")
            return
        if not is_first and self._file.path is not None:
            say(f"settings reloaded from {self._file.path}")

    @classmethod
    def here(cls, owner: tuple[int, int] | None = None) -> ArbiterState:
        """Return the state of this arbiter process. `owner` is the user and group of the workers, if different."""
        if cls._of_process is None or cls._of_process[0] != os.getpid():
            cls._of_process = (os.getpid(), cls(owner))
        return cls._of_process[1]

    def is_first(self, what: str) -> bool:
        """Return whether no worker has called this before. The first caller reports a fault that all workers have."""
        try:
            (self.folder / f"reported-{what}").touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    def has_reported(self, what: str) -> bool:
        """Return whether a worker has called `is_first` for this."""
        return (self.folder / f"reported-{what}").exists()

    def _remove(self, process_id: int) -> None:
        if os.getpid() == process_id:
            shutil.rmtree(self.folder, ignore_errors=True)


class Worker(BaseWorker):  # type: ignore[misc]
    """See the module."""

    alive: bool

    def __init__(self, age: int, ppid: int, sockets: list[Any], app: Any, timeout: float, cfg: Any, log: Any) -> None:
        super().__init__(age, ppid, sockets, app, timeout, cfg, log)
        foreign = (cfg.uid, cfg.gid) if (cfg.uid, cfg.gid) != (os.geteuid(), os.getegid()) else None
        self._arbiter_state = ArbiterState.here(foreign)
        self._arbiter_state.follow(cfg, getattr(app, "settings_file", None))
        self._row = self._arbiter_state.scoreboard.take(age)
        self._requests = 0
        self._servers: list[HTTPServer] = []
        self._may_have_successor = True
        self._successors: set[int] = set()

    @classmethod
    def check_config(cls, cfg: Any, log: Any) -> None:
        """Refuse a missing extra, and settings that the worker cannot honour; list ignored ones. The arbiter calls it once.

        Raises RuntimeError, which gunicorn prints before it ends.
        """
        open_closed_streams()
        changed = {name: cfg.settings[name].get() for name in cfg.settings if _is_set(cfg, name)}
        if faults := named(changed, REFUSED):
            raise RuntimeError("the worker class headgate.gunicorn.Worker refuses " + "; ".join(faults))
        for line in named(changed, WITHOUT_MEANING):
            log.warning("this setting has no meaning for headgate.gunicorn.Worker: %s", line)
        try:
            with needing("server", "headgate.gunicorn.Worker"):
                for name in _IMPORTED_BEFORE:
                    importlib.import_module(name)
        except MissingExtra as error:
            raise RuntimeError(str(error)) from error

    # -- from the fork to the end -------------------------------------------------------------------------------------

    def init_process(self) -> None:
        """Start after the fork."""
        self._arbiter_state.scoreboard.begin(self._row.slot, os.getpid())
        # The arbiter's handler, unless a hook of gunicorn has set another, queues the signals since the fork.
        inherited = getattr(signal.getsignal(signal.SIGTERM), "__self__", None)
        self._end_on_signals()
        queued: Any = getattr(inherited, "SIG_QUEUE", None)
        while queued is not None and not queued.empty():
            if queued.get() in _STOPS:
                self._end_unserved()
        from gevent import monkey

        if self.cfg.preload_app:  # set by a reload, because the arbiter checks only the first configuration
            raise RuntimeError("preload_app: the application is loaded after the fork")
        with plugins_loaded_once():
            monkey.patch_all()
        super().init_process()

    def init_signals(self) -> None:
        """End on gunicorn's signals. Once it serves, `run` drains on SIGTERM. The arbiter handles Ctrl-C."""
        from headgate.runtime.loop import Signal

        super().init_signals()
        signal.set_wakeup_fd(-1)
        self._asked, self._at_once = Signal(), Signal()
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        self._end_on_signals()

    def handle_abort(self, sig: int, frame: FrameType | None) -> None:
        """Handle the arbiter's signal after `timeout` seconds without a heartbeat."""
        complain(f"worker {self._row.number} was blocked for {self.cfg.timeout} s and ends; another one starts")
        super().handle_abort(sig, frame)

    def load_wsgi(self) -> None:
        """Load and prepare the application. On failure the worker ends, with the arbiter if no worker has served."""
        from headgate.redis.client import describe_server
        from headgate.runtime import logging as logs
        from headgate.runtime.standard_streams import never_block

        from .application import made_ready

        try:
            if self._arbiter_state.fault is not None:
                raise self._arbiter_state.fault
            if failed := self._arbiter_state.scoreboard.failed_boots:  # each boot takes 0.8 s of CPU
                time.sleep(min(failed * HEARTBEAT_S, MAX_PAUSE_S))
                self.tmp.notify()
            never_block()
            written = Settings.from_environment("HEADGATE_LOG_")
            logs.configure(written.log_level, self._row.number, written.log_format)
            super().load_wsgi()
            self.wsgi = made_ready(self.app.wsgi(), "gunicorn's application")
            if not self._arbiter_state.scoreboard.has_served:
                describe_server(self.wsgi.extensions["headgate"].settings.redis_url)
        except HeadgateError as error:
            self._end_arbiter(error)
        except Exception:
            if not self._arbiter_state.scoreboard.has_served:
                raise
            self.log.exception("the application cannot be loaded")
            self._end_alone()

    def run(self) -> None:
        """Serve until asked to end. The arbiter sees a heartbeat as long as the loop runs."""
        from headgate.runtime.heap import Heap
        from headgate.runtime.loop import on_signal, repeat
        from headgate.runtime.metrics import HTTP_CONNECTIONS

        from .application import async_views, clients_of, start_gateway
        from .peer_workers import PeerWorkers, letters_of

        on_signal(signal.SIGTERM, self._terminate)
        on_signal(signal.SIGQUIT, self._end_at_once)
        if not self.alive:
            return
        heartbeat = repeat(min(HEARTBEAT_S, self.timeout or HEARTBEAT_S), self._beat)
        app: Flask = self.wsgi
        gate: Headgate = app.extensions["headgate"]
        self._gateway = gateway = gate.gateway
        gateway.own(letters_of(self._row.slot))
        peer_workers = PeerWorkers(
            self._arbiter_state.scoreboard,
            self._arbiter_state.folder,
            self._row.slot,
            gate.ready,
            lambda *taken: self._servers[0].adopt(*taken),
        )
        app.extensions["headgate.workers"] = peer_workers.health, peer_workers.exposition
        self._servers = [self._server(sock, app, gate, peer_workers) for sock in self.sockets]
        HTTP_CONNECTIONS.set_function(lambda: sum(len(server.connections) for server in self._servers))
        for what, lines in (("not-ready", start_gateway(gate, self._asked)), ("async-views", async_views(app))):
            if lines and self._arbiter_state.is_first(what):
                for line in lines:
                    complain(line)
        if gate.settings.dev and self._arbiter_state.is_first("development"):
            say(DEVELOPMENT)
        if gate.lets_nobody_in and self._arbiter_state.is_first("nobody"):
            complain(f"nobody may connect: {LET_IN}")
        heap = Heap(partial(clients_of, gate))
        heap.start()
        for server in self._servers:
            server.start()
        self._move(State.SERVING)
        is_over = False
        while not is_over:
            while not self._asked.wait(HEARTBEAT_S) and self.alive:
                if self.ppid != os.getppid():
                    complain(f"worker {self._row.number} ends: its process manager is gone")
                    break
            is_over = self._drain(gateway)
        heap.close()
        peer_workers.close()
        gate.close()
        heartbeat.stop()
        if self._arbiter_state.scoreboard.row(self._row.slot).state is not State.ALONE:
            self._move(State.FREE)

    # -- private ------------------------------------------------------------------------------------------------------

    def _end_arbiter(self, error: HeadgateError) -> NoReturn:
        """Report why no worker can serve, and end the arbiter.

        One worker does this for all with the same fault. If two ended with this code at once, gunicorn would print a traceback.
        """
        if self._arbiter_state.scoreboard.has_served:
            for line in error.lines():
                complain(line)
            self._end_alone()
        if self._arbiter_state.is_first("fault"):
            for line in error.lines():
                complain(line)
            sys.exit(APP_LOAD_ERROR)
        self._asked.wait(BUS_S)
        sys.exit(0)

    def _end_alone(self) -> NoReturn:
        """End this worker, which cannot load the application, but not the arbiter, because the old workers still serve."""
        complain(f"worker {self._row.number} cannot load the application and ends")
        sys.exit(1)

    def _server(self, sock: Any, app: Flask, gate: Headgate, peer_workers: PeerWorkers) -> HTTPServer:
        from dataclasses import replace

        from headgate.transport.http_limits import BACKLOG, HttpLimits
        from headgate.transport.http_server import HTTPServer

        limits = HttpLimits.of(gate.gateway.settings)
        if _is_set(self.cfg, "keepalive"):
            limits = replace(limits, keep_alive_s=float(self.cfg.keepalive))
        if _is_set(self.cfg, "worker_connections"):
            limits = replace(limits, max_connections=self.cfg.worker_connections)
        listener = sock.sock
        if not _is_set(self.cfg, "backlog"):
            listener.listen(BACKLOG)  # changes only the backlog, because the socket already listens
        routes = dict(gate.routes(app))
        if logs_access := self.log.access_log_enabled:  # but requests below WSGI are not logged
            routes = {key: route for key, route in routes.items() if key[1].startswith("/socket.io")}
        server = HTTPServer(listener, app, limits=limits, routes=routes)
        if self.cfg.max_requests > 0:
            server.on_request = self._count_request
        if logs_access:
            server.access_log = self._log_access
        turn_s = turns()
        scoreboard, index = self._arbiter_state.scoreboard, self._row.slot

        def leave_s() -> float:
            own = self._connections()
            scoreboard.count(index, own)
            if not (pause_s := turn_s(own, scoreboard.connections())):
                scoreboard.count(index, own + 1)  # includes the one being accepted
            return pause_s

        server.max_accept = 1  # then check the others again
        server.leave_s = leave_s
        server.to_owner = peer_workers.hand_over
        return server

    def _connections(self) -> int:
        return sum(len(server.connections) for server in self._servers) + self._gateway.sessions

    def _beat(self) -> None:
        self.tmp.notify()
        if self._servers:
            self._arbiter_state.scoreboard.count(self._row.slot, self._connections())

    def _move(self, state: State) -> None:
        self._arbiter_state.scoreboard.move(self._row.slot, state)

    def _end_on_signals(self) -> None:
        # No loop runs while the application loads. Nothing is served yet, so the worker ends at once.
        for number in (signal.SIGTERM, signal.SIGQUIT):
            signal.signal(number, self._end_unserved)

    def _end_unserved(self, *_: object) -> None:
        if self.alive:
            self.alive = False  # for `run`, because code that is loading may discard the exception
            self._move(State.FREE)
            sys.exit(0)  # once, because a second signal would interrupt the interpreter while it ends

    def _terminate(self) -> None:
        # A stop also signals the successor of a worker that a reload has signalled before. Another reload has started new ones.
        before, self._successors = self._successors, self._booting()
        self._may_have_successor = not self._asked.is_set() or not self._successors <= before
        self._end()

    def _end(self) -> None:
        self.alive = False
        self._asked.set()

    def _end_at_once(self) -> None:
        self._at_once.set()
        self.cfg.worker_int(self)
        self._end()

    def _drain(self, gateway: Any) -> bool:
        """Wait for booting successors, and drain. Returns False if they have failed, so that this worker keeps serving."""
        from headgate.runtime.loop import Signal, sleep, spawn
        from headgate.transport.http_server import finish_requests

        began_s = time.monotonic()
        until_s = began_s + self._successor_s(gateway.settings.drain_s)
        while not self._at_once.is_set() and self._may_have_successor and time.monotonic() < until_s:
            if not self._booting():
                break
            sleep(POLL_S)
        if self._has_failed_successor():
            self._asked.clear()
            self._successors = set()
            self.alive = True
            return False
        if self._arbiter_state.scoreboard.row(self._row.slot).state is State.SERVING:
            self._move(State.DRAINING)
        for server in self._servers:
            server.close()
        if self._at_once.is_set():
            return True
        alone = gateway.retire()
        scoreboard = self._arbiter_state.scoreboard
        if alone:
            self._move(State.ALONE)
        elif gateway.settings.drain_s:
            # The other workers of this machine may be leaving, too. The last of them knows whether there is another gateway.
            until_s = time.monotonic() + END_S
            while scoreboard.none_serves() and not (alone := scoreboard.someone_was_last()) and time.monotonic() < until_s:
                sleep(POLL_S)
        within_s = self._graceful_s(gateway.settings.drain_s, time.monotonic() - began_s)
        over, drain_began_s = Signal(), time.monotonic()

        def drain() -> None:
            try:
                gateway.drain(within_s, alone=alone)
                finish_requests(self._servers, drain_began_s + within_s - time.monotonic())
            finally:
                over.set()

        spawn(drain)
        while not self._at_once.is_set() and not over.wait(POLL_S):
            pass
        return True

    def _has_failed_successor(self) -> bool:
        """Return whether all workers that were to succeed this one have ended."""
        scoreboard = self._arbiter_state.scoreboard
        if not self._successors or not self._may_have_successor or scoreboard.is_stopping:
            return False
        return self._successors.isdisjoint(row.age for row in scoreboard.rows())

    def _booting(self) -> set[int]:
        """Return the ages of younger booting workers."""
        return {row.age for row in self._arbiter_state.scoreboard.rows() if row.state is State.BOOTING and row.age > self.age}

    def _graceful_s(self, wanted_s: float, used_s: float = 0.0) -> float:
        return max(0.0, min(wanted_s, float(self.cfg.graceful_timeout) - END_S - used_s))

    def _successor_s(self, drain_s: float) -> float:
        """Return how long to wait for a successor: graceful_timeout less the drain, but at least half of it."""
        graceful_s = self._graceful_s(math.inf)
        return min(SUCCESSOR_S, max(graceful_s - drain_s, graceful_s / 2))

    def _count_request(self) -> None:
        self._requests += 1
        if self._requests >= self.max_requests and self.alive and self._may_make_room():
            self.log.info("worker %s has answered max_requests and makes room for another", self._row.number)
            self._move(State.DRAINING)  # before the drain, so that no other worker makes room at the same time
            self._end()

    def _may_make_room(self) -> bool:
        """Return whether all others serve, because gunicorn starts a successor only after the end of this worker.

        Workers share the connections evenly, so all reach max_requests at about the same time. A worker with twice as many
        requests no longer waits.
        """
        others = [row.state for row in self._arbiter_state.scoreboard.rows() if row.slot != self._row.slot]
        is_only_one = not others and self.cfg.workers == 1
        return is_only_one or (bool(others) and set(others) == {State.SERVING}) or self._requests >= 2 * self.max_requests

    def _log_access(self, exchange: WsgiExchange, sent_bytes: int, seconds: float) -> None:
        status = exchange.status or "101 Switching Protocols"
        answer = SimpleNamespace(status=status, headers=exchange.headers, sent=sent_bytes)
        # Encoded again, because a line break would start another line. Without the query, which may have a session id.
        path = quote(exchange.environ.get("PATH_INFO", ""), "/!$&'()*+,;=:@~", "latin-1")
        environ = {**exchange.environ, "PATH_INFO": path, "RAW_URI": path}
        fields = [(name[5:].replace("_", "-"), value) for name, value in environ.items() if name.startswith("HTTP_")]
        self.log.access(answer, fields, environ, timedelta(seconds=seconds))


def _is_set(cfg: Any, name: str) -> bool:
    """Return whether a setting differs from gunicorn's default."""
    return bool(cfg.settings[name].get() != _DEFAULTS[name].get())


class _ReloadFailed(Exception):
    """The new workers of a reload have ended."""


class Arbiter(gunicorn.arbiter.Arbiter):  # type: ignore[misc]
    """gunicorn's process manager for `headgate serve`. It drains on the first Ctrl-C, and reports when all workers serve."""

    on_ready: Callable[[Any], None] | None = None
    on_tick: Callable[[], None] | None = None
    _is_reloading = _is_stopping = False
    _age_before_reload = 0

    def reload(self) -> None:
        """Replace the workers. Returns when the old ones have ended or the new ones have failed."""
        self._is_reloading, self._age_before_reload = True, self.worker_age
        try:
            super().reload()
        except _ReloadFailed:
            complain("not reloaded: the new workers have failed")
        finally:
            self._is_reloading = False

    def reap_workers(self) -> None:
        """Record ended workers. A reload calls this while it waits, so this also interrupts it for a stop or a new reload.

        Raises _ReloadFailed if none of the new workers is left.
        """
        try:
            super().reap_workers()
        except HaltServer:  # a worker could not start
            if not self._is_stopping:
                raise
        if not self._is_reloading:
            return
        if all(worker.age <= self._age_before_reload for worker in self.WORKERS.values()) and self.WORKERS:
            raise _ReloadFailed
        caught: list[int] = super().wait_for_signals(timeout=0)
        stop = next((each for each in caught if each in _STOPS), None)
        for each in caught[caught.index(stop) + 1 :] if stop is not None else caught:
            self.signal(each, None)
        if stop is not None:
            self._is_reloading = False
            (self.handle_quit if stop == signal.SIGQUIT else self.handle_term)()

    def reexec(self) -> None:
        """Start a process manager by the same command, to replace this one."""
        # gunicorn uses sys.argv, where `python -m headgate` is a file. The folder of that file would hide other packages.
        self.START_CTX["args"] = [sys.executable, *sys.orig_argv[1:]]
        super().reexec()

    def stop(self, graceful: bool = True) -> None:
        """End the workers, including one being forked."""
        self._is_stopping = True
        ArbiterState.here().scoreboard.stop()
        super().stop(graceful)

    def handle_term(self) -> None:
        """Drain the workers, then end."""
        say("stopping")
        super().handle_term()

    def handle_int(self) -> None:
        """Drain as for SIGTERM. A second Ctrl-C ends the workers at once."""
        self.handle_term()

    def wait_for_signals(self, timeout: float = 1.0) -> list[int]:
        """Wait for signals, with shorter waits until all workers serve.

        gunicorn waits for the old workers in each reload, so later signals other than a stop wait, too. Of several reloads only
        the last is kept, and none before a stop.
        """
        caught: list[int] = super().wait_for_signals(timeout=timeout if self.on_ready is None else POLL_S)
        if self.on_ready is not None:
            rows = ArbiterState.here().scoreboard.rows()
            if len(rows) >= self.num_workers and all(row.state is State.SERVING for row in rows):
                self.on_ready(self.LISTENERS[0])
                self.on_ready = None
        if self.on_tick is not None and not self.master_pid:
            self.on_tick()
        return [each for at, each in enumerate(caught) if each != signal.SIGHUP or _OUTDATES_RELOAD.isdisjoint(caught[at + 1 :])]


class _Application(BaseApplication):  # type: ignore[misc]
    """An application for the arbiter, with gunicorn's settings and a function that loads the application in each worker."""

    def __init__(self, options: Mapping[str, object], load: Callable[[], Flask], settings_file: SettingsFile | None) -> None:
        self._options, self._load, self.settings_file = options, load, settings_file
        super().__init__()

    def load_config(self) -> None:
        for name, value in self._options.items():
            self.cfg.set(name, value)

    def load(self) -> Flask:
        return self._load()


def run_arbiter(
    options: Mapping[str, object],
    load: Callable[[], Flask],
    on_ready: Callable[[Any], None],
    on_tick: Callable[[], None] | None = None,
    settings_file: SettingsFile | None = None,
) -> tuple[int, bool]:
    """Run gunicorn's process manager until it is stopped. Does not return in a worker.

    Returns its exit status, and whether another process manager replaces it (SIGUSR2).

    Args:
        options: gunicorn's settings.
        load: returns the application, in each worker.
        on_ready: called once all workers serve, with the first listener.
        on_tick: called once a second, except by a process manager that is about to replace another.
        settings_file: read again on SIGHUP. None means the file of HEADGATE_CONFIG, or ./headgate.toml.
    """
    arbiter = Arbiter(_Application({**options, "worker_class": Worker}, load, settings_file))
    arbiter.on_ready, arbiter.on_tick = on_ready, on_tick
    me = os.getpid()
    try:
        arbiter.run()
    except SystemExit as end:
        if os.getpid() != me:
            raise
        return end.code if isinstance(end.code, int) else 1, arbiter.reexec_pid != 0
    return 0, False
