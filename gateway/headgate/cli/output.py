"""Output: one clear line on standard error for every fault, lines safe on a terminal, colour only there, JSON for programs."""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn, ParamSpec

import click

if TYPE_CHECKING:
    from headgate.finding import Finding

P = ParamSpec("P")

# Commands that need the extra `consumers` alone.
_OF_CONSUMERS = {"consume", "consumers", "dead-letters"}
_COLOURS = {"ok": "green", "unknown": "blue", "warning": "yellow", "fault": "red"}
# JSON escapes most of them by itself; the others may stand in its strings, where an escape means the same.
_TERMINAL_CONTROLS = re.compile(rb"[\x00-\x1f\x7f]|\xc2[\x80-\x9f]")


def one_line_errors(command: Callable[P, None]) -> Callable[P, None]:
    """Turn the errors that Headgate raises on purpose into one line, a second with what to do where there is a usual thing to
    do, and exit code 1; others are bugs and keep their trace. A package that is not installed is one line too, if an extra of
    ours brings it. With `--json` an error is one JSON object (`fail`)."""

    @functools.wraps(command)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> None:
        from headgate.errors import HeadgateError
        from headgate.extras import MissingExtra, needing

        path = click.get_current_context().command_path
        try:
            with needing("server" if _OF_CONSUMERS.isdisjoint(path.split()) else "consumers", path):
                command(*args, **kwargs)
        except HeadgateError as error:
            fail(*error.lines(), code=error.code, retry=error.retry, **error.parts)
        except MissingExtra as error:
            fail(str(error))
        except KeyboardInterrupt:
            sys.exit(130)

    return wrapper


def for_terminal(line: bytes) -> bytes:
    """Return a line of which no control character reaches the terminal. JSON may be laid out over several; this is one."""
    return _TERMINAL_CONTROLS.sub(lambda found: b"\\u%04x" % ord(found[0].decode()), re.sub(rb"\s", b" ", line))


def paint(text: str, colour: str | None = None, *, bold: bool = False) -> str:
    """Return text in a colour, where standard output is a terminal and NO_COLOR is not set (https://no-color.org)."""
    if not sys.stdout.isatty():
        return text
    from headgate.settings import wants_no_colour

    if wants_no_colour():
        return text
    return click.style(text, fg=colour, bold=bold or None)


def print_title(text: str) -> None:
    """Print the title of what comes below."""
    click.echo(paint(text, bold=True))


def print_finding(finding: Finding) -> None:
    """Print one finding for a person: its verdict, what was seen, and on a line of its own what to do."""
    word = paint(f"{finding.verdict:8}", _COLOURS[finding.verdict])
    click.echo(b"  " + word.encode() + b" " + for_terminal(f"{finding.name}: {finding.text}".encode()))
    if finding.fix:
        click.echo(b" " * 11 + b"-> " + for_terminal(finding.fix.encode()))


def print_json(value: Any) -> None:
    """Print one value as JSON on one line, for a program."""
    import msgspec

    click.echo(for_terminal(msgspec.json.encode(value)))


def fail(*lines: str, code: str = "failed", **parts: Any) -> NoReturn:
    """Write lines to standard error and end the command with exit code 1.

    Of a command with `--json` they are one line, `{"error": {"code": …, "message": …, …}}` with the parts of the error.
    """
    context = click.get_current_context(silent=True)
    if context is not None and context.params.get("as_json"):
        import msgspec

        error = {**parts, "code": code, "message": "; ".join(lines)}
        click.echo(for_terminal(msgspec.json.encode({"error": error}, enc_hook=str)), err=True)
    else:
        for line in lines:
            click.echo(f"headgate: {line}", err=True)
    sys.exit(1)
