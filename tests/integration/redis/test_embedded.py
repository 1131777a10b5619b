"""The private Redis: what is started, where it listens, how it ends with its parent, and what is said when it cannot start."""

from __future__ import annotations

import itertools
import json
import os
import signal
import socket
import stat
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headgate import BusRefused, BusUnavailable
from headgate.publisher import Publisher
from headgate.redis import embedded
from headgate.redis.client import Client, call, check_server, open_client
from headgate.redis.embedded import EmbeddedRedis, find_private_redis, find_server, start_private_redis
from tests.support.processes import has_ended, stat_of
from tests.support.programs import NEW, program
from tests.support.redis_server import DEADLINE_S, wait_until


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EmbeddedRedis]:
    """A private server in `tmp_path / "data"`."""
    with start_private_redis(tmp_path / "data") as server:
        yield server


@pytest.fixture
def client(server: EmbeddedRedis) -> Iterator[Client]:
    """A client of it."""
    client = open_client(server.url)
    yield client
    client.close()


def setting(client: Client, name: str) -> Any:
    return call(client, "CONFIG", "GET", name)[1].decode()


def answers(client: Client) -> bool:
    try:
        return bool(call(client, "PING"))
    except BusUnavailable:
        return False


# Running -------------------------------------------------------------------------------------------------------------------


def test_it_listens_on_a_private_socket_only(server: EmbeddedRedis, client: Client, tmp_path: Path) -> None:
    """No TCP port, and a folder and a socket that only this user can open."""
    path = tmp_path / "data" / "redis.sock"

    assert server.url == f"unix://{path}"
    assert setting(client, "port") == "0"
    assert stat.S_IMODE((tmp_path / "data").stat().st_mode) == 0o700
    assert stat.S_IMODE(path.stat().st_mode) == 0o700


def test_its_memory_is_bounded_and_never_evicts(client: Client) -> None:
    """A full server refuses, as eviction would lose the log silently."""
    assert setting(client, "maxmemory-policy") == "noeviction"
    assert int(setting(client, "maxmemory")) == 1024**3
    assert "pubsub 134217728 67108864 60" in setting(client, "client-output-buffer-limit")
    assert (setting(client, "appendonly"), setting(client, "save")) == ("yes", "")


def test_it_says_what_it_is(server: EmbeddedRedis, client: Client) -> None:
    """Name, version and origin; the pid is the server's own."""
    name, version = check_server(client)

    assert server.description.startswith(f"{name} {version} from ")
    assert call(client, "INFO", "server")["process_id"] == server.pid


def test_its_data_survives_an_orderly_end(tmp_path: Path) -> None:
    """Clients can resume across a restart of the gateway."""
    for expected in (1, 2, 3):
        with start_private_redis(tmp_path) as server:
            client = open_client(server.url)
            assert call(client, "INCR", "x") == expected
            client.close()


def test_it_is_started_only_when_its_data_is_loaded(tmp_path: Path) -> None:
    """With a log so long that loading it takes a while, the first command is answered all the same."""
    with start_private_redis(tmp_path) as server:
        client = open_client(server.url, timeout_s=30)
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


def test_a_forked_child_does_not_end_it(server: EmbeddedRedis, client: Client) -> None:
    """A worker process that exits runs the same exit code; the server is its parent's."""
    child = os.fork()
    if child == 0:
        server.close()
        os._exit(0)
    os.waitpid(child, 0)

    assert call(client, "PING") is True


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
    folder: Path, *, patched: bool = False, in_thread: bool = False, then: str = "time.sleep(600)", **environment: str
) -> Any:
    """Start a process that starts a private server; return it and the server's pid."""
    code = textwrap.dedent(PARENT).format(patched=patched, in_thread=in_thread, then=then)
    command = [sys.executable, "-c", code, str(folder)]
    parent = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, **environment})
    assert parent.stdout is not None
    return parent, int(parent.stdout.readline())


@pytest.mark.parametrize("patched", [False, True], ids=["plain", "gevent"])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_it_ends_with_its_parent_however_that_ends(tmp_path: Path, patched: bool, number: signal.Signals) -> None:
    """Killed, terminated, interrupted: the server goes, its data stays, and the next start works."""
    parent, pid = start_parent(tmp_path, patched=patched)
    client = open_client(f"unix://{tmp_path}/redis.sock")
    call(client, "SET", "x", "kept")
    client.close()

    parent.send_signal(number)
    parent.wait(DEADLINE_S)

    wait_until(lambda: has_ended(pid), "the server has ended with its parent")
    with start_private_redis(tmp_path) as server:
        client = open_client(server.url)
        assert call(client, "GET", "x") == b"kept"
        client.close()


def test_the_watching_shell_alone_is_enough(tmp_path: Path) -> None:
    """Where there is no parent-death signal, as on macOS (here: when a thread starts the server)."""
    parent, pid = start_parent(tmp_path, in_thread=True)

    parent.kill()
    parent.wait(DEADLINE_S)

    wait_until(lambda: has_ended(pid), "the server has ended with its parent")


def watching_shell(pid: int) -> int:
    """Return the process id of the shell beside a server: its only child (Linux)."""
    [shell] = [int(path.name) for path in Path("/proc").glob("[0-9]*") if stat_of(path.name)[1:2] == [str(pid)]]
    return shell


@pytest.mark.skipif(sys.platform != "linux", reason="the parent-death signal is Linux only")
def test_the_parent_death_signal_alone_is_enough(tmp_path: Path) -> None:
    """When somebody killed the watching shell."""
    parent, pid = start_parent(tmp_path)
    shell = watching_shell(pid)
    os.kill(shell, signal.SIGKILL)
    wait_until(lambda: has_ended(shell), "the shell has ended")
    assert not has_ended(pid)

    parent.kill()
    parent.wait(DEADLINE_S)

    wait_until(lambda: has_ended(pid), "the server has ended with its parent")


@pytest.mark.skipif(sys.platform != "linux", reason="looks for the shell in /proc")
def test_the_shell_ends_nothing_when_the_server_died_by_itself(tmp_path: Path) -> None:
    """The server's number may be somebody else's by then: the shell just goes, and does not wait for that one to end."""
    waited = tmp_path / "waited"
    program(tmp_path / "bin" / "sleep", "", f"touch {waited}")
    parent, pid = start_parent(tmp_path, patched=True, PATH=f"{tmp_path}/bin:{os.environ['PATH']}")
    shell = watching_shell(pid)
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: has_ended(pid), "the server has ended")
    assert not has_ended(shell)

    parent.kill()
    parent.wait(DEADLINE_S)

    wait_until(lambda: has_ended(shell), "the shell has ended")
    assert not waited.exists()


def test_it_outlives_the_thread_that_started_it(tmp_path: Path) -> None:
    """Only the process counts: the kernel's parent-death signal alone would go with the thread."""
    parent, pid = start_parent(tmp_path, in_thread=True, then="pass")
    path = f"{tmp_path}/redis.sock"
    # The thread has ended when its /proc entry has: the process is back to one thread.
    if sys.platform == "linux":
        wait_until(lambda: len(list(Path(f"/proc/{parent.pid}/task").iterdir())) == 1, "the thread has ended")

    client = open_client(f"unix://{path}")
    assert call(client, "PING") is True
    client.close()
    assert not has_ended(pid)
    parent.kill()
    parent.wait(DEADLINE_S)
    wait_until(lambda: has_ended(pid), "the server has ended with its parent")


def test_an_ordinary_exit_ends_it(tmp_path: Path) -> None:
    """Without close: at exit."""
    parent, pid = start_parent(tmp_path, then="pass")

    assert parent.wait(DEADLINE_S) == 0

    assert has_ended(pid)
    assert not (tmp_path / "redis.sock").exists()


# Others in the folder --------------------------------------------------------------------------------------------------------


def test_a_second_start_is_refused_with_the_pid(server: EmbeddedRedis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One server per folder; the error says which, and what to do."""
    monkeypatch.setattr(embedded, "LOCK_DEADLINE_S", 0.05)

    with pytest.raises(BusRefused, match=f"already running with pid {server.pid}; stop it or set HEADGATE_REDIS_URL"):
        start_private_redis(tmp_path / "data")

    assert server.is_running
    assert find_private_redis(tmp_path / "data") == server.url


def test_a_server_that_does_not_answer_for_a_while_is_still_found(server: EmbeddedRedis, tmp_path: Path) -> None:
    """Busy, or without a processor: its socket is listened to."""
    os.kill(server.pid, signal.SIGSTOP)
    try:
        assert find_private_redis(tmp_path / "data") == server.url
    finally:
        os.kill(server.pid, signal.SIGCONT)


@pytest.mark.parametrize("stopped", [False, True], ids=["answering", "stopped"])
def test_somebody_elses_live_server_on_the_socket_is_not_touched(tmp_path: Path, stopped: bool) -> None:
    """A server that we did not start listens behind our socket's path: it stays as it is, also if it is too busy to answer."""
    foreign = subprocess.Popen(
        [find_server().path, "--port", "0", "--unixsocket", str(tmp_path / "redis.sock"), "--save", "", "--dir", str(tmp_path)],
        stdout=subprocess.DEVNULL,
    )
    client = open_client(f"unix://{tmp_path}/redis.sock")
    try:
        wait_until(lambda: answers(client), "the foreign server answers")

        says = f"already running with pid {foreign.pid}"
        if stopped:
            foreign.send_signal(signal.SIGSTOP)
            says = "already running; stop it"
        with pytest.raises(BusRefused, match=says):
            start_private_redis(tmp_path)

        foreign.send_signal(signal.SIGCONT)
        assert call(client, "PING") is True
    finally:
        client.close()
        foreign.kill()
        foreign.wait(DEADLINE_S)


def test_a_stale_socket_file_is_replaced(tmp_path: Path) -> None:
    """Left by a crash: nobody answers behind it."""
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(tmp_path / "redis.sock"))

    with start_private_redis(tmp_path) as server:
        assert find_private_redis(tmp_path) == server.url


def test_a_long_path_moves_the_socket_and_others_find_it(tmp_path: Path) -> None:
    """Sockets have short names; the data stays where it was asked for. A killed server's place is used again."""
    folder = tmp_path / ("deep" * 20) / ("er" * 20)
    parent, pid = start_parent(folder)
    url = find_private_redis(folder)
    parent.kill()
    parent.wait(DEADLINE_S)
    wait_until(lambda: has_ended(pid), "the server has ended with its parent")

    with start_private_redis(folder) as server:
        path = Path(server.url.removeprefix("unix://"))
        assert server.url == url == find_private_redis(folder)
        assert len(os.fsencode(path)) <= embedded.MAX_SOCKET_PATH_BYTES
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        assert (folder / "appendonlydir").is_dir()
    assert not path.parent.exists()


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"socket": 7}', b'{"socket": "/nowhere/redis.sock", "pid": "x"}', b"\xff"]
)
def test_a_damaged_record_is_no_server(tmp_path: Path, content: bytes) -> None:
    """Looking for a server never fails on what a crash left behind, and starting one goes over it."""
    (tmp_path / "redis.lock").write_bytes(content)
    assert find_private_redis(tmp_path) is None

    start_private_redis(tmp_path).close()


# Programs --------------------------------------------------------------------------------------------------------------------


def test_a_server_that_dies_at_its_start_is_quoted(tmp_path: Path) -> None:
    """Its last words, in one line, and no lock left behind."""
    dying = program(tmp_path / "dying", NEW, "echo '12:M 21 Nov 2026 06:30:00.123 # Bad directive: no bananas' >&2; exit 1")

    with pytest.raises(BusUnavailable, match=r"died at its start: Bad directive: no bananas$"):
        start_private_redis(tmp_path / "data", server=dying)

    start_private_redis(tmp_path / "data").close()


def test_a_server_that_never_answers_is_given_up_and_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The deadline counts, and nothing stays behind."""
    pid = tmp_path / "pid"
    silent = program(tmp_path / "silent", NEW, f"echo $$ > {pid}; exec sleep 600")
    # A clock that goes, a minute per look, once the program runs: not before, however long that takes.
    minutes = itertools.count()
    clock = SimpleNamespace(monotonic=lambda: 60 * next(minutes) if pid.exists() and pid.read_text() else 0, sleep=time.sleep)
    monkeypatch.setattr(embedded, "time", clock)

    with pytest.raises(BusUnavailable, match=r"not ready after 30 s: it said nothing"):
        start_private_redis(tmp_path / "data", server=silent)

    assert has_ended(int(pid.read_text()))


def test_a_folder_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    """A file in its place."""
    (tmp_path / "file").write_text("")

    with pytest.raises(BusUnavailable, match=r"the data folder .*file.* cannot be used"):
        start_private_redis(tmp_path / "file")


# Folders of others -----------------------------------------------------------------------------------------------------------


def as_a_link(folder: Path) -> Path:
    link = folder.with_name("link")
    link.symlink_to(folder)
    return link


def writable(folder: Path, mode: int = 0o777) -> Path:
    folder.chmod(mode)
    return folder


def with_writable_record(folder: Path) -> Path:
    (folder / "redis.lock").chmod(0o666)
    return folder


def writable_by_the_group(folder: Path) -> Path:
    return writable(folder, mode=0o770)


def with_linked_record(folder: Path) -> Path:
    (folder / "redis.lock").rename(folder.with_name("elsewhere"))
    (folder / "redis.lock").symlink_to(folder.with_name("elsewhere"))
    return folder


def with_a_pipe_for_a_record(folder: Path) -> Path:
    (folder / "redis.lock").unlink()
    os.mkfifo(folder / "redis.lock", 0o600)
    return folder


# How somebody else may have laid out `./.headgate`, and what is said about it.
TRAPS = [
    (as_a_link, "is a symbolic link"),
    (writable, "can be written by others (mode 777)"),
    (writable_by_the_group, "can be written by others (mode 770)"),
    (with_writable_record, "can be written by others (mode 666)"),
    (with_linked_record, "is a symbolic link"),
    (with_a_pipe_for_a_record, "is not a regular file"),
]


@pytest.fixture
def somebodys(tmp_path: Path, redis_url: str) -> Path:
    """A data folder with the record of a live server, laid out by hand."""
    folder = tmp_path / ".headgate"
    folder.mkdir(mode=0o700)
    (folder / "redis.lock").write_text(json.dumps({"socket": redis_url.removeprefix("unix://")}))
    (folder / "redis.lock").chmod(0o600)
    return folder


@pytest.mark.parametrize(("trap", "told"), TRAPS, ids=lambda value: getattr(value, "__name__", str(value)))
def test_a_folder_that_others_can_write_to_is_not_trusted(somebodys: Path, trap: Callable[[Path], Path], told: str) -> None:
    """Neither to find a server nor to start one: publishers and the command line would talk to a server of theirs."""
    assert find_private_redis(somebodys) is not None
    folder = trap(somebodys)
    for use in (find_private_redis, start_private_redis):
        with pytest.raises(BusRefused, match="HEADGATE_REDIS_URL") as caught:
            use(folder)
        assert told in caught.value.message
        assert "\n" not in caught.value.message


def test_a_folder_of_somebody_else_is_not_trusted(somebodys: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says whose it is; the publisher and the command line pass it on."""
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    monkeypatch.setenv("HEADGATE_DATA_DIR", str(somebodys))
    monkeypatch.delenv("HEADGATE_REDIS_URL", raising=False)
    for use in (lambda: find_private_redis(somebodys), lambda: start_private_redis(somebodys), Publisher):
        with pytest.raises(BusRefused, match=f"belongs to user id {os.getuid()}, and we are"):
            use()


def test_a_socket_in_a_folder_that_others_can_write_to_is_not_trusted(somebodys: Path) -> None:
    """The record outlives a server that was killed, and its temporary folder may have been made anew by somebody else."""
    record = json.loads((somebodys / "redis.lock").read_text())
    writable(Path(record["socket"]).parent)
    try:
        assert find_private_redis(somebodys) is None
    finally:
        writable(Path(record["socket"]).parent, 0o700)
