"""Sources of a publisher's schemas: a folder, read once, or the registry in Redis.

While events are published, the registry is asked for its version once per REFRESH_S. While Redis does not answer, or holds no
registry, the previous schemas stay in force.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from headgate.errors import HeadgateError
from headgate.installation import needing
from headgate.redis.client import Client
from headgate.runtime.log_throttle import LogThrottle

from .documents import Documents, documents, read_folder
from .registry import read_registry, read_version

if TYPE_CHECKING:
    from .schema_set import SchemaSet

REFRESH_S = 10.0
# Delay after a failed first read.
RETRY_S = 1.0
# Namespaces cached per publisher; then the cache is cleared.
MAX_NAMESPACES = 64
_NOTHING = documents({})

log = logging.getLogger("headgate.schemas")


class Source(Protocol):
    """A source of schemas."""

    def of(self, namespace: str) -> SchemaSet:
        """Return the schemas of a namespace's topics. May wait for Redis.

        Raises:
            MissingExtra: the extra `schemas` is not installed.
            BusUnavailable, BusRefused, InvalidSchema: as `read_registry` and `read_catalogue`.
        """


class FolderSource:
    """The schemas of a folder, read once for every namespace."""

    def __init__(self, path: str) -> None:
        self._found = _compiled(read_folder(path))

    def of(self, namespace: str) -> SchemaSet:
        """Return them."""
        return self._found


class RegistrySource:
    """The schemas that Redis holds for each namespace. Threads and greenlets may share it; one of them reads."""

    def __init__(self, client: Client, now: Callable[[], float] = time.monotonic) -> None:
        _compiled(_NOTHING)  # raises now if the library is missing
        self._client, self._now = client, now
        self._lock = threading.Lock()
        self._found: dict[str, tuple[SchemaSet, float]] = {}
        self._failed: tuple[str, HeadgateError, float] | None = None  # the last failed first read: namespace, error, time
        self._log_throttle = LogThrottle(now)

    def of(self, namespace: str) -> SchemaSet:
        """Return the newest known schemas, at most REFRESH_S old unless Redis does not answer or another caller is reading."""
        known = self._found.get(namespace)
        if known is not None:
            if self._now() - known[1] < REFRESH_S or not self._lock.acquire(blocking=False):
                return known[0]
            try:
                return self._refreshed(namespace, known[0])
            finally:
                self._lock.release()
        with self._lock:
            if namespace not in self._found:
                if len(self._found) >= MAX_NAMESPACES:
                    self._found.clear()
                self._found[namespace] = (self._first(namespace), self._now())
            return self._found[namespace][0]

    def _first(self, namespace: str) -> SchemaSet:
        """Read schemas for the first time; callers that wait during a failure get the same error without waiting in turn."""
        failed = self._failed
        if failed is not None and failed[0] == namespace and self._now() - failed[2] < RETRY_S:
            raise failed[1].with_traceback(None)
        try:
            return self._read(namespace)
        except HeadgateError as error:
            self._failed = (namespace, error, self._now())
            raise

    def _refreshed(self, namespace: str, known: SchemaSet) -> SchemaSet:
        found = known
        try:
            version = read_version(self._client, namespace)
            if version is None and known.version != _NOTHING.version:
                self._tell("the registry of namespace %r is empty, its schemas of before go on", namespace)
            elif version is not None and version != known.version:
                found = self._read(namespace)
        except HeadgateError as error:
            self._tell("the schemas of namespace %r could not be read, those of before go on: %s", namespace, error.message)
        self._found[namespace] = (found, self._now())
        return found

    def _read(self, namespace: str) -> SchemaSet:
        return _compiled(read_registry(self._client, namespace) or _NOTHING)

    def _tell(self, line: str, *words: str) -> None:
        if self._log_throttle.due(line) is not None:
            log.warning(line, *words)


def _compiled(found: Documents) -> SchemaSet:
    with needing("schemas", "publishing with schemas"):
        from .schema_set import schema_set  # only here, because a publisher without schemas lacks the library

        return schema_set(found)
