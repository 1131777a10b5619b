"""The events that the code logs, read from its source: for docs/logs.md, and for the test that holds them together.

In: the modules of both packages. Out: each event with its loggers, its levels, and the fields that it may have. An event's name
is the first argument of a call of a logger of structlog, or of a `throttled` one. Where that is a parameter, it is what the calls
of that function say, in the module or, if it has none, in the others, as far as they say it as a text.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = (ROOT / "gateway" / "headgate", ROOT / "server" / "headgate_server")
METHODS = {"debug": "debug", "info": "info", "warning": "warning", "error": "error", "exception": "error", "log": "info, error"}
# A `throttled` log (runtime/logging.py): of consumers.
THROTTLED = ("headgate.consumers", "warning")
# Arguments other than fields of a line.
_NO_FIELDS = ("exc_info", "logger")
# To read a module takes a few milliseconds, so others are passed over.
_MAY_WRITE = re.compile(r"get_logger|_log\(|\.acted\(")
# Fields composed elsewhere.
_MORE = "…"


@dataclass
class LogEvent:
    """One event: where it is written, and what its lines may have."""

    name: str
    loggers: set[str] = field(default_factory=set)
    levels: set[str] = field(default_factory=set)
    fields: list[str] = field(default_factory=list)


class Unresolved(Exception):
    """The source does not show the event of a call."""


@cache
def log_events(packages: tuple[Path, ...] = PACKAGES) -> list[LogEvent]:
    """Return all events, by name.

    Raises:
        Unresolved: a call of a logger names its event in an unknown way; the message has the place.
    """
    found: dict[str, LogEvent] = {}
    paths = sorted(path for package in packages for path in package.rglob("*.py"))
    modules = [_Module(path) for path in paths if _MAY_WRITE.search(path.read_text(encoding="utf-8"))]
    for module in modules:
        module.others = [each for each in modules if each is not module]
        for name, logger, level, fields in module.events():
            event = found.setdefault(name, LogEvent(name))
            event.loggers.add(logger)
            event.levels.update(level.split(", "))
            event.fields += (each for each in fields if each not in event.fields)
    return [found[name] for name in sorted(found, key=str.lower)]


class _Module:
    """One module: its loggers, its constants, and the calls in it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.others: list[_Module] = []
        self._tree = ast.parse(path.read_text(encoding="utf-8"))
        self._constants: dict[str, ast.expr] = {}
        for node in self._tree.body:
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                self._constants[node.targets[0].id] = node.value
        nodes = list(ast.walk(self._tree))
        self._functions = [each for each in nodes if isinstance(each, ast.FunctionDef)]
        self._calls = [each for each in nodes if isinstance(each, ast.Call)]

    def events(self) -> Iterator[tuple[str, str, str, list[str]]]:
        """Yield (event, logger, levels, fields) for each event of each call."""
        for call in self._calls:
            of = self._logger_of(call.func)
            if of is None:
                continue
            logger, level, place = of
            for name, fields in self._texts(call.args[place], call):
                yield name, logger, level, fields

    def _logger_of(self, called: ast.expr) -> tuple[str, str, int] | None:
        """Return the logger that a call writes to, its level, and which argument is the event; None: it writes no line."""
        if isinstance(called, ast.Attribute) and called.attr == "_log" and _is_self(called.value):
            return (*THROTTLED, 0)
        if not isinstance(called, ast.Attribute) or called.attr not in METHODS:
            return None
        place = int(called.attr == "log")
        made = called.value
        if isinstance(made, ast.Name):
            made = self._constants.get(made.id, made)
        if isinstance(made, ast.Call) and isinstance(made.func, ast.Attribute) and made.func.attr == "get_logger":
            name = made.args[0]
            if isinstance(name, ast.Name):
                name = self._constants[name.id]
            return str(name.value) if isinstance(name, ast.Constant) else "of the module", METHODS[called.attr], place
        return None

    def _texts(self, node: ast.expr, call: ast.Call) -> list[tuple[str, list[str]]]:
        """Return what an expression may be, each with the fields of the call."""
        match node:
            case ast.Constant(value=str(text)):
                return [(text, self._fields(call))]
            case ast.IfExp(body=one, orelse=other):
                return [*self._texts(one, call), *self._texts(other, call)]
            case ast.Subscript(value=ast.Name(id=name)) if isinstance(known := self._constants.get(name), ast.Dict):
                return [each for value in known.values for each in self._texts(value, call)]
            case ast.Name(id=name):
                return self._texts_of_parameter(name, call)
        raise Unresolved(f"{self._path}:{call.lineno}: the event of this line is not a text")

    def _texts_of_parameter(self, name: str, call: ast.Call) -> list[tuple[str, list[str]]]:
        for function in self._functions:
            parameters = [each.arg for each in function.args.args if each.arg != "self"]
            if name in parameters and call in ast.walk(function):
                place = parameters.index(name)
                own = [each for each in self._fields(call) if each != _MORE]
                said = self._said_to(function.name, place) or [
                    each for other in self.others for each in other.known_to(function.name, place)
                ]
                # What a function takes by a name of its own is no field, unless it passes that on.
                found = [
                    (text, own + [each for each in fields if each not in own and each.strip("`") not in parameters])
                    for text, fields in said
                ]
                if found:
                    return found
        raise Unresolved(f"{self._path}:{call.lineno}: nobody says which event {name!r} is")

    def known_to(self, function: str, place: int) -> list[tuple[str, list[str]]]:
        """Return the texts that this module's calls of a function of another module give it, as far as they are known."""
        try:
            return self._said_to(function, place)
        except Unresolved:
            return []  # another function of that name, or an action that is a value

    def _said_to(self, function: str, place: int) -> list[tuple[str, list[str]]]:
        """Return the texts that this module's calls of a function give it at a place, each with the fields of the call."""
        return [
            text
            for each in self._calls
            if _name_of(each.func) == function and len(each.args) > place
            for text in self._texts(each.args[place], each)
        ]

    def _fields(self, call: ast.Call) -> list[str]:
        return [f"`{each.arg}`" if each.arg else _MORE for each in call.keywords if each.arg not in _NO_FIELDS]


def _name_of(called: ast.expr) -> str | None:
    match called:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
    return None


def _is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"
