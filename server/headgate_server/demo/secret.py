"""The demo's secret: random bytes in the data folder, so that a restart of the server does not end the tokens that pages hold.

In: the data folder, made if it is missing. Out: the secret, made by the first start and read by every later one. A file that
somebody else could have read or written is not used. Where no secret can be kept, the log says why, and the secret lasts as
long as the process: pages then fetch a new token with their next attempt to connect.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path

import structlog

SECRET_NAME = "demo.secret"
# As many as the hash of the signature has (RFC 2104, section 3), and no more than one page of memory.
SECRET_BYTES, MAX_SECRET_BYTES = 32, 4096

_log = structlog.get_logger("headgate.server")


class _Unusable(Exception):
    """The file is there, and must not be used; the text says why."""


def demo_secret(folder: Path) -> bytes:
    """Return the secret that is kept in `folder`, or one for this process alone when none can be kept there."""
    path = folder / SECRET_NAME
    try:
        return _kept(path)
    except (OSError, _Unusable) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        _log.warning("demo secret not kept", path=str(path), reason=reason, effect="tokens of the demo end with this process")
        return secrets.token_bytes(SECRET_BYTES)


def _kept(path: Path) -> bytes:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        return _read(path)
    except FileNotFoundError:
        _make(path)
        return _read(path)


def _make(path: Path) -> None:
    """Write a secret under a name of its own, then link it: nobody reads half a file, and of two processes the first one wins."""
    draft = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(file, "wb") as writing:
            writing.write(secrets.token_bytes(SECRET_BYTES))
            writing.flush()
            os.fsync(file)
        with suppress(FileExistsError):
            os.link(draft, path, follow_symlinks=False)
    finally:
        draft.unlink()


def _read(path: Path) -> bytes:
    """Return what the file holds.

    Raises:
        FileNotFoundError: there is none.
        _Unusable: it is not a regular file, not ours alone, or not of a secret's size.
        OSError: it cannot be read.
    """
    try:
        # Not to wait for the other end, should it be a pipe.
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise _Unusable("it is a symbolic link; expected a regular file") from error
        raise
    try:
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode):
            raise _Unusable("it is not a regular file")
        if found.st_uid != os.geteuid():
            raise _Unusable(f"it belongs to user {found.st_uid}; expected {os.geteuid()}")
        if stat.S_IMODE(found.st_mode) & 0o077:
            raise _Unusable(f"its mode is {stat.S_IMODE(found.st_mode):o}; expected 600")
        if not SECRET_BYTES <= found.st_size <= MAX_SECRET_BYTES:
            raise _Unusable(f"it has {found.st_size} bytes; expected {SECRET_BYTES} to {MAX_SECRET_BYTES}")
        return os.read(file, MAX_SECRET_BYTES)
    finally:
        os.close(file)
