"""Checks functions, certificate files and secrets named in a consumer's options, before anything runs."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from contextlib import suppress
from inspect import iscoroutinefunction
from itertools import islice
from typing import Any

from headgate.errors import InvalidRequest
from headgate.runtime.importing import import_string
from headgate.settings.options import Kind, WrongValue, file_path, text

from .base import Reject

FUNCTION = "package.module:function"
# The forms that options of several consumers expect.
FUNCTION_NAME = text(f"a function as {FUNCTION}")
CA_FILE = file_path("the path of a PEM file")


def function_faults(name: str, value: str | None) -> list[str]:
    """Return why the option `name` is not a function, in at most one line. None means unset."""
    try:
        function = None if value is None else load_function(value)
        if function is not None and (not callable(function) or iscoroutinefunction(function)):
            return [f"{name}={value!r}: expected a function{', not a coroutine (async def)' if callable(function) else ''}"]
    except InvalidRequest as error:
        return [f"{name}={value!r}: {error.parts['reason']}"]
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a module may raise anything while it is imported
        return [f"{name}={value!r}: cannot be imported: {type(error).__name__}"]
    return []


def load_function(value: str) -> Any:
    """Return a function that `function_faults` accepts."""
    return import_string(value, FUNCTION)


def as_list(returned: Any, most: int, refusal: str) -> list[Any]:
    """Return the result of an operator's function as a list. One text or mapping is one entry.

    Raises Reject with the refusal for more than `most` entries.
    """
    one = isinstance(returned, str | bytes | Mapping)
    entries = list(islice([returned] if returned and one else returned or (), most + 1))
    if len(entries) > most:
        raise Reject(refusal)
    return entries


def ca_file_faults(path: str | None) -> list[str]:
    """Return why a PEM file cannot replace the system's certificates, in at most one line. None means the system's."""
    try:
        if path is not None:
            ssl.create_default_context(cafile=path)
    except ssl.SSLError:
        return [f"ca_file={path!r}: no certificates in it"]
    except OSError as error:
        return [f"ca_file={path!r}: {(error.strerror or 'cannot be read').lower()}"]
    return []


def trust_again(context: ssl.SSLContext | None, ca_file: str | None, error: BaseException) -> ssl.SSLContext | None:
    """Return a new context after a refused certificate, since the trusted ones may have been renewed; else `context`."""
    if isinstance(error, ssl.SSLCertVerificationError):
        with suppress(OSError):  # the file is being replaced
            return ssl.create_default_context(cafile=ca_file)
    return context


def sealed(read: Callable[[str], Any], expected: str) -> Kind:
    """A secret. White space around it is refused, because it may or may not belong to it."""

    def checked(raw: str) -> Any:
        if "" != raw.strip() != raw:
            raise WrongValue("there is a blank or a line end around it; take it away")
        return read(raw)

    return Kind(checked, expected)
