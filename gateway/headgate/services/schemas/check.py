"""Checks at publish whether the data of an event satisfies the schemas of its topic.

In: each event from the publisher before it is sent. Out: nothing, or `SchemaViolation` (refuse), or a throttled log line (warn).

Schemas come from a folder, which is read once, or from the registry in Redis. While events are published, the registry's
version is read once per REFRESH_S. While Redis does not answer, or holds no registry, the previous schemas stay in force.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from os import PathLike
from typing import TYPE_CHECKING

from headgate.errors import BusRefused, HeadgateError, InvalidSchema, SchemaViolation, SettingsError
from headgate.installation import needing
from headgate.redis.client import Client
from headgate.redis.pool import reset_in_child
from headgate.runtime.log_throttle import LogThrottle
from headgate.settings.settings import REGISTRY, Settings, environment

from .documents import NO_TOPIC, Documents, documents, read_folder
from .registry import read_registry, read_version

if TYPE_CHECKING:
    from .catalogue import Catalogue

OFF, WARN, REFUSE = MODES = ("off", "warn", "refuse")
REFRESH_S = 10.0
# Delay after a failed first read.
RETRY_S = 1.0
# Namespaces cached per publisher. Beyond that the cache is cleared.
MAX_NAMESPACES = 64
_NOTHING = documents({})
_UNREAD = (None, None, -math.inf)

OnViolation = Callable[[str, SchemaViolation], object]
Budgets = Callable[[str], AbstractContextManager[None]]

log = logging.getLogger("headgate.schemas")


class SchemaCheck:
    """See the module.

    Args:
        schemas_of: returns the schemas of a namespace's topics. May wait for Redis, and raise as `RegistrySource.of`.
        refuse: whether to raise instead of warning.
        on_violation: called with the namespace and the violation in both cases. Must not wait.
    """

    def __init__(
        self,
        schemas_of: Callable[[str], Catalogue],
        *,
        refuse: bool,
        on_violation: OnViolation | None = None,
        log_throttle: LogThrottle | None = None,
    ) -> None:
        self._schemas_of, self._refuse, self._on_violation = schemas_of, refuse, on_violation
        self._log_throttle = log_throttle or LogThrottle()

    def check(self, namespace: str, topic: str, payload: bytes) -> None:
        """Check the data of an event. May wait for Redis if the schemas are in the registry.

        Raises:
            SchemaViolation: it violates a schema, and `refuse` is set.
            BusUnavailable, BusRefused: the registry was never read, and `refuse` is set.
        """
        try:
            violation = self._schemas_of(namespace).violation(topic, payload)
        except HeadgateError as error:
            self._warn("unread", "the schemas could not be read: %s", error)
            if not self._refuse:
                return
            if isinstance(error, InvalidSchema):
                raise BusRefused(error.message, shown="the schemas of topics cannot be read") from error
            raise
        if violation is None:
            return
        if self._on_violation is not None:
            self._on_violation(namespace, violation)
        if self._refuse:
            raise violation
        self._warn("violation", "published although %s", violation)

    def _warn(self, name: str, line: str, error: HeadgateError) -> None:
        if (left_out := self._log_throttle.due(name)) is not None:
            log.warning(line + "%s", error.message, f" ({left_out} more since the last line)" if left_out else "")


def open_check(
    client: Client,
    schemas: str | None,
    mode: str | None,
    on_violation: OnViolation | None = None,
    budget: Budgets = lambda _: nullcontext(),
) -> SchemaCheck | None:
    """Return the check of a publisher, or None without one.

    Args:
        schemas: a folder, or REGISTRY; None means HEADGATE_SCHEMAS.
        mode: one of MODES; None means HEADGATE_SCHEMA_CHECK.
        on_violation: as `SchemaCheck`.
        budget: as `RegistrySource`.

    Raises:
        SettingsError: `mode` or a variable is invalid, or the mode is REFUSE without schemas.
        InvalidSchema: in the folder, or it has none for any topic.
        MissingExtra: the extra `schemas` is not installed.
    """
    if mode == OFF:
        return None
    if mode is not None and mode not in MODES:
        raise SettingsError([f"schema_check={mode!r}: expected {', '.join(MODES[:-1])} or {MODES[-1]}"])
    if schemas is not None and not isinstance(schemas, str | PathLike):
        raise SettingsError([f"schemas={schemas!r:.80}: expected a folder, or {REGISTRY!r}"])
    # "folder" stands for the given one, which is read below with a separate error.
    given = {"HEADGATE_SCHEMAS": "folder" if schemas else None, "HEADGATE_SCHEMA_CHECK": mode}
    # In upper or lower case, because lower case is a fault.
    variables = {name: value for name, value in environment().items() if name.upper() in given}
    if not any(given.values()) and not any(variables.values()):
        return None  # a service may create a publisher per request, and reading settings would double its cost
    if not schemas or mode is None:
        set_ = Settings.read(variables, given)
        schemas, mode = schemas or set_.schemas, set_.schema_check
    if not schemas or mode == OFF:
        return None
    schemas_of = RegistrySource(client, budget=budget).of if schemas == REGISTRY else folder_source(schemas)
    return SchemaCheck(schemas_of, refuse=mode == REFUSE, on_violation=on_violation)


def folder_source(path: str) -> Callable[[str], Catalogue]:
    """Return the source of a folder's schemas, which are read once for all namespaces."""
    schemas = _compiled(read_folder(path))
    if not schemas.topics:
        raise InvalidSchema(f"{path}/", NO_TOPIC)
    return lambda _: schemas


class RegistrySource:
    """The schemas in Redis for each namespace. Threads and greenlets may share it. One of them reads.

    `budget` returns the time limit of one read. Nothing else may use it, because an exit without a request would count as an
    answer of Redis and close the circuit breaker.
    """

    def __init__(
        self, client: Client, now: Callable[[], float] = time.monotonic, budget: Budgets = lambda _: nullcontext()
    ) -> None:
        _compiled(_NOTHING)  # raises now if the library is missing
        self._client, self._now, self._budget = client, now, budget
        self.reset()
        reset_in_child(self)
        # By namespace: the schemas, else the error of their first read; when to read again.
        self._known: dict[str, tuple[Catalogue | None, HeadgateError | None, float]] = {}
        self._log_throttle = LogThrottle(now)

    def reset(self) -> None:
        """Forget a reading caller, which a forked child does not have."""
        self._lock = threading.Lock()

    def of(self, namespace: str) -> Catalogue:
        """Return the newest known schemas. They are at most REFRESH_S old if Redis answers and no other caller is reading.

        Raises:
            MissingExtra: the extra `schemas` is not installed.
            BusUnavailable, BusRefused, InvalidSchema: as `read_registry` and `read_catalogue`.
        """
        schemas, error, until_s = self._known.get(namespace, _UNREAD)
        # Callers with schemas do not wait for the one that reads. Others wait, and share its error instead of reading in turn.
        if self._now() >= until_s and self._lock.acquire(blocking=schemas is None):
            try:
                schemas, error, until_s = self._known.get(namespace, _UNREAD)
                if self._now() >= until_s:
                    schemas, error = self._newer(namespace, schemas)
                    if namespace not in self._known and len(self._known) >= MAX_NAMESPACES:
                        self._known.clear()
                    self._known[namespace] = schemas, error, self._now() + (RETRY_S if schemas is None else REFRESH_S)
            finally:
                self._lock.release()
        if schemas is None:
            assert error is not None
            raise error.with_traceback(None)
        return schemas

    def _newer(self, namespace: str, known: Catalogue | None) -> tuple[Catalogue | None, HeadgateError | None]:
        """Return the present schemas, or if they cannot be read the known ones and the error."""
        try:
            with self._budget(namespace):
                version = None if known is None else read_version(self._client, namespace)
                if known is None or version not in (None, known.version):
                    return _compiled(read_registry(self._client, namespace) or _NOTHING), None
        except HeadgateError as error:
            if known is not None:
                line = "the schemas of namespace %r could not be read, the previous ones stay in force: %s"
                self._warn(line, namespace, error.message)
            return known, error.with_traceback(None)
        if version is None and known.version != _NOTHING.version:
            self._warn("the registry of namespace %r is empty, its previous schemas stay in force", namespace)
        return known, None

    def _warn(self, line: str, *words: str) -> None:
        if self._log_throttle.due(line) is not None:
            log.warning(line, *words)


def _compiled(documents: Documents) -> Catalogue:
    with needing("schemas", "publishing with schemas"):
        from .catalogue import read_catalogue  # imported here, because a publisher without schemas lacks the library

        return read_catalogue(documents)
