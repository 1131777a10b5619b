"""Reads the TOML configuration file and its `[settings]`. Needs no extra, because every command reads it.

`[settings]` holds any setting by its name in lower case; the environment overrides it. A fault is one line with file, table, key,
value, and the expected values. It never shows a secret or the value of an unknown key. consumers/process/config.py reads the
consumers.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

from headgate.errors import SettingsError

from .options import read_options, show
from .settings import PREFIX, Settings, configuration_file, variables_set

DEFAULT_FILE = "headgate.toml"
VARIABLE = "HEADGATE_CONFIG"
MAX_FILE_BYTES = 1024 * 1024


def find_file(given: str | None) -> str | None:
    """Return the configuration file: `given`, else HEADGATE_CONFIG, else headgate.toml if this folder has one."""
    return given or configuration_file() or (DEFAULT_FILE if Path(DEFAULT_FILE).is_file() else None)


def need_file(given: str | None) -> str:
    """Return the file of `find_file`. Raises SettingsError without one."""
    if (path := find_file(given)) is None:
        raise SettingsError([f"no configuration file: expected --config FILE, {VARIABLE} or ./{DEFAULT_FILE}"])
    return path


def read_settings(path: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of `environment` (an empty value sets nothing), completed by the `[settings]` of the file.

    The consumers are not read. Raises SettingsError if the file is unreadable or not TOML, or has invalid settings, settings
    outside a table, or unknown tables.
    """
    document = read_toml(path)
    given, faults = settings_table(path, document)
    faults.extend(unknown_tables(path, document))
    if faults:
        raise SettingsError(faults)
    return {**given, **variables_set(environment)}


def read_toml(path: str) -> dict[str, object]:
    try:
        with open(path, "rb") as file:
            raw = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise SettingsError([f"{path}: {(error.strerror or str(error)).lower()}"]) from error
    if len(raw) > MAX_FILE_BYTES:
        raise SettingsError([f"{path}: expected at most {MAX_FILE_BYTES} bytes"])
    try:
        return tomllib.loads(raw.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise SettingsError([f"{path}: expected UTF-8 text (at line {line})"]) from error
    except tomllib.TOMLDecodeError as error:
        raise SettingsError([f"{path}: not TOML: {error}"]) from error
    except RecursionError as error:
        raise SettingsError([f"{path}: not TOML: nested too deeply"]) from error


def settings_table(path: str, document: Mapping[str, object]) -> tuple[dict[str, str], list[str]]:
    """Return `[settings]` in the form of the environment, and its faults."""
    table = document.get("settings", {})
    if not isinstance(table, dict):
        return {}, [f"{path} settings={show(table)}: expected a table [settings]"]
    _, faults = read_options(Settings, table, "a setting")
    variables = {PREFIX + name.upper(): _variable(value) for name, value in table.items()}
    return variables, [f"{path} [settings] {fault.line()}" for fault in faults]


def _variable(value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def unknown_tables(path: str, document: Mapping[str, object]) -> Iterator[str]:
    known = ("settings", "consumers")
    for name, value in document.items():
        if name in known:
            continue
        if not isinstance(value, dict):
            yield f"{path} {name} is in no table; expected it below [settings]"
        else:
            close = difflib.get_close_matches(name, known, 1, 0.6)
            meant = f"did you mean [{close[0]}]?" if close else "expected [settings] or [consumers.on-call]"
            yield f"{path} [{name}] is not a table of this file; {meant}"
