"""A private folder: it belongs to our user, nobody else can write to it, and its path is no link.

In: the path of a data folder, which may belong to anyone, as `./.headgate` depends on the current folder. Out: its descriptor, or
an error that names its owner. Files are opened through the descriptor, so nobody can exchange the folder in between.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from contextlib import suppress
from functools import partial
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
        return _opened(path, partial(os.open, path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC), is_file=False)
    except (FileNotFoundError, PermissionError):
        with suppress(OSError):  # a missing one has no owner
            _check(os.lstat(path), path)
        return None


def open_file(folder: int, path: Path, flags: int, mode: int = 0o600) -> int:
    """Return a descriptor of the regular file `path.name` in a folder, under the same conditions.

    Raises:
        BusRefused: as `open_folder`.
        OSError: the file cannot be opened.
    """
    # Without O_NONBLOCK, a pipe in its place would block forever.
    flags |= os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    return _opened(path, partial(os.open, path.name, flags, mode, dir_fd=folder), is_file=True)


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
            f"{path} can be written by others (mode {stat.S_IMODE(status.st_mode):o}): look who has changed it, then "
            f"`chmod go-w`; or {_INSTEAD}"
        )
