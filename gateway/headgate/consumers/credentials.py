"""Secrets among a consumer's options: `password` in the file, or `password_env`, the name of an environment variable.

In: a consumer's options, which have both fields. Out: the secret; or a ValueError whose text is what `Consumer.check` returns for
it, and never holds the secret. `environ` None: the process's environment.
"""

from __future__ import annotations

from collections.abc import Mapping

from headgate.settings import environment


def read_secret(options: object, name: str, environ: Mapping[str, str] | None = None) -> str | None:
    """Return the secret `name` of these options from where it is given, or None when it is given nowhere.

    Raises:
        ValueError: it is given twice, or the variable is not set or blank.
    """
    value: str | None = getattr(options, name)
    variable: str | None = getattr(options, f"{name}_env")
    if variable is None:
        return value
    if value is not None:
        raise ValueError(f"{name} and {name}_env are both given; expected one of them")
    found = (environment() if environ is None else environ).get(variable, "")
    if not found.strip():
        raise ValueError(f"{name}_env={variable!r}: there is no such environment variable, or it is blank")
    return found


def need_secret(options: object, name: str, environ: Mapping[str, str] | None = None) -> str:
    """Return the secret `name`, which must be given.

    Raises:
        ValueError: as `read_secret`; also when it is given nowhere.
    """
    found = read_secret(options, name, environ)
    if found is None:
        raise ValueError(f"{name} is missing; expected {name} or {name}_env")
    return found
