"""The optional parts of the distribution: which packages each extra brings, and one clear line where one is missing.

`pip install headgate` brings what a publisher needs. Everything else is an extra of pyproject.toml; a test compares the two.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

# Extra → what it brings beside a publisher's packages, by the names that are imported.
EXTRAS = {
    "server": (
        "click", "cryptography", "engineio", "flask", "gevent", "h11", "hiredis", "idna", "jwt", "prometheus_client", "socketio",
        "structlog", "websockets",
    ),
    "consumers": ("click", "h11", "hiredis", "idna", "jinja2", "prometheus_client", "structlog"),
    "gunicorn": ("gunicorn",),
    "apprise": ("apprise",),
    "push": ("cryptography",),
    "schemas": ("click", "jsonschema_rs", "yaml"),
    "otel": ("opentelemetry",),
}  # fmt: skip


class MissingExtra(ImportError):
    """A part of Headgate was asked for whose packages are not installed; the message has the command that installs them."""


@contextmanager
def needing(extra: str, what: str) -> Iterator[None]:
    """Import parts of an extra inside this context: `what`, named for people, needs them.

    Raises:
        MissingExtra: a package of an extra is not installed. A missing module of somebody else's is not touched.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        said = advice(error, extra)
        if said is None:
            raise
        raise MissingExtra(f"{what} {said}", name=error.name) from error


def advice(error: ModuleNotFoundError, extra: str) -> str | None:
    """Return which package is missing and the command that installs it; None when no extra of ours brings it.

    Args:
        extra: the one to name if it has the package, else the first that does.
    """
    package = (error.name or "").partition(".")[0]
    for name in (extra, *EXTRAS):
        if package in EXTRAS[name]:
            return f"needs the package {package}: run `pip install 'headgate[{name}]'`"
    return None
