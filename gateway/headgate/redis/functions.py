"""Loads a function library into Redis if it is missing or older than ours.

In: a client from redis/client.py. Out: a Redis in which a library's functions can be called. A library is loaded rarely, at the
first use of a process and after Redis lost its functions (an empty restart, FUNCTION FLUSH). In a Cluster each node has its own
libraries, and only the node without one gets it.

A newer library stays, because a newer Headgate that shares this Redis needs it, and its calls stay compatible. If there is no
library, the first process loads it and the others keep it. Loading a library again drops its server's token (`server` of a
head), and every gateway would reconnect. Two processes of different versions that both find an old library race, because Redis
has no conditional FUNCTION LOAD REPLACE. The loser's version check at its next start corrects the result.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from importlib.resources import files
from typing import Any

from headgate.errors import BusRefused, HeadgateError

from .client import Client, call, call_at, call_many, is_forbidden, is_full, primaries
from .connections import Command
from .faults import NO_FUNCTION, NO_PERMISSION

# Lines of a library's file to replace by other files, because libraries of Redis cannot call each other.
PARTS = ("clock.lua", "inbox.lua")
# With this text Redis and Valkey refuse a FUNCTION LOAD without REPLACE ("ERR Library 'headgate' already exists").
ALREADY_LOADED = "already exists"


class Library:
    """A function library, with its Lua `source`, its `version`, and calls that load it if missing.

    Args:
        package, file: the place of the source, which contains `local VERSION = <number>`.
        version_function: its function that returns the version.
    """

    def __init__(self, package: str, file: str, version_function: str) -> None:
        self.source = files(package).joinpath(file).read_text("utf-8")
        for part in PARTS:
            if (mark := f"-- <{part}>\n") in self.source:
                self.source = self.source.replace(mark, files("headgate.redis").joinpath(part).read_text("utf-8"))
        self.version = int(re.findall(r"^local VERSION = (\d+)$", self.source, re.MULTILINE)[0])
        self._version_function = version_function

    def loaded_version(self, client: Client) -> int | None:
        """Return the version of the library in Redis, or None without one.

        In a Cluster this is the oldest version of the primaries that have one, since a library is loaded only where a namespace
        needs it. Raises BusUnavailable, BusRefused: Redis does not answer, or is too old to have functions.
        """
        versions = [self._version_at(run) for run in _servers(client, None)]
        return min((version for version in versions if version is not None), default=None)

    def ensure_loaded(self, client: Client, key: str | None = None) -> int:
        """Load the library unless Redis has this version or a newer one. Return the version in Redis.

        With `key` None, load it at all primaries of a Cluster. Raises BusUnavailable if Redis does not answer, and BusRefused if
        it is too old or this user may not load functions.
        """
        return min(self._ensure_at(run) for run in _servers(client, key))

    def try_to_update(self, client: Client, key: str) -> None:
        """Replace an older library on the server of `key`, if this user may and Redis has room. Waits for Redis.

        Raises BusUnavailable if Redis does not answer.
        """
        with suppress(BusRefused):
            self.ensure_loaded(client, key)

    def _version_at(self, run: Callable[..., Any]) -> int | None:
        try:
            return int(run("FCALL_RO", self._version_function, 0))
        except BusRefused as error:
            if is_missing(error):
                return None
            raise

    def _ensure_at(self, run: Callable[..., Any]) -> int:
        version = self._version_at(run)
        if version is None:
            if self._load(run):
                return self.version
            version = self._version_at(run)  # another process was first
        if version is None or version < self.version:
            self._load(run, "REPLACE")
            return self.version
        return version

    def _load(self, run: Callable[..., Any], *options: str) -> bool:
        """Load the library. Return False if Redis has one of this name and `options` do not replace it."""
        try:
            run("FUNCTION", "LOAD", *options, self.source)
        except BusRefused as error:
            if not options and ALREADY_LOADED in error.message:
                return False
            if error.redis_code == NO_PERMISSION:
                raise BusRefused(
                    "this Redis user may not load the function library: allow it +function|load, or run "
                    "`headgate check --load` once as a user who may"
                ) from error
            raise
        return True

    def call(self, client: Client, *command: str | bytes | int) -> Any:
        """Run one FCALL or FCALL_RO of the library. Load the library first if Redis does not have it.

        Raises BusUnavailable, BusRefused, HeadgateError: as `redis.client.call`.
        """
        try:
            return call(client, *command)
        except BusRefused as error:
            if not is_missing(error):
                raise
        self.ensure_loaded(client, str(command[3]))
        return call(client, *command)


def _servers(client: Client, key: str | None) -> list[Callable[..., Any]]:
    """Return a function for each server concerned that runs a command there."""
    if key is not None:
        return [partial(call_at, client, key)]
    return [partial(call, server) for server in primaries(client)]


def server_token(client: Client, key: str | bytes) -> str:
    """Return the token (log.lua) of a key's Redis process; "" if its library is too old or this user may not read it.

    Raises BusUnavailable without an answer.
    """
    try:
        reply = call_at(client, key, "FCALL_RO", "headgate_version", 0, "server")
    except BusRefused:
        return ""
    return reply[1].decode("ascii", "replace") if isinstance(reply, list) else ""


def is_missing(error: BaseException) -> bool:
    """Return whether an error means that Redis does not have the function, so nothing has run."""
    return isinstance(error, BusRefused) and error.redis_code == NO_FUNCTION


# The library of the log.
LOG_LIBRARY = Library("headgate.redis", "log.lua", "headgate_version")
SOURCE, VERSION = LOG_LIBRARY.source, LOG_LIBRARY.version
loaded_version, ensure_loaded, call_function = LOG_LIBRARY.loaded_version, LOG_LIBRARY.ensure_loaded, LOG_LIBRARY.call


def write_all(client: Client, commands: Iterable[Command]) -> list[Any]:
    """Run commands as `call_all`, but run each HSET, RPUSH and ZADD even in a full Redis.

    For bounded keys that must be written then, such as revocations. A full Redis refuses these commands unless a function runs
    them. That takes a round trip for each, the right to call `headgate_write`, and a library with it. A later read in the same
    call may not see such a write. Raises HeadgateError for the first error among the replies, or as `call_many`.
    """
    commands = list(commands)
    replies = call_many(client, commands)
    is_repeated = False
    for at, (command, reply) in enumerate(zip(commands, replies, strict=True)):
        if isinstance(reply, BusRefused) and is_full(reply):
            name, key, *rest = command
            try:
                replies[at] = call_function(client, "FCALL", "headgate_write", 1, key, name, *rest)
            except BusRefused as error:
                raise reply if is_forbidden(error) else error from None
            is_repeated = True
        elif isinstance(reply, HeadgateError):
            raise reply
        elif is_repeated and command[0] == "EXPIRE":
            call(client, *command)  # its key did not exist before
    return replies
