"""Checks functions, certificate files and secrets named in a consumer's options, before anything runs.

A secret is `password` in the file, or `password_env`, the name of an environment variable. The options have both fields. Faults
never contain a secret.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from inspect import iscoroutinefunction
from itertools import islice
from typing import Any

from headgate.errors import InvalidRequest
from headgate.runtime.importing import import_string
from headgate.settings.options import file_path, text
from headgate.settings.settings import environment

from .base import Reject

FUNCTION = "package.module:function"
# The forms that options of several consumers expect.
FUNCTION_NAME, VARIABLE = text(f"a function as {FUNCTION}"), text("the name of an environment variable")
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


def read_secret(options: object, name: str, *, is_url: bool = False) -> str | None:
    """Return the secret `name` of these options, or None if it is not set.

    White space around a secret is refused (`settings.STRONG_SECRET`), because it may or may not belong to it. Around a URL it
    is removed. Raises ValueError for such a secret, if it is set twice, or if the variable is unset or blank.
    """
    where, secret = name, getattr(options, name)
    variable: str | None = getattr(options, f"{name}_env")
    if variable is not None:
        if secret is not None:
            raise ValueError(f"{name} and {name}_env are both given; expected one of them")
        where, secret = f"{name}_env={variable!r}", environment().get(variable, "")
        if not secret.strip():
            raise ValueError(f"{where}: there is no such environment variable, or it is blank")
    read: str | None = secret and secret.strip()
    if read != secret and not is_url:
        raise ValueError(f"{where}: there is a blank or a line end around the secret; take it away")
    return read


def need_secret(options: object, name: str, *, is_url: bool = False) -> str:
    """Return the required secret `name`. Raises ValueError as `read_secret`, and if it is not set."""
    if (secret := read_secret(options, name, is_url=is_url)) is None:
        raise ValueError(f"{name} is missing; expected {name} or {name}_env")
    return secret


def secret_faults(options: object, name: str, read: Callable[[str], object]) -> list[str]:
    """Return why `read` refuses the secret `name` from a variable, in at most one line. A value in the file was read before."""
    try:
        secret = need_secret(options, name)
    except ValueError as error:
        return [str(error)]
    try:
        read(secret)
    except ValueError as error:
        return [f"{name}_env={getattr(options, f'{name}_env')!r}: the value of this variable is wrong: {error}"]
    return []
