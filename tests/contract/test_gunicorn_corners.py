"""The corners of gunicorn that workers/gunicorn_worker.py relies on. A new version that moves one fails here."""

import inspect
import subprocess
import sys

import gunicorn.arbiter
from gunicorn.config import Config
from gunicorn.workers.base import Worker as BaseWorker

from headgate.gunicorn import Worker

# In a separate process, because this one has a loop.
BEFORE_THE_FORK = """
import gunicorn.config, logging, sys
from headgate.gunicorn import Worker
Worker.check_config(gunicorn.config.Config(), logging.getLogger())
from gevent import _hub_local, monkey
assert _hub_local.get_hub_if_exists() is None
assert not monkey.is_module_patched("socket")
print(sorted({"redis", "socketio", "engineio"} & sys.modules.keys()))
"""


def test_the_arbiter_makes_a_worker_before_it_forks() -> None:
    """There the worker takes its row of the board, which older workers see before they are asked to end."""
    source = inspect.getsource(gunicorn.arbiter.Arbiter.spawn_worker)
    assert source.index("self.worker_class(") < source.index("os.fork()")
    assert list(inspect.signature(BaseWorker.__init__).parameters) == list(inspect.signature(Worker.__init__).parameters)


def test_the_arbiter_queues_the_signals_that_a_new_worker_gets() -> None:
    """Until the worker has its own handlers, in its copy of the arbiter."""
    source = inspect.getsource(gunicorn.arbiter.Arbiter)
    assert "signal.signal(s, self.signal)" in source
    assert "self.SIG_QUEUE.put_nowait(sig)" in inspect.getsource(gunicorn.arbiter.Arbiter.signal)


def test_a_reload_starts_the_new_workers_before_it_ends_the_old_ones() -> None:
    """So an old worker finds its successor booting."""
    source = inspect.getsource(gunicorn.arbiter.Arbiter.reload)
    assert source.index("self.spawn_worker()") < source.index("self.manage_workers()")


def test_a_reload_reaps_workers_while_it_waits() -> None:
    """There our arbiter learns of a stop, and raises what ends gunicorn's main loop."""
    source = inspect.getsource(gunicorn.arbiter.Arbiter.reload)
    assert source.index("self.manage_workers()") < source.index("while ") < source.index("self.reap_workers()")
    assert "except (StopIteration, KeyboardInterrupt):\n            self.halt()" in inspect.getsource(
        gunicorn.arbiter.Arbiter.run
    )


def test_an_upgrade_executes_what_our_arbiter_has_set() -> None:
    """It also notes the process that replaces it, for as long as that one lives."""
    source = inspect.getsource(gunicorn.arbiter.Arbiter.reexec)
    assert "os.execvpe(self.START_CTX[0], self.START_CTX['args'], environ)" in source
    assert "self.reexec_pid = os.fork()" in source
    assert "self.reexec_pid = 0" in inspect.getsource(gunicorn.arbiter.Arbiter.reap_workers)


def test_the_arbiter_asks_the_class_about_its_settings_before_it_forks() -> None:
    """A RuntimeError there is one line, and the end."""
    source = inspect.getsource(gunicorn.arbiter.Arbiter.start)
    assert "self.worker_class.check_config(self.cfg, self.log)" in source
    assert "except RuntimeError" in inspect.getsource(gunicorn.app.base.BaseApplication.run)


def test_settings_tell_their_defaults() -> None:
    """A changed setting differs from that of a new configuration."""
    changed = Config()
    changed.set("keepalive", 30)
    assert changed.settings["keepalive"].get() != Config().settings["keepalive"].get()


def test_an_inherited_descriptor_goes_before_the_address() -> None:
    """`headgate serve` hands its listener over as fd://N, and an upgrade inherits it."""
    config = Config()
    config.set("bind", ["fd://7"])
    assert config.address == [7]


def test_nothing_of_redis_greenlets_or_the_loop_begins_before_the_fork() -> None:
    """The process manager only forks."""
    done = subprocess.run([sys.executable, "-c", BEFORE_THE_FORK], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr
