"""A private Redis: started, watched over and ended by us, on a Unix socket in the project's data folder.

In: the data folder (data_folder.py) and a server program (program.py). Out: an `EmbeddedRedis` with the URL for everybody in this
project. It opens no TCP port, and never touches a server that it did not start. It dies with the process that started it, however
that ends:

- a tiny shell holds the reading end of a pipe whose other end only we have; when the kernel closes ours, it ends the server;
- on Linux the server also has a parent-death signal, in case that the shell itself was killed. The kernel ties it to the
  starting *thread*, so it is set only when that is the main one.

Works the same in a process patched by gevent. POSIX only.
"""

from __future__ import annotations

import atexit
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from headgate.errors import BusRefused, BusUnavailable, HeadgateError
from headgate.settings import PREFIX, redis_program

from .client import call, open_client
from .data_folder import PROBE_TIMEOUT_S, already_running, choose_socket, open_lock, server_pid, take_lock, url_of, write_record
from .program import ServerBinary, find_server

LOG_NAME = "redis.log"
_LOG_FOLDER = "appendonlydir"  # Redis's default
START_DEADLINE_S = 30.0  # loading a log of the default retention takes a second or two
STOP_DEADLINE_S = 10.0
POLL_S = 0.02

_CONFIGURATION = (
    "--port 0 --unixsocketperm 700 --daemonize no --databases 1 --loglevel notice "
    # An acknowledged write is in the append-only file before its answer leaves, so a killed server forgets nothing and clients
    # can resume across a restart. But while an earlier sync is under way it is kept back, for up to two seconds: these can be
    # lost with the server on a slow disk, as with a crash of the machine. Snapshots would cost minutes.
    "--appendonly yes --appendfsync everysec --save '' "
    # The default retention (10,000 events) of the largest default payload (64 KiB) is 640 MB. Above the limit a publish is
    # refused, and says so; eviction would silently lose the log.
    "--maxmemory 1gb --maxmemory-policy noeviction "
    # The default (32 MB, or 8 MB for 60 s) cuts off a gateway that is behind by one burst of large events.
    "--client-output-buffer-limit pubsub 128mb 64mb 60"
)
# Its standard input is the pipe: a whole line tells it to stand down, the end of input that we are gone. Its standard output
# is the lock, which the server keeps open as descriptor 4 and the subshell must not. `$$` in the subshell is the number of
# the shell, which exec turns into the server. That number may be somebody else's once the server has died by itself, so it is
# used only while it is still the subshell's parent.
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
# PR_SET_PDEATHSIG is 1. It survives exec. A parent that died before the call is noticed by its number.
_DIE_WITH_PARENT = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGTERM, 0, 0, 0)
if os.getppid() == int(sys.argv[1]):
    os.execvp(sys.argv[2], sys.argv[2:])
"""

# How many bytes each part of the append-only file had at some moment.
Moment = Mapping[Path, int]


class EmbeddedRedis:
    """A private server that runs; made by `start_private_redis`. Ended by `close`, or with this process.

    Attributes:
        url: `unix://…`, for redis/client.py and everybody else.
        description: what it is and where it came from, for people.
    """

    def __init__(self, binary: ServerBinary, folder: Path, lock: int, meanwhile: Callable[[], object] = lambda: None) -> None:
        self._socket_path, self._temporary_folder = choose_socket(folder)
        pid = server_pid(self._socket_path)
        if pid is not None:  # somebody's server, not ours: ours would hold the lock
            raise already_running(pid, folder)
        self.url, self.description = url_of(self._socket_path), binary.description
        self._binary, self._folder, self._lock = binary, folder, lock
        self._pipe: int | None = None
        self._process = self._launch(meanwhile)
        self._owner = os.getpid()
        self._closed = False
        self._restarting = threading.Lock()  # between a crash and its end nobody else starts the server
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
        """Start a server that has died by itself, with the data that it left; wait until it answers. Nothing while it runs.

        Raises:
            BusUnavailable: it died again, or did not answer in time, with its last words.
        """
        with self._restarting:
            self._start_again()

    def last_words(self) -> str:
        """Return the last line that the server has logged."""
        return _last_words(self._folder)

    def moment(self) -> Moment:
        """Return how far its append-only file is written now: what `crash` can go back to, until the server rewrites the file."""
        return {path: path.stat().st_size for path in sorted((self._folder / _LOG_FOLDER).glob("*.incr.aof"))}

    def crash(self, back_to: Moment) -> None:
        """Kill the server and start it again from what its file held at a moment, as when its machine had crashed. For
        demonstrations and tests of that loss. May switch greenlets.

        Raises:
            BusRefused: the file of that moment is no more, or the server is closed; nothing has happened.
            BusUnavailable: as `start_again`.
        """
        with self._restarting:
            if self._closed or self.moment().keys() != back_to.keys():
                raise BusRefused("the private Redis has rewritten its file since, or is closed: its past is gone")
            self._process.kill()
            self._process.wait()
            for path, size_bytes in back_to.items():
                os.truncate(path, min(size_bytes, path.stat().st_size))
            self._start_again()

    def close(self) -> None:
        """End the server and wait for it (at most STOP_DEADLINE_S, then it is killed). Idempotent; not in a forked child."""
        if self._closed or os.getpid() != self._owner:
            return
        self._closed = True
        atexit.unregister(self.close)
        _stop(self._process)
        self._stand_down()
        write_record(self._lock, {})
        if self._temporary_folder:
            shutil.rmtree(self._temporary_folder, ignore_errors=True)
        os.close(self._lock)

    def __enter__(self) -> EmbeddedRedis:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _start_again(self) -> None:
        if not self._closed and not self.is_running:
            self._stand_down()
            self._process = self._launch()

    def _launch(self, meanwhile: Callable[[], object] = lambda: None) -> subprocess.Popen[bytes]:
        """Start the server, with a pipe whose end ends it; call `meanwhile`, and wait until the server answers."""
        Path(self._socket_path).unlink(missing_ok=True)  # stale: nobody answers behind it
        command = [self._binary.path, "--dir", str(self._folder), "--unixsocket", self._socket_path, *_arguments()]
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
                    start_new_session=True,  # Ctrl-C is for us; we end the server when we are done with it
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
        """Tell the watching shell that there is nothing left to end."""
        if self._pipe is not None:
            with suppress(OSError):  # it is gone already
                os.write(self._pipe, b"done\n")
            os.close(self._pipe)
            self._pipe = None


def start_private_redis(
    data_dir: str | Path, *, server: str | None = None, meanwhile: Callable[[], object] = lambda: None
) -> EmbeddedRedis:
    """Start a private server whose data, log and socket are in `data_dir` (made if missing); wait until it answers.

    Args:
        data_dir: a folder of ours alone, that others cannot write to; its mode becomes 700.
        meanwhile: called while the server starts, for what takes long and needs no Redis.
        server: path of the server program; None: HEADGATE_REDIS_SERVER, else the first that `find_server` finds.

    Raises:
        BusRefused: a server for this folder is running already, the folder is not ours alone, or the program is too old.
        BusUnavailable: there is no program to start, or it died, with its last words.
    """
    binary = find_server(server or redis_program())
    folder = Path(data_dir).absolute()
    instead = f"set {PREFIX}REDIS_URL, or {PREFIX}DATA_DIR to a folder that can be written"
    try:
        lock = open_lock(folder)
    except OSError as error:
        raise BusUnavailable(f"the data folder {folder} cannot be used: {error.strerror}; {instead}") from error
    try:
        take_lock(lock, folder)
        return EmbeddedRedis(binary, folder, lock, meanwhile)
    except OSError as error:
        os.close(lock)
        raise BusUnavailable(f"no private Redis can be started in {folder}: {error.strerror}; {instead}") from error
    except BaseException:
        os.close(lock)
        raise


def _arguments() -> list[str]:
    return ["" if word == "''" else word for word in _CONFIGURATION.split()]


def _wait_until_ready(process: subprocess.Popen[bytes], socket_path: str, folder: Path) -> None:
    deadline = time.monotonic() + START_DEADLINE_S
    while not (server_pid(socket_path) == process.pid and _has_loaded(socket_path)):
        if process.poll() is not None:
            raise BusUnavailable(f"the private Redis died at its start: {_last_words(folder)}")
        if time.monotonic() > deadline:
            raise BusUnavailable(f"the private Redis was not ready after {START_DEADLINE_S:g} s: {_last_words(folder)}")
        time.sleep(POLL_S)


def _has_loaded(socket_path: str) -> bool:
    """Return whether a server takes commands: INFO is answered while it still loads its data, PING is not."""
    client = open_client(url_of(socket_path), timeout_s=PROBE_TIMEOUT_S, max_connections=1)
    try:
        call(client, "PING")
    except HeadgateError:
        return False
    finally:
        client.close()
    return True


def _last_words(folder: Path) -> str:
    """Return the last line of the server's log, without its process id, role and date."""
    with suppress(OSError):
        lines = (folder / LOG_NAME).read_bytes()[-4096:].decode(errors="replace").split("\n")
        for line in reversed(lines):
            if words := re.sub(r"^\d+:\w \d+ \w+ \d+ [0-9:.]+ . ", "", line.strip()):
                return words[:300]
    return "it said nothing"


def _stop(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(STOP_DEADLINE_S)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
        process.wait()
