"""Response headers that forbid browsers inline scripts, foreign connections and frames."""

from __future__ import annotations

import re
from functools import lru_cache

from flask import Response, request

# The Host header comes from the caller. Only text that must be host and port is copied into a policy.
_HOST = re.compile(r"(?:[A-Za-z0-9.-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(?::[0-9]{1,5})?", re.ASCII)

_POLICY = (
    "default-src 'self'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src {connect}; "
    "object-src 'none'; base-uri 'none'; form-action 'self'; frame-src 'none'; frame-ancestors 'none'"
)


def content_security_policy(host: str) -> str:
    """Return the policy of a page served at `host`.

    In CSP 3, 'self' covers WebSockets of the same host, but some browsers in use disagree, so they are named as well.
    """
    connect = f"'self' ws://{host} wss://{host}" if _HOST.fullmatch(host) else "'self'"
    return _POLICY.format(connect=connect)


@lru_cache(maxsize=256)  # a gateway has few host names
def security_headers(host: str) -> tuple[tuple[str, str], ...]:
    """Return the headers of a response to a request for `host`, without caching unless the response sets its own."""
    return (
        ("Content-Security-Policy", content_security_policy(host)),
        ("X-Content-Type-Options", "nosniff"),
        ("Referrer-Policy", "no-referrer"),
        ("X-Frame-Options", "DENY"),
        ("Cross-Origin-Opener-Policy", "same-origin"),
        ("Cache-Control", "no-store"),
    )


def add_security_headers(response: Response) -> Response:
    """Add the headers to one response. Existing ones stay."""
    host = request.environ.get("HTTP_HOST", "")
    for name, value in security_headers(host):
        response.headers.setdefault(name, value)
    return response
