"""Reads the consumers of the configuration file (settings/file.py), and reports all faults of the file together.

Each `[consumers.<name>]` holds the common options (`TableOptions`, `RunnerOptions`) and the options of its type. In place of a
secret, `<option>_env` names an environment variable. A fault is one line as in settings/file.py, without any secret.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from inspect import iscoroutinefunction
from typing import TypeVar

from headgate.consumers.base import Consumer
from headgate.consumers.work.routing import routing_faults
from headgate.consumers.work.spec import CONSUMER_NAME, ConsumerSpec, RunnerOptions
from headgate.errors import InvalidRequest, SettingsError
from headgate.events.numbers import check_items
from headgate.installation import advice
from headgate.runtime.importing import import_string
from headgate.settings.file import read_settings, read_toml, settings_table, unknown_tables
from headgate.settings.options import PATTERNS, Fault, Kind, option, read_options, required, show, text
from headgate.settings.settings import Settings, variables_set

MAX_CONSUMERS = 64
MAX_PATTERNS = 64
Declared = TypeVar("Declared")

# Imported by name, so that a process imports only the types in its file.
TYPES = {
    "apprise": "headgate.consumers.apprise:Apprise",
    "email": "headgate.consumers.email.consumer:Email",
    "monitoring": "headgate.consumers.monitoring.consumer:Monitoring",
    "webhook": "headgate.consumers.webhook.consumer:Webhook",
    "webpush": "headgate.consumers.webpush.consumer:WebPush",
}
OWN_TYPE = "package.module:Class"
_EXPECTED_TYPE = f"{', '.join(TYPES)}, or your own as {OWN_TYPE}"


def _some_patterns(raw: str | Sequence[str]) -> tuple[str, ...]:
    read: tuple[str, ...] = PATTERNS.read(raw)
    if not 1 <= len(read) <= MAX_PATTERNS:
        raise ValueError
    return read


@dataclass(frozen=True, slots=True)
class TableOptions:
    """The options in every consumer's table besides those of the runner and of its type."""

    type: str = option(required(), text(_EXPECTED_TYPE), "The kind of consumer.")
    patterns: tuple[str, ...] = option(
        required(),
        Kind(_some_patterns, f"1 to {MAX_PATTERNS} patterns such as orders.*.failed"),
        "The events it gets; an event that matches several patterns comes once.",
    )
    namespace: str | None = option(None, text("a namespace"), "The namespace whose log it reads. Not set: the first one.")


def read_consumers(
    path: str, environment: Mapping[str, str], only: Sequence[str] = ()
) -> tuple[Settings, tuple[ConsumerSpec, ...]]:
    """Read the whole file, import the code of its consumers, and return the settings and the consumers.

    Args:
        path: the file, named in errors as given.
        environment: `HEADGATE_*` names that override `[settings]`, and the variables of secrets.
        only: names of consumers; the others are checked and left out. Empty for all.

    Raises SettingsError with a line for every fault of the file and of the environment, and every unknown name in `only`.
    """
    document = read_toml(path)
    given, faults = settings_table(path, document)
    settings = None
    if not faults:
        try:
            settings = Settings.read({**given, **variables_set(environment)})
        except SettingsError as error:
            faults.extend(error.faults)
    faults.extend(unknown_tables(path, document))
    specs: list[ConsumerSpec] = []
    tables = document.get("consumers", {})
    if not isinstance(tables, dict) or not 1 <= len(tables) <= MAX_CONSUMERS:
        shown = f"{len(tables)} consumers" if isinstance(tables, dict) else show(tables)
        faults.append(f"{path} [consumers]: {shown}; expected 1 to {MAX_CONSUMERS} tables such as [consumers.on-call]")
        tables = {}
    namespaces = settings.namespaces if settings else None
    for name, table in tables.items():
        spec, its_faults = _read_consumer(name, table, namespaces, environment)
        faults.extend(f"{path} {line}" for line in its_faults)
        if spec is not None:
            specs.append(spec)
    faults.extend(f"--only {show(name)}: expected one of {', '.join(tables)}" for name in only if name not in tables)
    if faults or settings is None:
        raise SettingsError(faults)
    return settings, tuple(spec for spec in specs if not only or spec.name in only)


def read_names(path: str, environment: Mapping[str, str]) -> frozenset[tuple[str, str]]:
    """Return (namespace, name) of every consumer of the file, whatever its faults. Imports nothing.

    Raises SettingsError as `read_settings`, or if the environment is invalid.
    """
    tables = read_toml(path).get("consumers", {})
    first = Settings.read(read_settings(path, environment)).namespaces[0]
    named = tables.items() if isinstance(tables, dict) else ()
    return frozenset((str(table.get("namespace") or first), name) for name, table in named if isinstance(table, dict))


def load_type(type_name: str) -> type[Consumer]:
    """Return the class for the `type` of a consumer's table.

    Raises ValueError without one. The message has the type and the expected values.
    """
    if type_name not in TYPES and ":" not in type_name:
        close = difflib.get_close_matches(type_name, TYPES, 1, 0.6)
        raise ValueError(f"expected {_EXPECTED_TYPE}" + (f"; did you mean {close[0]}?" if close else ""))
    try:
        loaded = import_string(TYPES.get(type_name, type_name), OWN_TYPE)
    except InvalidRequest as error:
        raise ValueError(error.parts["reason"]) from error
    except (Exception, SystemExit) as error:
        extra = "push" if type_name == "webpush" else "consumers"
        advised = advice(error, extra) if isinstance(error, ModuleNotFoundError) else None
        raise ValueError(advised or f"cannot be imported: {type(error).__name__}: {show(str(error))}") from error
    if not isinstance(loaded, type) or not issubclass(loaded, Consumer):
        raise ValueError("expected a class that derives from headgate.consumers.Consumer")
    for name in ("start", "keys", "handle", "handle_together", "handle_many", "pause_s", "tick", "close"):
        if iscoroutinefunction(getattr(loaded, name)):
            raise ValueError(f"expected {name} to be a method that may block, not a coroutine (async def)")
    if not dataclasses.is_dataclass(loaded.Options) or not all("read" in f.metadata for f in dataclasses.fields(loaded.Options)):
        raise ValueError("expected Options to be a dataclass whose fields are declared with headgate.consumers.option")
    if clashing := sorted(_keys(loaded.Options) & _common_keys()):
        raise ValueError(f"its option {clashing[0]} has the name of one that every consumer has")
    work = "handle_many" if loaded.batch else "handle"
    if getattr(loaded, work) is getattr(Consumer, work):
        raise ValueError(f"expected a method {work}, which does the work")
    return loaded


def _read_consumer(
    name: str, table: object, namespaces: Sequence[str] | None, environment: Mapping[str, str]
) -> tuple[ConsumerSpec | None, list[str]]:
    """Return one consumer, or None and its faults, each with its table. `namespaces` is None if unknown."""
    where = f"[consumers.{name}]"
    if not CONSUMER_NAME.fullmatch(name):
        return None, [f"[consumers.{show(name)}]: expected a name of 1 to 64 characters of [A-Za-z0-9_-]"]
    if not isinstance(table, dict):
        return None, [f"[consumers] {name}={show(table)}: expected a table {where}"]
    common, faults = _read_part(TableOptions, table)
    runner, runner_faults = _read_part(RunnerOptions, table)
    faults += runner_faults
    if common and namespaces and (common.namespace or namespaces[0]) not in namespaces:
        faults.append(Fault("namespace", f"expected one of {', '.join(namespaces)}", show(common.namespace)))
    consumer, options = None, None
    if isinstance(table.get("type"), str) and table["type"].strip():
        try:
            consumer = load_type(table["type"].strip())
        except ValueError as error:
            faults.append(Fault("type", str(error), show(table["type"])))
    if consumer is not None:
        options, own_faults = _read_own(consumer.Options, table, environment)
        faults += own_faults
        known = _common_keys() | _keys(consumer.Options) | {f"{secret}_env" for secret in _secrets(consumer.Options)}
        for key in (key for key in table if key not in known):
            close = difflib.get_close_matches(key, sorted(known), 1, 0.6)
            faults.append(Fault(key, f"is not an option of {table['type']}", close=close[0] if close else None))
    lines = [f"{where} {fault.line()}" for fault in faults]
    if consumer and common and options is not None:
        lines += [f"{where} {line}" for line in _checked(consumer, options, common.patterns)]
        if runner is not None:
            lines += [f"{where} {line}" for line in routing_faults(runner, consumer, options, common.patterns)]
    if lines or not (common and runner and consumer and namespaces):
        return None, lines
    return ConsumerSpec(name, consumer, options, common.patterns, common.namespace or namespaces[0], runner), []


def _read_part(declared: type[Declared], table: Mapping[str, object]) -> tuple[Declared | None, list[Fault]]:
    keys = _keys(declared)
    return read_options(declared, {key: value for key, value in table.items() if key in keys})


def _read_own(
    declared: type[Declared], table: Mapping[str, object], environment: Mapping[str, str]
) -> tuple[Declared | None, list[Fault]]:
    """Read the options of a type, and secrets from the environment variables that the table names."""
    given, variables, faults = dict(table), dict[str, str](), list[Fault]()
    for name in _secrets(declared):
        if (variable := table.get(f"{name}_env")) is None:
            continue
        value = environment.get(variable, "") if isinstance(variable, str) else ""
        if given.get(name) is not None:
            faults.append(Fault(name, f"and {name}_env are both given; expected one of them"))
        elif not value.strip():
            faults.append(Fault(f"{name}_env", "there is no such environment variable, or it is blank", show(variable)))
        else:
            given[name], variables[name] = value, show(variable)
    options, wrong = _read_part(declared, given)
    for fault in wrong:
        if fault.key in variables:
            fault = Fault(f"{fault.key}_env", f"the value of this variable is wrong: {fault.wrong}", variables[fault.key])
        elif fault.shown is None and fault.key in _secrets(declared):
            if f"{fault.key}_env" in table:
                continue
            fault = fault._replace(wrong=f"{fault.wrong}, or {fault.key}_env")
        faults.append(fault)
    return None if faults else options, faults


def _secrets(declared: type) -> list[str]:
    return [field.name for field in dataclasses.fields(declared) if field.metadata["secret"]]


def _keys(declared: type) -> set[str]:
    return {field.name for field in dataclasses.fields(declared)}


def _common_keys() -> set[str]:
    return _keys(TableOptions) | _keys(RunnerOptions)


def _checked(consumer: type[Consumer], options: object, asked: Sequence[str]) -> list[str]:
    try:
        return list(check_items(consumer.check(options, asked), "check", "texts"))
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the check of an operator's own class
        return [f"its check raised {type(error).__name__}: {show(str(error))}"]
