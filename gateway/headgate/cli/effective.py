"""The effective settings of a gateway started here, each with its origin.

In, later ones win: the defaults, an application's configuration (`app.config`), the configuration file, the environment, the
options of the command line. Out: `Settings`, or a row for each. `headgate serve` reads the same in the same order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any

from headgate.consumers.process.config import find_file, read_settings
from headgate.redis.connections import redacted_address
from headgate.settings.settings import PREFIX, Settings, environment, variables_set

HIDDEN = "(hidden)"


class Origin(StrEnum):
    """The origin of a value."""

    DEFAULT = "default"
    FLASK = "Flask"
    FILE = "file"
    ENVIRONMENT = "environment"
    OPTION = "option"


@dataclass(frozen=True, slots=True)
class Row:
    """One setting: `text` for people; `value` for programs, a secret hidden."""

    name: str
    text: str
    value: Any
    origin: Origin


def effective_settings(
    config: str | None, options: Mapping[str, str | None], application: Mapping[str, Any] | None = None
) -> Settings:
    """Return the settings.

    Raises:
        SettingsError: with every fault.
    """
    given = {**environment(), **_said(options)}
    path = find_file(config)
    return Settings.read(application or {}, given if path is None else read_settings(path, given))


def effective_rows(
    config: str | None, options: Mapping[str, str | None], application: Mapping[str, Any] | None = None
) -> tuple[str | None, list[Row]]:
    """Return the configuration file, or None, and a row for each setting, in the order of the docs. Raises the same."""
    settings = effective_settings(config, options, application)
    path = find_file(config)
    sources = (
        (Origin.OPTION, _said(options)),
        (Origin.ENVIRONMENT, variables_set(environment())),
        (Origin.FILE, {} if path is None else read_settings(path, {})),
        (Origin.FLASK, application or {}),
    )
    rows = []
    for each in fields(Settings):
        name = PREFIX + each.name.upper()
        origin = next((origin for origin, names in sources if names.get(name, "") not in ("", None)), Origin.DEFAULT)
        value = getattr(settings, each.name)
        if each.metadata["secret"] and value is not None:
            value = redacted_address(value) if each.name == "redis_url" else HIDDEN
        rows.append(Row(name, _text(value), value, origin))
    return path, rows


def _said(options: Mapping[str, str | None]) -> dict[str, str]:
    return {name: value for name, value in options.items() if value is not None}


def _text(value: object) -> str:
    if value is None or value == ():
        return "not set"
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, tuple):
        return ":".join(map(str, value)) if len(value) == 2 and isinstance(value[1], int) else ",".join(map(str, value))
    return f"{value:g}" if isinstance(value, float) else str(value)
