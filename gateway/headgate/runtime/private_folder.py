"""A private folder: it belongs to our user, nobody else can write to it, and its path is no link.

In: the path of a data folder, which may belong to anyone, as `./.headgate` depends on the current folder. Out: its descriptor, or
an error that names its owner. Files are opened through the descriptor, so nobody can exchange the folder in between.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from headgate.errors import BusRefused

_INSTEAD = "set HEADGATE_REDIS_URL, or HEADGATE_DATA_DIR to a folder of yours"
_NOT_A_PLACE = {errno.ELOOP: "is a symbolic link", errno.ENOTDIR: "is not a folder", errno.EMLINK: "is a symbolic link"}
_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def open_folder(path: Path) -> int | None:
    """Return a descriptor of the folder, for the caller to close; None if it is missing or not readable.

    Raises BusRefused: it is a link, belongs to another user, or others can write to it.
    """
    try:
        folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except (FileNotFoundError, PermissionError):
        _refuse_foreign(path)
        return None
    except OSError as error:
        if error.errno in _NOT_A_PLACE:
            raise BusRefused(
                f"{path} {'is a symbolic link' if path.is_symlink() else _NOT_A_PLACE[error.errno]}: {_INSTEAD}"
            ) from error
        raise
    try:
        _check(os.fstat(folder), path)
    except BaseException:
        os.close(folder)
        raise
    return folder


def open_file(folder: int, path: Path, flags: int, mode: int = 0o600) -> int:
    """Return a descriptor of the regular file `path.name` in a folder, under the same conditions.

    Raises:
        BusRefused: as `open_folder`.
        OSError: the file cannot be opened.
    """
    try:
        # Without O_NONBLOCK, a pipe in its place would block forever.
        file = os.open(path.name, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, mode, dir_fd=folder)
    except OSError as error:
        if error.errno in _NOT_A_PLACE:
            raise BusRefused(f"{path} {_NOT_A_PLACE[error.errno]}: {_INSTEAD}") from error
        raise
    try:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode):
            raise BusRefused(f"{path} is not a regular file: {_INSTEAD}")
        _check(status, path)
    except BaseException:
        os.close(file)
        raise
    return file


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


def _refuse_foreign(path: Path) -> None:
    """Raise if an unreadable folder has another owner; a missing one has none."""
    try:
        status = os.lstat(path)
    except OSError:
        return
    _check(status, path)


def _check(status: os.stat_result, path: Path) -> None:
    if status.st_uid != os.geteuid():
        raise BusRefused(f"{path} belongs to user id {status.st_uid}, and we are {os.geteuid()}: {_INSTEAD}")
    if status.st_mode & _WRITABLE_BY_OTHERS:
        raise BusRefused(
            f"{path} can be written by others (mode {stat.S_IMODE(status.st_mode):o}): look who has changed it, then "
            f"`chmod go-w`; or {_INSTEAD}"
        )
