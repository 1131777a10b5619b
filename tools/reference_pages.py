"""The reference pages generated from the code: docs/reference/commands.md, metrics.md and python.md.

A method without a docstring, or whose docstring begins with "Internal:", is no part of the interface.

`python -m tools.reference_pages` writes them; with `--check` it writes nothing and exits 1 if one differs from the code.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import sys
import typing
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any

import click
import prometheus_client

import headgate
import headgate.runtime.metrics
from headgate.cli.main import main as commands

from .generated import row, write_or_check

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "reference"
NOTE = "<!-- Written from the code by `make settings`; `make lint` checks that it is up to date. -->\n\n"
# Of the client library itself, not of Headgate.
FOREIGN = ("python_", "process_")


# -- commands --------------------------------------------------------------------------------------------------------------


def commands_page() -> str:
    """Return the page of the command line."""
    parts = [
        "# Commands\n\n",
        NOTE,
        "Every command has `--help`. Exit codes: 0, 1 for a fault, 2 for wrong usage, 130 after Ctrl-C.\n"
        "What is not given comes from the environment ([settings](../settings.md)).\n\n",
    ]
    context = click.Context(commands, info_name="headgate")
    for name in commands.list_commands(context):
        command = commands.get_command(context, name)
        assert command is not None
        parts += _command(command, f"headgate {name}", 2)
    return "".join(parts).rstrip("\n") + "\n"


def _command(command: click.Command, path: str, depth: int) -> Iterator[str]:
    context = click.Context(command, info_name=path)
    usage = " ".join(command.collect_usage_pieces(context))
    yield f"{'#' * depth} `{path}`\n\n```text\n{path} {usage}\n```\n\n"
    yield f"{_flowed(command.help or '')}\n\n"
    options = [each for each in command.params if isinstance(each, click.Option) and not each.hidden]
    if options:
        yield row(("option", "description")) + row(("---", "---"))
        for option in options:
            names, described = option.get_help_record(context) or ("", "")
            yield row((f"`{names}`", _flowed(described).replace("\n\n", " ")))
        yield "\n"
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from _command(below, f"{path} {name}", depth + 1)


# -- metrics ---------------------------------------------------------------------------------------------------------------


def metrics_page() -> str:
    """Return the page of the metrics."""
    rows = []
    for metric in prometheus_client.REGISTRY.collect():
        if not metric.name.startswith(FOREIGN):
            labels = sorted({label for sample in metric.samples for label in sample.labels} - {"le", "quantile"})
            name = metric.name + ("_total" if metric.type == "counter" else "")
            rows.append((f"`{name}`", metric.type, ", ".join(f"`{label}`" for label in labels), metric.documentation))
    return (
        "# Metrics\n\n"
        + NOTE
        + "`/metrics` has them for all workers of a port ([operations](../operations/observe.md#monitoring-and-alerts)).\n"
        "A label is shown once something has been counted under it. Times are in seconds, sizes in bytes.\n"
        "[A dashboard and alert rules](../../examples/monitoring/README.md) are among the examples.\n\n"
        + row(("metric", "type", "labels", "meaning"))
        + row(("---",) * 4)
        + "".join(row(each) for each in sorted(rows))
    )


# -- Python ----------------------------------------------------------------------------------------------------------------


def python_page() -> str:
    """Return the page of the Python package: what `from headgate import …` gives."""
    things = {name: getattr(headgate, name) for name in sorted([*headgate.__all__, "Headgate"])}
    errors = {name: thing for name, thing in things.items() if inspect.isclass(thing) and issubclass(thing, Exception)}
    parts = [
        "# Python\n\n",
        NOTE,
        "Everything here is imported from `headgate`. What is not on this page is not public and may change.\n\n",
    ]
    for name, thing in things.items():
        if name not in errors and not name.startswith("_"):
            parts += _class(name, thing) if inspect.isclass(thing) else _function(name, thing, 2)
    parts.append("## Errors\n\n`HeadgateError` is the base of all. `code` is the word of the [wire](../protocol.md#errors).\n\n")
    parts.append(row(("error", "code", "meaning")) + row(("---",) * 3))
    for name, error in errors.items():
        parts.append(row((f"`{name}`", f"`{getattr(error, 'code', '')}`", _first(error))))
    return "".join(parts)


def _class(name: str, thing: type) -> Iterator[str]:
    yield f"## `{name}`\n\n"
    if not issubclass(thing, Enum) and (signature := _signature(thing)) != "(…)":
        yield f"```python\n{name}{signature}\n```\n\n"
    yield f"{_documented(thing)}\n\n"
    for attribute, value in vars(thing).items():
        if attribute.startswith("_") or dataclasses.is_dataclass(value):
            continue
        if isinstance(value, property) and value.fget is not None and _is_public(value):
            yield f"### `{name}.{attribute}`\n\n{_documented(value)}\n\n"
        elif isinstance(value, classmethod | staticmethod):
            yield from _function(f"{name}.{attribute}", getattr(thing, attribute), 3)
        elif inspect.isfunction(value) and _is_public(value):
            yield from _function(f"{name}.{attribute}", value, 3)


def _is_public(thing: object) -> bool:
    doc = inspect.getdoc(thing)
    return bool(doc) and not str(doc).startswith("Internal:")


def _function(name: str, thing: Any, depth: int) -> Iterator[str]:
    yield f"{'#' * depth} `{name}`\n\n```python\n{name}{_signature(thing)}\n```\n\n{_documented(thing)}\n\n"


def _signature(thing: Any) -> str:
    try:
        signature = inspect.signature(thing)
    except (NameError, TypeError, ValueError):  # fields of a type that is only there for type checkers
        return "(…)"
    kept = [each for number, each in enumerate(signature.parameters.values()) if not (number == 0 and each.name == "self")]
    text = str(signature.replace(parameters=kept))
    text = re.sub(r"'([^'()]*(?:\[[^']*\])?)'", r"\1", text)  # annotations are text
    text = re.sub(r"(?<![\w.])(?:[a-z_]+\.)+(?=[A-Z])", "", text)
    if len(text) <= 100:
        return text
    inside, _, returned = text[1:].rpartition(") ->")
    if not _:
        inside, returned = text[1:-1], ""
    return "(\n    " + ",\n    ".join(_split(inside)) + ",\n)" + (f" ->{returned}" if returned else "")


def _split(parameters: str) -> list[str]:
    parts, depth, begun = [], 0, 0
    for at, letter in enumerate(parameters):
        depth += (letter in "[(") - (letter in "])")
        if letter == "," and depth == 0:
            parts.append(parameters[begun:at].strip())
            begun = at + 1
    return [*parts, parameters[begun:].strip()]


def _documented(thing: Any) -> str:
    """Return a docstring as Markdown: its sections become lists."""
    lines: list[str] = []
    section = ""
    for line in (inspect.getdoc(thing) or "").split("\n"):
        found = re.fullmatch(r"(Args|Raises|Attributes|Returns|Yields):", line)
        if found:
            section = {"Args": "Arguments"}.get(found[1], found[1])
            lines += [f"**{section}**", ""]
        elif section and line.startswith("    ") and not line.startswith("        "):
            name, colon, rest = line.strip().partition(": ")
            lines.append(f"- {_coded(name)}{colon}{_plain(rest)}" if colon else f"- {_plain(line.strip())}")
        elif section and line.startswith("        "):
            lines.append(f"  {_plain(line.strip())}")
        else:
            if line and not line.startswith(" "):
                section = ""
            lines.append(line if line.startswith("    ") else _plain(line))
    return "\n".join(lines).strip()


def _coded(names: str) -> str:
    return ", ".join(f"`{name}`" if re.fullmatch(r"\*{0,2}[\w.]+", name) else _plain(name) for name in names.split(", "))


def _plain(text: str) -> str:
    return re.sub(r"`[^`]*`|[<*]", lambda found: {"<": "&lt;", "*": "\\*"}.get(found[0], found[0]), text)


def _first(thing: Any) -> str:
    return _plain(" ".join((inspect.getdoc(thing) or "").split("\n\n")[0].split()))


def _flowed(text: str) -> str:
    """Return help text as paragraphs."""
    paragraphs = [" ".join(part.replace("\b", "").split()) for part in inspect.cleandoc(text).split("\n\n")]
    return "\n\n".join(_plain(each) for each in paragraphs)


PAGES: dict[str, typing.Callable[[], str]] = {"commands.md": commands_page, "metrics.md": metrics_page, "python.md": python_page}


def write(arguments: list[str]) -> int:
    """Write or check all pages. Return the exit status."""
    return max(
        write_or_check(arguments, FOLDER / name, page(), "the code", "tools.reference_pages") for name, page in PAGES.items()
    )


if __name__ == "__main__":
    sys.exit(write(sys.argv[1:]))
