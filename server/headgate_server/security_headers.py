"""Response headers that make a browser strict: no inline script, no foreign connection, no framing by others.

The demo's two-pane page frames the board of the same origin, hence frame-ancestors 'self' and not 'none'.
"""

from __future__ import annotations

import re

from flask import Flask, Response, request

# The Host header is the caller's; only what can be nothing but host and port is copied into a policy.
_HOST = re.compile(r"(?:[A-Za-z0-9.-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(?::[0-9]{1,5})?", re.ASCII)

_POLICY = (
    "default-src 'self'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src {connect}; "
    "object-src 'none'; base-uri 'none'; form-action 'self'; frame-src 'self'; frame-ancestors 'self'"
)


def install_security_headers(app: Flask) -> None:
    """Add the headers to every response of `app`'s routes, error pages included."""
    app.after_request(_secure)


def content_security_policy(host: str) -> str:
    """Return the policy of a page served at `host`.

    CSP 3 lets 'self' cover WebSockets of the same host, but not every browser in use does: they are named as well.
    """
    connect = f"'self' ws://{host} wss://{host}" if _HOST.fullmatch(host) else "'self'"
    return _POLICY.format(connect=connect)


def _secure(response: Response) -> Response:
    headers = response.headers
    headers.setdefault("Content-Security-Policy", content_security_policy(request.environ.get("HTTP_HOST", "")))
    headers.setdefault("X-Content-Type-Options", "nosniff")
    headers.setdefault("Referrer-Policy", "no-referrer")
    headers.setdefault("X-Frame-Options", "SAMEORIGIN")
    headers.setdefault("Cross-Origin-Opener-Policy", "same-origin")
    if response.mimetype == "application/json":
        headers.setdefault("Cache-Control", "no-store")
    return response
