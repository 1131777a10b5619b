"""Secrets in a consumer's options: `password` in the file, or `password_env`, the name of an environment variable.

In: a consumer's options, which have both fields. Out: the secret, or a ValueError whose text `Consumer.check` returns and which
never contains the secret. `environ` None: the process's environment.
"""

from __future__ import annotations

from collections.abc import Mapping

from headgate.settings.settings import environment


def read_secret(options: object, name: str, environ: Mapping[str, str] | None = None, *, is_url: bool = False) -> str | None:
    """Return the secret `name` of these options, or None if it is not set.

    White space around it is refused, as for every secret (`settings.STRONG_SECRET`), since only its owner knows whether it
    belongs to it. Around a URL it has no meaning, and is removed.

    Raises:
        ValueError: it is set twice, the variable is unset or blank, or the secret has white space around it.
    """
    value: str | None = getattr(options, name)
    variable: str | None = getattr(options, f"{name}_env")
    if variable is None:
        return _checked(value, name, is_url=is_url)
    if value is not None:
        raise ValueError(f"{name} and {name}_env are both given; expected one of them")
    secret = (environment() if environ is None else environ).get(variable, "")
    if not secret.strip():
        raise ValueError(f"{name}_env={variable!r}: there is no such environment variable, or it is blank")
    return _checked(secret, f"{name}_env={variable!r}", is_url=is_url)


def need_secret(options: object, name: str, environ: Mapping[str, str] | None = None, *, is_url: bool = False) -> str:
    """Return the secret `name`, which must be set; otherwise as `read_secret`.

    Raises:
        ValueError: as `read_secret`; also if it is not set.
    """
    secret = read_secret(options, name, environ, is_url=is_url)
    if secret is None:
        raise ValueError(f"{name} is missing; expected {name} or {name}_env")
    return secret


def _checked(secret: str | None, where: str, *, is_url: bool) -> str | None:
    if secret is None or is_url:
        return secret and secret.strip()
    if secret != secret.strip():
        raise ValueError(f"{where}: there is a blank or a line end around the secret; take it away")
    return secret
