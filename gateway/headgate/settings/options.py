"""Options, each with a reader for an outside value, its expected form, and its meaning. No I/O.

`read_options` reads a frozen dataclass with fields declared by `option` from a mapping, and reports all faults together.
Settings (environment) and consumers (TOML) use the same kinds, so they refuse the same values in the same words.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from os import fspath
from typing import Any, NamedTuple, TypeVar

from headgate.errors import InvalidPattern, InvalidRequest, InvalidTopic
from headgate.events.topic import check_pattern, check_topic, check_user
from headgate.settings.addresses.origins import parse_authority

Declared = TypeVar("Declared")
Parsed = TypeVar("Parsed")
_REQUIRED: Any = object()
SHOWN_CHARACTERS = 80
MAX_PATH_BYTES = 4095  # PATH_MAX of Linux, without the final zero byte
# `int` and `float` also accept 1_000, digits of other scripts, inf and bytes, which are mistakes in a setting.
_WHOLE = re.compile(r"-?[0-9]+")
_DECIMAL = re.compile(r"-?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")
# The parts of URLs that may hold a password or a key.
_USER_INFO, _QUERY = re.compile(r"(?<=//)\S*(?=@)"), re.compile(r"(//[^\s?]*\?)\S+")


class Kind(NamedTuple):
    """How to read a value (raises ValueError, TypeError, KeyError or AttributeError if it is wrong), and its expected form."""

    read: Callable[[Any], Any]
    expected: str


class WrongValue(ValueError):
    """The fault in a value, as text without a secret. A `Kind` raises it if `expected` alone would be unclear.

    `says_expected` is True if the text includes the expected form. `faults` are those inside the tables of an option.
    """

    def __init__(self, reason: str = "", *, says_expected: bool = False, faults: Sequence[Fault] = ()) -> None:
        super().__init__(reason)
        self.says_expected, self.faults = says_expected, faults


class Fault(NamedTuple):
    """One wrong entry of a mapping.

    `shown` is the value in a safe form, or None for an unknown or missing key. `close` is the known key most like an unknown
    one.
    """

    key: str
    wrong: str
    shown: str | None = None
    close: str | None = None

    def line(self, spelt: Callable[[str], str] = str) -> str:
        """Return one line with the key, its value, and the fault or expected form. `spelt` formats a key for display."""
        if self.shown is not None:
            return f"{spelt(self.key)}={self.shown}: {self.wrong}"
        return f"{spelt(self.key)} {self.wrong}" + (f"; did you mean {spelt(self.close)}?" if self.close else "")


def integer(low: int, high: int, unit: str = "") -> Kind:
    """Whole numbers, also as text."""
    return Kind(partial(_number, _WHOLE, int, low, high), f"a whole number from {low} to {high} {unit}".rstrip())


def number(low: float, high: float, unit: str = "") -> Kind:
    """Numbers, also as text."""
    return Kind(partial(_number, _DECIMAL, float, low, high), f"a number from {low:.10g} to {high:.10g} {unit}".rstrip())


def text(expected: str) -> Kind:
    """Non-blank text."""
    return Kind(_text, expected)


def file_path(expected: str) -> Kind:
    """The path of a file or folder, as text or as a `Path`. It may not exist."""

    def read(raw: Any) -> str:
        path = _text(fspath(raw))
        if "\0" in path or len(path.encode("utf-8", "surrogateescape")) > MAX_PATH_BYTES:
            raise ValueError
        return path

    return Kind(read, expected)


def verbatim(expected: str) -> Kind:
    """Non-blank text with its surrounding white space, which may be part of a secret."""

    def read(raw: Any) -> str:
        _text(raw)
        return str(raw)

    return Kind(read, expected)


def one_of(*words: str) -> Kind:
    """One of a few words, in any case."""

    def read(raw: Any) -> str:
        word = str(raw).strip().lower()
        if word not in words:
            raise ValueError
        return word

    return Kind(read, f"{', '.join(words[:-1])} or {words[-1]}")


def matching(grammar: re.Pattern[str], expected: str) -> Kind:
    """Text that fully matches `grammar`, apart from surrounding white space."""

    def read(raw: Any) -> str:
        given = raw.strip()
        if not grammar.fullmatch(given):
            raise ValueError
        return str(given)

    return Kind(read, expected)


def tables(declared: type[Any], most: int) -> Kind:
    """A list of tables, each with the options of `declared`, read into a tuple.

    A fault names its table by its `name`, or else by its number from 1, as in `counters[orders_failed].pattern`.
    """

    def read(raw: Any) -> tuple[Any, ...]:
        if not isinstance(raw, list | tuple) or len(raw) > most or not all(isinstance(table, Mapping) for table in raw):
            raise ValueError
        values: list[Any] = []
        faults: list[Fault] = []
        for number, table in enumerate(raw, 1):
            value, wrong = read_options(declared, table)
            values.append(value)
            name = table.get("name")
            label = name[:SHOWN_CHARACTERS] if isinstance(name, str) and name.isprintable() else number
            faults += (fault._replace(key=f"[{label}].{fault.key}") for fault in wrong)
        if faults:
            raise WrongValue(faults=faults)
        return tuple(values)

    return Kind(read, f"a list of at most {most} tables")


STATSD_PREFIX = matching(re.compile(r"[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+){0,7}", re.ASCII), "a name such as shop.headgate")


def option(default: Any, kind: Kind, doc: str, *, secret: bool = False) -> Any:
    """Declare one option with its default (`required()` for none), its reader and expected form, and its description.

    A secret appears neither in the `repr` of its dataclass nor in any fault.
    """
    metadata = {"read": kind.read, "expected": kind.expected, "doc": doc, "secret": secret}
    if default is _REQUIRED:
        return dataclasses.field(repr=not secret, kw_only=True, metadata=metadata)
    return dataclasses.field(default=default, repr=not secret, kw_only=True, metadata=metadata)


def required() -> Any:
    """Return the default of a required option."""
    return _REQUIRED


def read_options(
    declared: type[Declared], given: Mapping[str, Any], what: str = "an option"
) -> tuple[Declared | None, list[Fault]]:
    """Return the options in `given`, or None and all faults (unknown keys, wrong values, missing required ones).

    Args:
        declared: a dataclass with fields declared by `option`.
        given: the entries. None counts as missing.
        what: the noun in the error for an unknown key.
    """
    specs: dict[str, dataclasses.Field[Any]] = {f.name: f for f in dataclasses.fields(declared)}  # type: ignore[arg-type]
    values: dict[str, Any] = {}
    faults: list[Fault] = []
    for key, raw in given.items():
        spec = specs.get(key)
        if spec is None:
            close = difflib.get_close_matches(key.lower().removeprefix("headgate_"), specs, 1, 0.6)
            faults.append(Fault(key, f"is not {what}", close=close[0] if close else None))
            continue
        if raw is None:
            continue
        try:
            values[key] = spec.metadata["read"](raw)
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
            wrong = f"expected {spec.metadata['expected']}"
            if isinstance(error, WrongValue):
                wrong = str(error) if error.says_expected else f"{wrong}; {error}"
                if error.faults:
                    faults += (fault._replace(key=key + fault.key) for fault in error.faults)
                    continue
            faults.append(Fault(key, wrong, "(hidden)" if spec.metadata["secret"] else show(raw)))
    faulty = {fault.key.partition("[")[0] for fault in faults}
    for name, spec in specs.items():
        is_required = spec.default is dataclasses.MISSING and spec.default_factory is dataclasses.MISSING
        if is_required and name not in values and name not in faulty:
            faults.append(Fault(name, f"is missing; expected {spec.metadata['expected']}"))
    return (None, faults) if faults else (declared(**values), [])


def plain(value: object) -> str:
    """Return the value of an option as text, and "" for "not set"."""
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, tuple):  # of several words, or a host and its port
        return (":" if len(value) == 2 and isinstance(value[1], int) else ",").join(map(str, value))
    return f"{value:g}" if isinstance(value, float) else str(value) if isinstance(value, int | str) else ""


def show(raw: object) -> str:
    """Return a wrong value as short, printable text for errors, without the user, password and query of a URL."""
    return _QUERY.sub(r"\1…", _USER_INFO.sub("…", repr(raw)))[:SHOWN_CHARACTERS]


def parsed(parse: Callable[[str], Parsed], text: str) -> Parsed:
    """Parse a text, which may be one of a list. Raises WrongValue with the text and the reason."""
    try:
        return parse(text)
    except ValueError as error:
        reason = str(error)
        raise WrongValue(reason if show(text) in reason else f"{show(text)}: {reason}") from error


def all_parsed(parse: Callable[[str], Parsed], texts: Iterable[str]) -> tuple[Parsed, ...]:
    """Parse texts, without duplicates. Raises WrongValue with every wrong text and its reason."""
    values: dict[Parsed, None] = {}
    wrong: list[str] = []
    for text in texts:
        try:
            values[parsed(parse, text)] = None
        except WrongValue as error:
            wrong.append(str(error))
    if wrong:
        raise WrongValue("; ".join(wrong))
    return tuple(values)


def read_words(raw: Any) -> tuple[str, ...]:
    """Read a list of texts, or one text with commas. Drops blank ones."""
    parts = raw.split(",") if isinstance(raw, str) else list(raw)
    return tuple(part.strip() for part in parts if part.strip())


def _host_and_port(raw: Any) -> tuple[str, int]:
    host, port = parsed(parse_authority, raw.strip())
    if not port:
        raise ValueError
    return host, port


def _switch(raw: Any) -> bool:
    if isinstance(raw, bool):
        return raw
    return {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False, "": False}[
        str(raw).strip().lower()
    ]


def _number(form: re.Pattern[str], of: Callable[[str], Any], low: float, high: float, raw: Any) -> Any:
    written = str(raw).strip()
    if isinstance(raw, bool) or not form.fullmatch(written) or not low <= (value := of(written)) <= high:
        raise ValueError
    return value


def _text(raw: Any) -> str:
    if not isinstance(raw, str) or not raw.strip():
        raise ValueError
    return raw.strip()


def _refused(check: Callable[[object], str]) -> Callable[[Any], str]:
    """Return a check of events/topic.py as a reader that raises ValueError."""

    def read(raw: Any) -> str:
        try:
            return check(raw)
        except (InvalidPattern, InvalidRequest, InvalidTopic) as error:
            raise ValueError(error.message) from error

    return read


# On or off, as a boolean or a word.
SWITCH = Kind(_switch, "on or off")
# Host name or address and a port, read into (host, port).
HOST_AND_PORT = Kind(_host_and_port, "HOST:PORT, such as 127.0.0.1:8125 or [::1]:8125")
# The name of one user, one topic, one topic pattern, and a list of patterns or one text with commas.
USER = Kind(_refused(check_user), "a user's name")
TOPIC = Kind(_refused(check_topic), "a topic such as alerts.orders")
PATTERN = Kind(_refused(check_pattern), "a pattern such as orders.*.failed")
PATTERNS = Kind(lambda raw: all_parsed(PATTERN.read, read_words(raw)), "patterns such as news.#, comma-separated")
