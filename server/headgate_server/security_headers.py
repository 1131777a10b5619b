"""Response headers that make a browser strict: no inline script, no foreign connection, no frames."""

from __future__ import annotations

import re
from functools import lru_cache

from flask import Flask, Response, request

# The Host header is the caller's; only what can be nothing but host and port is copied into a policy.
_HOST = re.compile(r"(?:[A-Za-z0-9.-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(?::[0-9]{1,5})?", re.ASCII)

_POLICY = (
    "default-src 'self'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src {connect}; "
    "object-src 'none'; base-uri 'none'; form-action 'self'; frame-src 'none'; frame-ancestors 'none'"
)


def install_security_headers(app: Flask) -> None:
    """Add the headers to every response of `app`'s routes, error pages included."""
    app.after_request(add_security_headers)


def content_security_policy(host: str) -> str:
    """Return the policy of a page served at `host`.

    CSP 3 lets 'self' cover WebSockets of the same host, but not every browser in use does: they are named as well.
    """
    connect = f"'self' ws://{host} wss://{host}" if _HOST.fullmatch(host) else "'self'"
    return _POLICY.format(connect=connect)


@lru_cache(maxsize=256)  # a gateway has few names
def security_headers(host: str) -> tuple[tuple[str, str], ...]:
    """Return the headers of a response to a request for `host`. No cache keeps one that says nothing else."""
    return (
        ("Content-Security-Policy", content_security_policy(host)),
        ("X-Content-Type-Options", "nosniff"),
        ("Referrer-Policy", "no-referrer"),
        ("X-Frame-Options", "DENY"),
        ("Cross-Origin-Opener-Policy", "same-origin"),
        ("Cache-Control", "no-store"),
    )


def add_security_headers(response: Response) -> Response:
    """Add them to one response; what it has already stays."""
    host = request.environ.get("HTTP_HOST", "")
    for name, value in security_headers(host):
        response.headers.setdefault(name, value)
    return response
