"""docs/socketio.md has every option with its default."""

import dataclasses
import inspect
import re
from pathlib import Path
from typing import Any

import engineio
import pytest
import socketio

from headgate.socketio import HttpLimits, Overflow, Server, TransportLimits

PAGE = (Path(__file__).parents[3] / "docs" / "socketio.md").read_text()


def table(head: str) -> dict[str, str]:
    """Return the options of the table with this head, and their defaults."""
    rows = PAGE[PAGE.index(f"| {head} |") :].split("\n\n")[0].splitlines()[2:]
    told: dict[str, str] = {}
    for row in rows:
        names, defaults, _ = row.strip("| ").split(" | ", 2)
        values = re.sub(r"(\d),(?=\d{3})", r"\1", defaults).split(", ")
        told |= dict(
            zip(re.findall(r"`(\w+)`", names), values * len(names.split(", ")) if len(values) == 1 else values, strict=False)
        )
    return {name: value.strip("`").strip('"') for name, value in told.items()}


def options_of(function: Any) -> dict[str, str]:
    return {
        name: _text(parameter.default)
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.default is not inspect.Parameter.empty
    }


def fields_of(limits: Any) -> dict[str, str]:
    return {field.name: _text(getattr(limits, field.name)) for field in dataclasses.fields(limits)}


def _text(value: object) -> str:
    if isinstance(value, Overflow):
        return value.value
    return f"{value:g}" if isinstance(value, float) else str(value)


def test_it_has_the_options_of_python_socketio() -> None:
    """Those of the Engine.IO server among them; its logger has a separate name, and `json` and `async_handlers` are one."""
    stock = options_of(engineio.Server.__init__) | options_of(socketio.Server.__init__) | {"engineio_logger": "False"}

    assert table("option of `Server` (python-socketio's)") == stock


def test_it_has_the_options_of_ours() -> None:
    """Without those of python-socketio's that our constructor names."""
    ours = {
        name: value for name, value in options_of(Server.__init__).items() if name not in options_of(socketio.Server.__init__)
    }

    assert table("option of `Server` (new)") == ours | {"transport_limits": "TransportLimits()"}


@pytest.mark.parametrize("limits", [TransportLimits(), HttpLimits()], ids=["TransportLimits", "HttpLimits"])
def test_it_has_the_limits(limits: Any) -> None:
    assert table(f"field of `{type(limits).__name__}`") == fields_of(limits)
