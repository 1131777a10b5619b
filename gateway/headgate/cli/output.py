"""Prints one clear line on standard error per fault, safe lines and colours for a terminal, and JSON for programs.

All commands print through this module. Exit codes: 1 for a fault, and DONE_UNTOLD if a command has done its work but standard
output did not accept the result. Standard error then has it.
"""

from __future__ import annotations

import errno
import functools
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any, NoReturn, TextIO

import click

from headgate.runtime.operator_lines import for_terminal, wants_no_colour

if TYPE_CHECKING:
    from headgate.runtime.check_result import CheckResult


DONE_UNTOLD = 3
# The last day that has a text, 9999-12-30, in every zone. Redis may name a later time, in the id of an entry.
_LAST_TIME_S = 253402214400
# Commands that need only the extra `consumers`.
_OF_CONSUMERS = {"consume", "consumers", "dead-letters"}
# The errors of a full file or terminal.
_FULL = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO))
_COLOURS = {"ok": "green", "unknown": "blue", "warning": "yellow", "fault": "red"}


class Trusted(bytes):
    """A piece of a line from us, such as a colour, which reaches the terminal unchanged."""


class OutputRefused(Exception):
    """Standard output did not accept text: a full disk, or a closed pipe."""

    def __init__(self, error: OSError) -> None:
        super().__init__((error.strerror or str(error)).lower())
        self.is_closed_pipe = error.errno == errno.EPIPE


def one_line_errors(command: Callable[..., None]) -> Callable[..., None]:
    """Turn errors of Headgate's tree into one line, a second line with the usual remedy if any, and exit code 1.

    Other errors are bugs and keep their traceback. A missing package of one of our extras is also one line. With `--json` an
    error is one JSON object (`fail`). The command calls `wants_json`, and does not get the option.
    """

    @functools.wraps(command)
    def wrapper(*args: Any, **kwargs: Any) -> None:
        from headgate.errors import HeadgateError
        from headgate.installation import MissingExtra, needing

        path = click.get_current_context().command_path
        kwargs.pop("as_json", None)
        try:
            with needing("server" if _OF_CONSUMERS.isdisjoint(path.split()) else "consumers", path):
                command(*args, **kwargs)
        except HeadgateError as error:
            fail(*error.lines(), code=error.code, retry=error.retry, **error.parts)
        except MissingExtra as error:
            fail(str(error))
        except OutputRefused as error:
            _fail_for(error)
        except FileNotFoundError:
            if _is_in_a_folder():
                raise
            fail("the current folder was deleted; run the command in another one")
        except KeyboardInterrupt:
            sys.exit(130)

    return wrapper


def echo(*pieces: str | bytes, err: bool = False) -> None:
    """Print one line of pieces, each made safe unless Trusted.

    Raises OutputRefused if standard output does not accept it, now or later. Text that standard error does not accept is lost.
    """
    line = b"".join(piece if isinstance(piece, Trusted) else for_terminal(piece) for piece in pieces)
    _write(line + b"\n", err=err)


def print_document(text: str) -> None:
    """Print a file of several lines, made safe only on a terminal. Raises as `echo`."""
    if sys.stdout is not None and sys.stdout.isatty():
        _write(b"\n".join(map(for_terminal, text.split("\n"))))
    else:
        _write(text.encode(errors="backslashreplace"))


def paint(text: str, colour: str | None = None, *, bold: bool = False) -> Trusted:
    """Return safe text in a colour if standard output is a terminal and NO_COLOR is not set (https://no-color.org)."""
    safe = for_terminal(text)
    if sys.stdout is None or not sys.stdout.isatty() or wants_no_colour():
        return Trusted(safe)
    return Trusted(click.style(safe.decode(), fg=colour, bold=bold or None).encode())


def print_title(text: str) -> None:
    echo(paint(text, bold=True))


def print_result(result: CheckResult) -> None:
    """Print one result for a person, with its verdict, the observation, and the remedy on a separate line."""
    word = paint(f"{result.verdict:8}", _COLOURS[result.verdict])
    echo("  ", word, f" {result.name}: {result.text}")
    if result.fix:
        echo(f"{'':11}-> {result.fix}")


def print_json(value: Any) -> None:
    """Print one value as JSON on one line, for a program."""
    import msgspec

    echo(msgspec.json.encode(value))


def wants_json() -> bool:
    """Return whether the current command has the option `--json`."""
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.params.get("as_json"))


def print_one(line: str | bytes, value: Any) -> None:
    """Print the result of a read, as a line for a person or the value for a program."""
    if wants_json():
        print_json(value)
    else:
        echo(line)


def local_time(seconds: float) -> str:
    """Return seconds since 1970 as a time of this machine's zone."""
    import time

    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(min(seconds, _LAST_TIME_S)))


def utc_time(seconds: float) -> str:
    """Return seconds since 1970 as a time of UTC (RFC 3339)."""
    import datetime

    return datetime.datetime.fromtimestamp(min(seconds, _LAST_TIME_S), datetime.UTC).isoformat(timespec="seconds")


def counted(count: int, noun: str) -> str:
    """Return a count with its noun."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def print_done(text: str, *values: Any) -> None:
    """Print the result of a command, as lines for a person or each value for a program.

    The work is done even if standard output does not accept the line. It then goes to standard error, with the exit code
    DONE_UNTOLD, so that the caller does not repeat the work for lack of an answer.
    """
    try:
        if wants_json():
            for value in values:
                print_json(value)
        else:
            for line in text.split("\n"):
                echo(line)
    except OutputRefused as error:
        echo(f"headgate: done, but standard output does not take what is written ({error}): {text}", err=True)
        sys.exit(DONE_UNTOLD)


def fail(*lines: str, code: str = "failed", **parts: Any) -> NoReturn:
    """Write lines to standard error and end the command with exit code 1.

    With `--json` they are one line, `{"error": {"code": …, "message": …, …}}` with the parts of the error.
    """
    if wants_json():
        import msgspec

        error = {**parts, "code": code, "message": "; ".join(lines)}
        echo(msgspec.json.encode({"error": error}, enc_hook=str), err=True)
    else:
        for line in lines:
            for part in f"headgate: {line}".split("\n"):  # one line for each wrong setting
                echo(part, err=True)
    sys.exit(1)


def fail_for_full(error: OSError) -> NoReturn:
    """End the command as `fail` if `error` means that standard output is full; otherwise raise it again."""
    if error.errno not in _FULL or error.filename is not None:
        raise error
    drop_rest(sys.stdout)
    _fail_for(OutputRefused(error))


def exit_for(silent: Iterable[str]) -> None:
    """End with exit code 1 if these gateways did not answer in time."""
    for name in silent:
        echo(f"headgate: {name} did not answer in time", err=True)
    if silent:
        sys.exit(1)


def _write(text: bytes, *, err: bool = False) -> None:
    try:
        click.echo(text, nl=False, err=err)
    except OSError as error:
        drop_rest(sys.stderr if err else sys.stdout)
        if not err:
            raise OutputRefused(error) from error


def drop_rest(stream: TextIO) -> None:
    """Drop the rest of a stream's buffer. Otherwise it would be written at the end of the process, and fail again."""
    with suppress(OSError, ValueError), open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), stream.fileno())


def _is_in_a_folder() -> bool:
    try:
        os.getcwd()
    except FileNotFoundError:
        return False
    return True


def _fail_for(error: OutputRefused) -> NoReturn:
    if error.is_closed_pipe:  # the reader has enough, such as `head`
        sys.exit(1)
    fail(f"standard output does not take what is written: {error}")


class Commands(click.Group):
    """A group. `sections` are the titles of its help with their commands, which are imported on first use from a module here.

    Without them there is one section.
    """

    def __init__(
        self, *arguments: Any, sections: Mapping[str, Mapping[str, tuple[str, str]]] | None = None, **options: Any
    ) -> None:
        super().__init__(*arguments, **options)
        self._sections = sections or {}
        self._places = {name: place for commands in self._sections.values() for name, place in commands.items()}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*self.commands, *self._places})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if (place := self._places.get(cmd_name)) is None:
            return super().get_command(ctx, cmd_name)
        command: click.Command = getattr(import_module(f"{__package__}.{place[0]}"), place[1])
        return command

    def main(self, *arguments: Any, **options: Any) -> Any:
        """Run the command line. Reports a refusing standard output in one line on standard error, also for help texts.

        Wrong usage keeps its exit code even if standard error refuses text. click would exit with 1.
        """
        try:
            code = super().main(*arguments, **options | {"standalone_mode": False})
        except click.ClickException as error:
            code = error.exit_code
            try:
                error.show()
            except OSError:
                drop_rest(sys.stderr)
        except click.Abort:
            code = 130  # Ctrl-C before the command began
        except OSError as error:
            fail_for_full(error)
        sys.exit(code)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the sections, and wrap long sentences."""
        sections: Mapping[str, Iterable[str]] = self._sections or {"Commands": self.list_commands(ctx)}
        for title, names in sections.items():
            commands = [(name, self.get_command(ctx, name)) for name in names]
            with formatter.section(title):
                # Click cuts a text that does not fit in one line, unless a longer limit is given.
                formatter.write_dl([(name, command.get_short_help_str(1000)) for name, command in commands if command])

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the first command in `args`, as click does."""
        name = args[0]
        if not ctx.resilient_parsing and not name.startswith("-") and self.get_command(ctx, name) is None:
            from difflib import get_close_matches

            close = get_close_matches(name, self.list_commands(ctx), 3, 0.6)
            ctx.fail(f"No such command {name!r}." + (f" Did you mean {' or '.join(close)}?" if close else ""))
        return super().resolve_command(ctx, args)
