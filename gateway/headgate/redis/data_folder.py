"""The data folder of a private Redis: who holds it, and where its server listens.

In: the folder's path. Out: its lock, the path for the server's socket, and, for everybody else in the project, the URL of the
server that runs there.

`redis.lock` in the folder is held (flock) by the process that started the server and by the server, so it is free exactly when
both are gone. It also records where the socket is, which is elsewhere when the folder's path is too long for a socket. A folder
or a record that others can write to is refused: they could have us talk to a server of theirs.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

from headgate.errors import BusRefused, BusUnavailable, HeadgateError
from headgate.runtime.private_folder import is_private, open_file, open_folder

from .client import call, open_client
from .faults import LOADING

LOCK_NAME, SOCKET_NAME = "redis.lock", "redis.sock"
MAX_RECORD_BYTES = 64 * 1024
# sun_path holds 108 bytes on Linux and 104 on macOS, the final zero included.
MAX_SOCKET_PATH_BYTES = 100
LOCK_DEADLINE_S = 2.0
# A server that does not answer in this time is busy, or stopped.
PROBE_TIMEOUT_S = 1.0
POLL_S = 0.02


def find_private_redis(data_dir: str | Path) -> str | None:
    """Return the URL of the private server that runs in `data_dir`, or None if none does.

    Raises:
        BusRefused: the folder, or the record in it, is not ours alone: its writer could have us talk to a server of theirs.
    """
    path = read_record(Path(data_dir).absolute() / LOCK_NAME).get("socket")
    if not isinstance(path, str) or not path or not is_private(Path(path).parent):
        return None
    return url_of(path) if server_pid(path) is not None else None


def wait_for_private_redis(data_dir: str | Path, within_s: float) -> str | None:
    """Return what `find_private_redis` does, and wait for a server that starts or loads its data, where one has run before.

    A command that is given right after `headgate serve` comes before its server: the folder has the lock of the last one.

    Raises:
        BusRefused: as `find_private_redis`.
        BusUnavailable: its owner has the lock, and it is not there in time.
    """
    lock = Path(data_dir).absolute() / LOCK_NAME
    deadline = time.monotonic() + within_s
    while True:
        url = find_private_redis(data_dir)
        is_late = time.monotonic() > deadline
        if (url is not None and (is_late or not _is_loading(url))) or not lock.exists():
            return url
        if is_late:
            if _is_held(lock):
                raise BusUnavailable(f"the private Redis in {lock.parent} is starting: try again in a moment")
            return None
        time.sleep(POLL_S)


def open_lock(path: Path) -> int:
    """Return the descriptor of the lock in a folder, which is made if it is missing; its mode becomes 700.

    Raises:
        BusRefused: the folder, or the file, is not ours alone.
        OSError: it cannot be used.
    """
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder = open_folder(path)
    if folder is None:
        raise OSError(errno.EACCES, os.strerror(errno.EACCES))
    try:
        os.fchmod(folder, 0o700)
        return open_file(folder, path / LOCK_NAME, os.O_RDWR | os.O_CREAT)
    finally:
        os.close(folder)


def take_lock(lock: int, folder: Path) -> None:
    """Take the lock, waiting as long as a server whose owner was killed may need to end.

    Raises:
        BusRefused: a server runs in this folder.
        BusUnavailable: the file system has no locks.
    """
    deadline = time.monotonic() + LOCK_DEADLINE_S
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            if time.monotonic() > deadline:
                raise already_running(read_record(folder / LOCK_NAME).get("pid"), folder) from error
            time.sleep(POLL_S)
        except OSError as error:
            raise BusUnavailable(f"the data folder {folder} cannot be locked: {error.strerror}") from error
        else:
            return


def choose_socket(folder: Path) -> tuple[str, Path | None]:
    """Return where the socket goes, and the folder made for it if that is not the data folder."""
    path = str(folder / SOCKET_NAME)
    if len(os.fsencode(path)) <= MAX_SOCKET_PATH_BYTES:
        return path, None
    recorded = read_record(folder / LOCK_NAME).get("socket")
    if isinstance(recorded, str) and is_private(Path(recorded).parent):
        return recorded, Path(recorded).parent  # left by a process that was killed
    temporary = Path(tempfile.mkdtemp(prefix="headgate-"))
    return str(temporary / SOCKET_NAME), temporary


def write_record(lock: int, record: Mapping[str, object]) -> None:
    """Write, into the lock that we hold, which server runs (`pid` and `socket`); nothing once none does."""
    text = json.dumps(record).encode()
    os.ftruncate(lock, 0)
    os.pwrite(lock, text, 0)


def read_record(path: Path) -> dict[str, object]:
    """Return what `redis.lock` at this path records; nothing where a crash left something else behind.

    Raises:
        BusRefused: the folder, or the file, is not ours alone.
    """
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


def server_pid(socket_path: str) -> int | None:
    """Return the process id of the server behind a socket; 0 if it does not tell, or not in time; None if there is none."""
    client = open_client(url_of(socket_path), timeout_s=PROBE_TIMEOUT_S, max_connections=1)
    try:
        reply = call(client, "INFO", "server")
        return int(reply.get("process_id", 0)) if isinstance(reply, dict) else 0
    except BusUnavailable:
        return 0 if _is_listened_to(socket_path) else None  # busy, or stopped for a moment: it is there all the same
    except HeadgateError:
        return 0  # it wants a password, say: somebody's server
    finally:
        client.close()


def _is_loading(url: str) -> bool:
    client = open_client(url, timeout_s=PROBE_TIMEOUT_S, max_connections=1)
    try:
        call(client, "PING")
    except BusUnavailable as error:
        return error.redis_code == LOADING
    except HeadgateError:
        pass  # somebody's server, which wants a password
    finally:
        client.close()
    return False


def _is_held(path: Path) -> bool:
    """Return whether a process has the lock: a server, or one that starts it. A start that meets ours tries again."""
    folder = open_folder(path.parent)
    if folder is None:
        return False
    try:
        with os.fdopen(open_file(folder, path, os.O_RDONLY), "rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(folder)
    return False


def _is_listened_to(socket_path: str) -> bool:
    """Return whether a process listens on a Unix socket: the kernel says so, however busy that process is."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(PROBE_TIMEOUT_S)
        try:
            probe.connect(socket_path)
        except (BlockingIOError, TimeoutError):
            return True  # its backlog is full
        except OSError:
            return False
    return True


def already_running(pid: object, folder: Path) -> BusRefused:
    """Return the error of a folder in which a server runs."""
    number = f" with pid {pid}" if pid else ""
    return BusRefused(f"a Redis for {folder} is already running{number}; stop it or set HEADGATE_REDIS_URL")


def url_of(socket_path: str) -> str:
    """Return the URL of a server behind a Unix socket."""
    return f"unix://{quote(socket_path)}"
