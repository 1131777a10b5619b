"""The kinds of options that name functions, certificate files and secrets. They are checked before anything runs."""

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

_FORM = "package.module:function"
_NAME, _PATH = text(f"a function as {_FORM}"), file_path("the path of a PEM file")


def _function(raw: str) -> Any:
    name = _NAME.read(raw)
    try:
        function = import_string(name, _FORM)
    except InvalidRequest as error:
        raise WrongValue(error.parts["reason"], says_expected=True) from error
    except (Exception, SystemExit) as error:
        raise WrongValue(f"cannot be imported: {type(error).__name__}", says_expected=True) from error
    if not callable(function) or iscoroutinefunction(function):
        not_async = ", not a coroutine (async def)" if callable(function) else ""
        raise WrongValue(f"expected a function{not_async}", says_expected=True)
    return function


def _certificates(raw: str) -> str:
    path: str = _PATH.read(raw)
    try:
        ssl.create_default_context(cafile=path)
    except ssl.SSLError as error:
        raise WrongValue("no certificates in it", says_expected=True) from error
    except OSError as error:
        raise WrongValue((error.strerror or "cannot be read").lower(), says_expected=True) from error
    return path


# A function of the operator, imported when the option is read, and a file of certificates instead of the system's.
FUNCTION, CA_FILE = Kind(_function, _NAME.expected), Kind(_certificates, _PATH.expected)


def as_list(returned: Any, most: int, refusal: str) -> list[Any]:
    """Return the result of an operator's function as a list. One text or mapping is one entry.

    Raises Reject with the refusal for more than `most` entries.
    """
    one = isinstance(returned, str | bytes | Mapping)
    entries = list(islice([returned] if returned and one else returned or (), most + 1))
    if len(entries) > most:
        raise Reject(refusal)
    return entries


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
