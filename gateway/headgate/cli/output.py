"""Output for a person: one clear line on standard error for every fault, and lines that are safe on a terminal."""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Callable
from typing import NoReturn, ParamSpec

import click

P = ParamSpec("P")

# Commands that need the extra `consumers` alone.
_OF_CONSUMERS = {"consume", "consumers", "dead-letters"}
# JSON escapes most of them by itself; the others may stand in its strings, where an escape means the same.
_TERMINAL_CONTROLS = re.compile(rb"[\x00-\x1f\x7f]|\xc2[\x80-\x9f]")


def one_line_errors(command: Callable[P, None]) -> Callable[P, None]:
    """Turn the errors that Headgate raises on purpose into one line, a second with what to do where there is a usual thing to
    do, and exit code 1; others are bugs and keep their trace. A package that is not installed is one line too, if an extra of
    ours brings it."""

    @functools.wraps(command)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> None:
        from headgate.errors import HeadgateError
        from headgate.extras import MissingExtra, needing

        path = click.get_current_context().command_path
        try:
            with needing("server" if _OF_CONSUMERS.isdisjoint(path.split()) else "consumers", path):
                command(*args, **kwargs)
        except HeadgateError as error:
            fail(*error.lines())
        except MissingExtra as error:
            fail(str(error))
        except KeyboardInterrupt:
            sys.exit(130)

    return wrapper


def for_terminal(line: bytes) -> bytes:
    """Return a line of which no control character reaches the terminal. JSON may be laid out over several; this is one."""
    return _TERMINAL_CONTROLS.sub(lambda found: b"\\u%04x" % ord(found[0].decode()), re.sub(rb"\s", b" ", line))


def fail(*lines: str) -> NoReturn:
    """Write lines to standard error and end the command with exit code 1."""
    for line in lines:
        click.echo(f"headgate: {line}", err=True)
    sys.exit(1)
