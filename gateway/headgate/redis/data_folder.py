"""The data folder of a private Redis, with the lock of its owner and the path of its server's socket.

In: the folder's path. Out: its lock, the path for the server's socket and, for other programs, the URL of the server that runs
there.

The process that started the server and the server itself hold `redis.lock` in the folder (flock). So the lock is free exactly
when both are gone. The file also records the path of the socket, which is elsewhere if the folder's path is too long for a
socket. A folder or a record that other users can write to is refused, because they could direct us to another server. Files are
opened through the folder's descriptor, so the folder cannot be exchanged in between.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import stat
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import IO
from urllib.parse import quote

from headgate.errors import BusRefused, BusUnavailable, HeadgateError

from .client import call, open_client
from .faults import LOADING

LOCK_NAME, SOCKET_NAME = "redis.lock", "redis.sock"
MAX_RECORD_BYTES = 64 * 1024
# sun_path holds 108 bytes on Linux and 104 on macOS, including the final zero.
MAX_SOCKET_PATH_BYTES = 100
LOCK_DEADLINE_S = 2.0
# A server that does not answer within this time is busy or stopped.
PROBE_TIMEOUT_S = 1.0
POLL_S = 0.02
_INSTEAD = "set HEADGATE_REDIS_URL, or HEADGATE_DATA_DIR to a folder of yours"
_NOT_A_PLACE = {errno.ELOOP: "is a symbolic link", errno.ENOTDIR: "is not a folder", errno.EMLINK: "is a symbolic link"}
_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def open_folder(path: Path) -> int | None:
    """Return a descriptor of the folder, for the caller to close; None if it is missing or not readable.

    Raises BusRefused: it is a link, belongs to another user, or others can write to it.
    """
    try:
        return _opened(path, partial(os.open, path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC), is_file=False)
    except (FileNotFoundError, PermissionError):
        with suppress(OSError):  # a missing one has no owner
            _check(os.lstat(path), path)
        return None


def open_file(folder: int, path: Path, flags: int) -> int:
    """Return a descriptor of the regular file `path.name` in a folder, under the same conditions.

    Raises BusRefused: as `open_folder`; OSError: the file cannot be opened.
    """
    # Without O_NONBLOCK, a pipe in its place would block forever.
    flags |= os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    return _opened(path, partial(os.open, path.name, flags, 0o600, dir_fd=folder), is_file=True)


def is_private(path: Path) -> bool:
    """Return whether a folder exists and fulfils all conditions."""
    try:
        folder = open_folder(path)
    except (BusRefused, OSError):
        return False
    if folder is None:
        return False
    os.close(folder)
    return True


def _opened(path: Path, opened: Callable[[], int], *, is_file: bool) -> int:
    """Return the descriptor that `opened` returns, once it is checked."""
    try:
        descriptor = opened()
    except OSError as error:
        if error.errno in _NOT_A_PLACE:
            reason = "is a symbolic link" if path.is_symlink() else _NOT_A_PLACE[error.errno]
            raise BusRefused(f"{path} {reason}: {_INSTEAD}") from error
        raise
    try:
        status = os.fstat(descriptor)
        if is_file and not stat.S_ISREG(status.st_mode):
            raise BusRefused(f"{path} is not a regular file: {_INSTEAD}")
        _check(status, path)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _check(status: os.stat_result, path: Path) -> None:
    if status.st_uid != os.geteuid():
        raise BusRefused(f"{path} belongs to user id {status.st_uid}, and we are {os.geteuid()}: {_INSTEAD}")
    if status.st_mode & _WRITABLE_BY_OTHERS:
        raise BusRefused(
            f"{path} can be written by others (mode {stat.S_IMODE(status.st_mode):o}): check who has changed it, then "
            f"`chmod go-w`; or {_INSTEAD}"
        )


def find_private_redis(data_dir: str | Path) -> str | None:
    """Return the URL of the private server that runs in `data_dir`, or None without one.

    Raises BusRefused: other users can write to the folder or the record, and could direct us to a server of theirs.
    """
    path = read_record(Path(data_dir).absolute() / LOCK_NAME).get("socket")
    if not isinstance(path, str) or not path or not is_private(Path(path).parent):
        return None
    return url_of(path) if server_pid(path) is not None else None


def wait_for_private_redis(data_dir: str | Path, within_s: float) -> str | None:
    """Return the URL as `find_private_redis` does, after waiting for a server to start or load its data.

    Waits only if a server has run there before. A command right after `headgate serve` runs before the server does, and the
    folder then has the lock file of the last server. Raises BusRefused as `find_private_redis`, and BusUnavailable if the owner
    holds the lock and the server does not start in time, or if the current folder was deleted.
    """
    try:
        lock = Path(data_dir).absolute() / LOCK_NAME
    except FileNotFoundError as error:
        raise BusUnavailable("no Redis: the current folder was deleted; set HEADGATE_REDIS_URL, or use another one") from error
    deadline = time.monotonic() + within_s
    while True:
        url = find_private_redis(data_dir)
        is_late = time.monotonic() > deadline
        fault = None if url is None or is_late else fault_of_ping(url)  # perhaps another owner's server, which wants a password
        is_loading = isinstance(fault, BusUnavailable) and fault.redis_code == LOADING
        if (url is not None and not is_loading) or not lock.exists():
            return url
        if is_late:
            if _is_held(lock):
                raise BusUnavailable(f"the private Redis in {lock.parent} is starting: try again in a moment")
            return None
        time.sleep(POLL_S)


def open_lock(path: Path) -> int:
    """Return the descriptor of the lock in a folder. A missing folder is created. Its mode becomes 700.

    Raises BusRefused: the folder, or the file, is not ours alone; OSError: the folder cannot be used.
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
    """Take the lock. Waits as long as a server may need to end after its owner was killed.

    Raises BusRefused: a server runs in this folder; BusUnavailable: the file system does not support locks.
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
    """Return the path for the socket, and the folder created for it, if other than the data folder."""
    path = str(folder / SOCKET_NAME)
    if len(os.fsencode(path)) <= MAX_SOCKET_PATH_BYTES:
        return path, None
    recorded = read_record(folder / LOCK_NAME).get("socket")
    if isinstance(recorded, str) and is_private(Path(recorded).parent):
        return recorded, Path(recorded).parent  # left by a killed process
    temporary = Path(tempfile.mkdtemp(prefix="headgate-"))
    return str(temporary / SOCKET_NAME), temporary


def write_record(lock: int, record: Mapping[str, object]) -> None:
    """Record in the held lock which server runs (`pid` and `socket`); empty if none does."""
    text = json.dumps(record).encode()
    os.ftruncate(lock, 0)
    os.pwrite(lock, text, 0)


def read_record(path: Path) -> dict[str, object]:
    """Return the record in `redis.lock` at this path; empty if a crash left something unreadable.

    Raises BusRefused: the folder, or the file, is not ours alone.
    """
    try:
        with _opened_record(path) as file:
            record = json.loads(file.read(MAX_RECORD_BYTES))
    except (OSError, ValueError):
        return {}
    return record if isinstance(record, dict) else {}


def _opened_record(path: Path) -> IO[bytes]:
    """Open `redis.lock` at this path. Raises BusRefused as `read_record`, and OSError if it cannot be read."""
    folder = open_folder(path.parent)
    if folder is None:
        raise FileNotFoundError(path)
    try:
        return os.fdopen(open_file(folder, path, os.O_RDONLY), "rb")
    finally:
        os.close(folder)


def server_pid(socket_path: str) -> int | None:
    """Return the process id of the server at a socket; 0 if it does not answer, or not in time; None without a server."""
    with open_client(url_of(socket_path), timeout_s=PROBE_TIMEOUT_S, max_connections=1) as client:
        try:
            reply = call(client, "INFO", "server")
        except BusUnavailable:
            return 0 if _is_listened_to(socket_path) else None  # it exists, but is busy or stopped for a moment
        except HeadgateError:
            return 0  # perhaps another owner's server, which wants a password
    return int(reply.get("process_id", 0)) if isinstance(reply, dict) else 0


def fault_of_ping(url: str) -> HeadgateError | None:
    """Return why a server does not take commands, or None. While it loads its data, it answers INFO but not PING."""
    with open_client(url, timeout_s=PROBE_TIMEOUT_S, max_connections=1) as client:
        try:
            call(client, "PING")
        except HeadgateError as error:
            return error
    return None


def _is_held(path: Path) -> bool:
    """Return whether a process (a server or its starter) holds the lock. A start that collides with this test retries."""
    try:
        with _opened_record(path) as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        return isinstance(error, BlockingIOError)
    return False


def _is_listened_to(socket_path: str) -> bool:
    """Return whether a process listens on a Unix socket. The kernel answers even if the process is busy."""
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
    """Return the error for a folder in which a server runs already."""
    number = f" with pid {pid}" if pid else ""
    return BusRefused(f"a Redis for {folder} is already running{number}; stop its gateway or set HEADGATE_REDIS_URL")


def url_of(socket_path: str) -> str:
    """Return the URL of a server at a Unix socket."""
    return f"unix://{quote(socket_path)}"
