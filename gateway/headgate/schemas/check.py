"""The check at publish: whether the data of an event satisfies the schemas of its topic.

In: each event from the publisher before it is sent. Out: nothing, or `SchemaViolation` (refuse), or a throttled log line (warn).
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from headgate.errors import BusRefused, HeadgateError, InvalidSchema, SchemaViolation, SettingsError
from headgate.redis.client import Client
from headgate.runtime.log_throttle import LogThrottle
from headgate.settings.settings import REGISTRY, Settings, environment

from .sources import FolderSource, RegistrySource, Source

OFF, WARN, REFUSE = MODES = ("off", "warn", "refuse")
OnViolation = Callable[[str, SchemaViolation], object]

log = logging.getLogger("headgate.schemas")


class SchemaCheck:
    """See the module.

    Args:
        source: of the schemas.
        refuse: raise; otherwise warn.
        on_violation: called with the namespace and the violation in both cases; must not wait.
        log_throttle: decides which warnings are logged.
    """

    def __init__(
        self, source: Source, *, refuse: bool, on_violation: OnViolation | None = None, log_throttle: LogThrottle | None = None
    ) -> None:
        self._source, self._refuse, self._on_violation = source, refuse, on_violation
        self._log_throttle = log_throttle or LogThrottle()

    def check(self, namespace: str, topic: str, payload: bytes) -> None:
        """Check the data of an event. May wait for Redis if the schemas are in the registry.

        Raises:
            SchemaViolation: it violates a schema, and `refuse` is set.
            BusUnavailable, BusRefused: the registry was never read, and `refuse` is set.
        """
        try:
            found = self._source.of(namespace).violation(topic, payload)
        except HeadgateError as error:
            self._tell("unread", "the schemas could not be read: %s", error)
            if not self._refuse:
                return
            if isinstance(error, InvalidSchema):
                raise BusRefused(error.message, told="the schemas of topics cannot be read") from error
            raise
        if found is None:
            return
        if self._on_violation is not None:
            self._on_violation(namespace, found)
        if self._refuse:
            raise found
        self._tell("violation", "published although %s", found)

    def _tell(self, name: str, line: str, error: HeadgateError) -> None:
        if (left_out := self._log_throttle.due(name)) is not None:
            log.warning(line + "%s", error.message, f" ({left_out} more since the last line)" if left_out else "")


def open_check(
    client: Client, schemas: str | None, mode: str | None, on_violation: OnViolation | None = None
) -> SchemaCheck | None:
    """Return the check of a publisher, or None if nothing is checked.

    Args:
        client: the publisher's, for the registry.
        schemas: a folder, or REGISTRY; None means HEADGATE_SCHEMAS.
        mode: one of MODES; None means HEADGATE_SCHEMA_CHECK.
        on_violation: as `SchemaCheck`.

    Raises:
        SettingsError: `mode` or a variable is invalid.
        InvalidSchema: in the folder.
        MissingExtra: the extra `schemas` is not installed.
    """
    if mode == OFF:
        return None
    if mode is not None and mode not in MODES:
        raise SettingsError([f"schema_check={mode!r}: expected {', '.join(MODES[:-1])} or {MODES[-1]}"])
    if schemas is None and not environment().get("HEADGATE_SCHEMAS"):
        return None  # a service may make a publisher per request, and reading settings would double its cost
    if schemas is None or mode is None:
        set_ = Settings.from_environment("HEADGATE_SCHEMAS", "HEADGATE_SCHEMA_CHECK")
        schemas, mode = schemas or set_.schemas, mode or set_.schema_check
    if not schemas or mode == OFF:
        return None
    source: Source = RegistrySource(client) if schemas == REGISTRY else FolderSource(schemas)
    return SchemaCheck(source, refuse=mode == REFUSE, on_violation=on_violation)
