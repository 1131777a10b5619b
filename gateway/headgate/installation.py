"""The installed version, the build (with or without the C extension), and the packages of each extra.

The wheel alone installs the requirements of a publisher. Everything else is an extra of pyproject.toml, which a test compares
with this list. The C extension (events/event.py, delivery/direct.py) is optional, and the Python code is complete without it.
HEADGATE_PURE=1 in the environment turns it off, to rule it out as a cause or to compare.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Literal

__version__ = "0.2.0"

PURE = "HEADGATE_PURE"
_OFF = ("", "0", "false", "no", "off")


def build_in_use() -> Literal["python", "compiled"]:
    """Return the build of this process."""
    # Not a setting, because the extension is loaded on import, before settings are read.
    is_pure = os.environ.get(PURE, "").strip().lower() not in _OFF  # noqa: TID251
    return "python" if is_pure or find_spec(f"{__package__}._native") is None else "compiled"


def native(name: str) -> Any:
    """Return a function or class of the C extension, or None where it was not built or is turned off."""
    if build_in_use() == "python":
        return None
    return getattr(import_module(f"{__package__}._native"), name)


# Extra → import names of its packages, in addition to a publisher's.
EXTRAS = {
    "server": (
        "click", "cryptography", "engineio", "flask", "gevent", "h11", "hiredis", "idna", "jwt", "prometheus_client", "socketio",
        "structlog", "websockets",
    ),
    "consumers": ("click", "h11", "hiredis", "idna", "jinja2", "prometheus_client", "structlog"),
    "gunicorn": ("gunicorn",),
    "apprise": ("apprise",),
    "push": ("cryptography",),
    "schemas": ("click", "jsonschema_rs"),
    "otel": ("opentelemetry",),
}  # fmt: skip


class MissingExtra(ImportError):
    """The packages of a requested part of Headgate are not installed. The message has the command that installs them."""


@contextmanager
def needing(extra: str, what: str) -> Iterator[None]:
    """Import parts of an extra inside this context. `what` names the part that needs them, for people.

    Raises:
        MissingExtra: a package of an extra is not installed. Other missing modules raise as usual.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        text = advice(error, extra)
        if text is None:
            raise
        raise MissingExtra(f"{what} {text}", name=error.name) from error


def advice(error: ModuleNotFoundError, extra: str) -> str | None:
    """Return the missing package and the command that installs it, or None if none of our extras has it.

    Args:
        extra: the preferred extra; otherwise the first with the package.
    """
    package = (error.name or "").partition(".")[0]
    for name in (extra, *EXTRAS):
        if package in EXTRAS[name]:
            return f"needs the package {package}: run {install_command(name)}"
    return None


def install_command(extra: str) -> str:
    """Return the command that installs an extra, as in README.

    Headgate is not on PyPI, where the name may be another project's.
    """
    return f'`pip install "$(echo dist/headgate-*.whl)[{extra}]"` (dist/ is from `make dist`)'
