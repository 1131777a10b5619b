"""The private Redis: its start, its socket, its end with its parent, and the message when it cannot start."""

import itertools
import os
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import textwrap
import time
from contextlib import closing
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headgate import BusRefused, BusUnavailable
from headgate.redis import data_folder, embedded
from headgate.redis.client import Client, call, check_server, open_client
from headgate.redis.data_folder import find_private_redis
from headgate.redis.embedded import EmbeddedRedis, find_server, start_private_redis
from tests.support.processes import has_ended, stat_of
from tests.support.programs import NEW, program
from tests.support.redis_server import DEADLINE_S, wait_until


@pytest.fixture
def server(redis_server: EmbeddedRedis, redis_url: str) -> EmbeddedRedis:
    """The server that the tests share is a private one; no test here ends it."""
    return redis_server


@pytest.fixture
def folder(server: EmbeddedRedis) -> Path:
    """Its data folder, which it made."""
    return Path(server.url.removeprefix("unix://")).parent


def setting(client: Client, name: str) -> Any:
    return call(client, "CONFIG", "GET", name)[1].decode()


def answers(client: Client) -> bool:
    try:
        return bool(call(client, "PING"))
    except BusUnavailable:
        return False


# Running -------------------------------------------------------------------------------------------------------------------


def test_it_listens_on_a_private_socket_only(server: EmbeddedRedis, redis_client: Client, folder: Path) -> None:
    """No TCP port, and a folder and a socket that only this user can open."""
    path = folder / "redis.sock"

    assert server.url == f"unix://{path}"
    assert setting(redis_client, "port") == "0"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(path.stat().st_mode) == 0o700


def test_its_memory_is_bounded_and_never_evicts(redis_client: Client) -> None:
    """A full server refuses, as eviction would lose the log silently."""
    assert setting(redis_client, "maxmemory-policy") == "noeviction"
    assert int(setting(redis_client, "maxmemory")) == 1024**3
    assert "pubsub 134217728 67108864 60" in setting(redis_client, "client-output-buffer-limit")
    assert (setting(redis_client, "appendonly"), setting(redis_client, "save")) == ("yes", "")


def test_it_describes_itself(server: EmbeddedRedis, redis_client: Client) -> None:
    """Name, version and origin; the pid is the server's own."""
    name, version = check_server(redis_client)

    assert server.description.startswith(f"{name} {version} from ")
    assert call(redis_client, "INFO", "server")["process_id"] == server.pid


def test_its_data_survives_an_orderly_end_and_is_loaded_before_it_counts_as_started(tmp_path: Path) -> None:
    """Clients can resume across a restart of the gateway. The first command is answered, although loading takes a while."""
    with start_private_redis(tmp_path) as server:
        client = open_client(server.url, timeout_s=DEADLINE_S)
        call(client, "EVAL", "for i = 1, 300000 do redis.call('SET', i, i) end", 0)
        client.close()

    with start_private_redis(tmp_path) as server:
        client = open_client(server.url)
        assert call(client, "DBSIZE") == 300_000
        client.close()


def test_close_ends_everything_and_is_idempotent(tmp_path: Path) -> None:
    """No process, no socket, no lock left; other commands see that there is none."""
    server = start_private_redis(tmp_path)
    assert find_private_redis(tmp_path) == server.url

    server.close()
    server.close()

    assert not server.is_running
    assert not (tmp_path / "redis.sock").exists()
    assert find_private_redis(tmp_path) is None


def test_a_forked_child_does_not_end_it(server: EmbeddedRedis, folder: Path, redis_client: Client) -> None:
    """A worker process that exits runs the same exit code; the server, and the record of it, are its parent's."""
    child = os.fork()
    if child == 0:
        server.close()
        os._exit(0)
    os.waitpid(child, 0)

    assert call(redis_client, "PING") is True
    assert find_private_redis(folder) == server.url


def test_it_is_started_again_with_its_data(tmp_path: Path) -> None:
    """After a kill, at the same place, with its acknowledged data, and it still ends with us. One that runs is left alone."""
    with start_private_redis(tmp_path) as server:
        with closing(open_client(server.url)) as client:
            call(client, "SET", "kept", "1")
        first, url = server.pid, server.url
        server.start_again()
        assert server.pid == first
        os.kill(first, signal.SIGKILL)
        wait_until(lambda: not server.is_running, "the server to be gone")
        server.start_again()
        assert (server.pid != first, server.url, find_private_redis(tmp_path)) == (True, url, url)
        with closing(open_client(server.url)) as client:
            assert call(client, "GET", "kept") == b"1"
        second = server.pid
    wait_until(lambda: has_ended(second), "the second server to be gone")
    server.start_again()
    assert not server.is_running


def test_a_crash_brings_back_what_its_file_held_at_a_moment(tmp_path: Path) -> None:
    """Later writes are gone, as after a crash of the machine; a moment of another file is refused."""
    with start_private_redis(tmp_path) as server, closing(open_client(server.url)) as client:
        call(client, "CONFIG", "SET", "appendfsync", "always")
        call(client, "SET", "kept", 1)
        moment = server.moment()
        call(client, "SET", "lost", 1)
        before = server.pid
        with pytest.raises(BusRefused, match="that state is gone"):
            server.crash({tmp_path / "other": 0})
        assert server.pid == before
        server.crash(moment)
        assert server.pid != before
        with closing(open_client(server.url)) as again:
            assert call(again, "EXISTS", "kept", "lost") == 1
        server.close()
        with pytest.raises(BusRefused, match="that state is gone"):
            server.crash(moment)


# Ending with the parent ------------------------------------------------------------------------------------------------------

PARENT = """
    import os, sys, threading, time
    if {patched}:
        from gevent import monkey
        monkey.patch_all()
    from headgate.redis.embedded import start_private_redis
    def run():
        server = start_private_redis(sys.argv[1])
        print(server.pid, flush=True)
        {then}
    if {in_thread}:
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
        time.sleep(600)
    run()
"""


def start_parent(
    data: Path, *, patched: bool = False, in_thread: bool = False, then: str = "time.sleep(600)", **environment: str
) -> Any:
    """Start a process that starts a private server; return it and the server's pid."""
    code = textwrap.dedent(PARENT).format(patched=patched, in_thread=in_thread, then=then)
    command = [sys.executable, "-c", code, str(data)]
    parent = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, **environment})
    assert parent.stdout is not None
    return parent, int(parent.stdout.readline())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["ended by the kernel", "by itself"])
def test_it_ends_with_its_parent_however_that_ends(tmp_path: Path, number: signal.Signals) -> None:
    """Terminated as it would be killed, or interrupted, patched by gevent or not. Its data stays, and the next start works."""
    for patched in (False, True):
        data = tmp_path / f"patched-{patched}"
        parent, pid = start_parent(data, patched=patched)
        client = open_client(f"unix://{data}/redis.sock")
        call(client, "SET", "x", "kept")
        client.close()

        parent.send_signal(number)
        parent.wait(DEADLINE_S)

        wait_until(partial(has_ended, pid), f"the server has ended with its parent, patched: {patched}")
        with start_private_redis(data) as server:
            client = open_client(server.url)
            assert call(client, "GET", "x") == b"kept", f"patched: {patched}"
            client.close()


def kill(parent: Any, child: int) -> None:
    """Kill a parent, and wait until its child has ended too."""
    parent.kill()
    parent.wait(DEADLINE_S)
    wait_until(lambda: has_ended(child), f"process {child} has ended with its parent")


def watching_shell(pid: int) -> int:
    """Return the process id of the shell beside a server: its only child (Linux)."""
    [shell] = [int(path.name) for path in Path("/proc").glob("[0-9]*") if stat_of(path.name)[1:2] == [str(pid)]]
    return shell


@pytest.mark.skipif(sys.platform != "linux", reason="the parent-death signal is Linux only")
def test_the_parent_death_signal_alone_is_enough(tmp_path: Path) -> None:
    """After the watching shell was killed."""
    parent, pid = start_parent(tmp_path)
    shell = watching_shell(pid)
    os.kill(shell, signal.SIGKILL)
    wait_until(lambda: has_ended(shell), "the shell has ended")
    assert not has_ended(pid)

    kill(parent, pid)


@pytest.mark.skipif(sys.platform != "linux", reason="looks for the shell in /proc")
def test_the_shell_ends_nothing_when_the_server_died_by_itself(tmp_path: Path) -> None:
    """The server's number may be another process's by then. The shell just goes, and does not wait for that one to end."""
    waited = tmp_path / "waited"
    program(tmp_path / "bin" / "sleep", "", f"touch {waited}")
    parent, pid = start_parent(tmp_path, patched=True, PATH=f"{tmp_path}/bin:{os.environ['PATH']}")
    shell = watching_shell(pid)
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: has_ended(pid), "the server has ended")
    assert not has_ended(shell)

    kill(parent, shell)
    assert not waited.exists()


def test_it_outlives_the_thread_that_started_it(tmp_path: Path) -> None:
    """Only the process counts. Without the kernel's parent-death signal (it would go with the thread; macOS has none) the
    watching shell alone ends the server."""
    parent, pid = start_parent(tmp_path, in_thread=True, then="pass")
    path = f"{tmp_path}/redis.sock"
    # The thread has ended when its /proc entry has, and the process is back to one thread.
    if sys.platform == "linux":
        wait_until(lambda: len(list(Path(f"/proc/{parent.pid}/task").iterdir())) == 1, "the thread has ended")

    client = open_client(f"unix://{path}")
    assert call(client, "PING") is True
    client.close()
    assert not has_ended(pid)
    kill(parent, pid)


def test_an_ordinary_exit_ends_it(tmp_path: Path) -> None:
    """Without close: at exit."""
    parent, pid = start_parent(tmp_path, then="pass")

    assert parent.wait(DEADLINE_S) == 0

    assert has_ended(pid)
    assert not (tmp_path / "redis.sock").exists()


# Others in the folder --------------------------------------------------------------------------------------------------------


def test_a_second_start_is_refused_with_the_pid(server: EmbeddedRedis, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One server per folder; the error names it, and the remedy."""
    monkeypatch.setattr(data_folder, "LOCK_DEADLINE_S", 0.0)

    with pytest.raises(BusRefused, match=f"already running with pid {server.pid}; stop its gateway or set HEADGATE_REDIS_URL"):
        start_private_redis(folder)

    assert server.is_running
    assert find_private_redis(folder) == server.url


def test_a_server_that_does_not_answer_for_a_while_is_still_found(
    server: EmbeddedRedis, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Busy, or without a processor, while its socket is listened to."""
    monkeypatch.setattr(data_folder, "PROBE_TIMEOUT_S", 0.01)
    os.kill(server.pid, signal.SIGSTOP)
    try:
        assert find_private_redis(folder) == server.url
    finally:
        os.kill(server.pid, signal.SIGCONT)


def test_somebody_elses_live_server_on_the_socket_is_not_touched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that we did not start listens at our socket's path. It stays as it is, also if it is too busy to answer."""
    foreign = subprocess.Popen(
        [find_server()[0], "--port", "0", "--unixsocket", str(tmp_path / "redis.sock"), "--save", "", "--dir", str(tmp_path)],
        stdout=subprocess.DEVNULL,
    )
    client = open_client(f"unix://{tmp_path}/redis.sock")
    try:
        wait_until(lambda: answers(client), "the foreign server answers")
        with pytest.raises(BusRefused, match=f"already running with pid {foreign.pid}"):
            start_private_redis(tmp_path)

        monkeypatch.setattr(data_folder, "PROBE_TIMEOUT_S", 0.01)
        foreign.send_signal(signal.SIGSTOP)
        with pytest.raises(BusRefused, match="already running; stop it"):
            start_private_redis(tmp_path)

        foreign.send_signal(signal.SIGCONT)
        assert call(client, "PING") is True
    finally:
        client.close()
        foreign.kill()
        foreign.wait(DEADLINE_S)


def test_leftovers_of_a_crash_are_replaced(tmp_path: Path) -> None:
    """A socket file without a listener, and a record that was half written."""
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(tmp_path / "redis.sock"))
    (tmp_path / "redis.lock").write_bytes(b'{"socket":')

    with start_private_redis(tmp_path) as server:
        assert find_private_redis(tmp_path) == server.url


def test_a_long_path_moves_the_socket_and_others_find_it(tmp_path: Path) -> None:
    """Sockets have short names; the data stays where it was asked for. A killed server's place is used again."""
    data = tmp_path / ("deep" * 20) / ("er" * 20)
    parent, pid = start_parent(data)
    url = find_private_redis(data)
    kill(parent, pid)

    with start_private_redis(data) as server:
        path = Path(server.url.removeprefix("unix://"))
        assert server.url == url == find_private_redis(data)
        assert len(os.fsencode(path)) <= data_folder.MAX_SOCKET_PATH_BYTES
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        assert (data / "appendonlydir").is_dir()
    assert not path.parent.exists()


# Programs --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("data", ["data", "deep" * 20])
def test_a_server_that_dies_at_its_start_is_quoted(data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its last words, in one line. Neither a lock nor a folder for the socket is left."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    dying = program(tmp_path / "dying", NEW, "echo '12:M 21 Nov 2026 06:30:00.123 # Bad directive: no bananas' >&2; exit 1")

    for _ in range(2):
        with pytest.raises(BusUnavailable, match=r"died at its start: Bad directive: no bananas$"):
            start_private_redis(tmp_path / data, server=dying)
    assert not list(tmp_path.glob("headgate-*"))


def test_a_server_that_never_answers_is_given_up_and_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The deadline counts, and nothing stays."""
    pid = tmp_path / "pid"
    silent = program(tmp_path / "silent", NEW, f"echo $$ > {pid}; exec sleep 600")
    # A clock that goes, a minute per look, once the program runs, and not before, however long that takes.
    minutes = itertools.count()
    clock = SimpleNamespace(monotonic=lambda: 60 * next(minutes) if pid.exists() and pid.read_text() else 0, sleep=time.sleep)
    monkeypatch.setattr(embedded, "time", clock)

    with pytest.raises(BusUnavailable, match=r"not ready after 30 s: it logged nothing"):
        start_private_redis(tmp_path / "data", server=silent)

    assert has_ended(int(pid.read_text()))


def test_a_folder_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    """A file in its place."""
    (tmp_path / "file").write_text("")

    with pytest.raises(BusUnavailable, match=r"the data folder .*file.* cannot be used"):
        start_private_redis(tmp_path / "file")
