"""The function library in Redis: loading functions.lua when it is missing or older than ours. No other state.

In: a client from redis_link.py. Out: a Redis in which `FCALL headgate_publish` works. Loading is rare: at the first use
of a process, and when Redis has lost its functions (an empty restart, FUNCTION FLUSH).

A newer library than ours is left alone, as a newer Headgate that shares this Redis needs it and its calls stay
compatible. Two processes of different versions that both find an old one race: the loser's version check at its next
start puts that right; Redis has no conditional FUNCTION LOAD.
"""

from __future__ import annotations

import re
from importlib.resources import files
from typing import Any

from .errors import BusRefused
from .redis_link import Client, call

SOURCE = files("headgate").joinpath("functions.lua").read_text("utf-8")
VERSION = int(re.findall(r"^local VERSION = (\d+)$", SOURCE, re.MULTILINE)[0])


def loaded_version(client: Client) -> int | None:
    """Return the version of the library in Redis, or None without one.

    Raises:
        BusUnavailable, BusRefused: Redis does not answer, or is too old to have functions.
    """
    try:
        return int(call(client, "FCALL_RO", "headgate_version", 0))
    except BusRefused as error:
        if is_missing(error):
            return None
        raise


def ensure_loaded(client: Client) -> int:
    """Load the library unless Redis has this version or a newer one; return the version that is there.

    Raises:
        BusUnavailable: Redis does not answer.
        BusRefused: Redis is too old, or this user may not load functions.
    """
    version = loaded_version(client)
    if version is not None and version >= VERSION:
        return version
    try:
        call(client, "FUNCTION", "LOAD", "REPLACE", SOURCE)
    except BusRefused as error:
        if "NOPERM" in error.message or "no permission" in error.message:
            raise BusRefused(
                "this Redis user may not load the function library: allow it +function|load, or run "
                "`headgate check --load` once as a user who may"
            ) from error
        raise
    return VERSION


def call_function(client: Client, *command: str | bytes | int) -> Any:
    """Run one FCALL or FCALL_RO of the library, loading it first when Redis does not have it.

    Raises:
        BusUnavailable, BusRefused, HeadgateError: as `redis_link.call`.
    """
    try:
        return call(client, *command)
    except BusRefused as error:
        if not is_missing(error):
            raise
    ensure_loaded(client)
    return call(client, *command)


def is_missing(error: BaseException) -> bool:
    """Return whether an error says that the function is not in Redis (it has run nothing)."""
    return isinstance(error, BusRefused) and "Function not found" in error.message
