"""The settings of gunicorn that the worker class refuses or ignores. No I/O.

The worker or gunicorn's process manager honours all others.
"""

from __future__ import annotations

from collections.abc import Mapping

_TLS = "TLS ends in front of the gateway: use nginx, HAProxy, Caddy or a load balancer, and set HEADGATE_PROXIES"
REFUSED = {
    "certfile": _TLS,
    "keyfile": _TLS,
    "preload_app": "the application is loaded after the fork, where gevent has patched the process: remove preload_app",
    "reuse_port": "the workers share one listener, which loses no connection when a worker ends: remove reuse_port",
    "proxy_protocol": "the gateway speaks no PROXY protocol: let the proxy set X-Forwarded-For, and set HEADGATE_PROXIES",
}
_BOUNDED = "the gateway has fixed limits"
_FORWARDED = "use HEADGATE_PROXIES"
WITHOUT_MEANING = {
    "threads": "greenlets serve all clients of a worker",
    "limit_request_line": _BOUNDED,
    "limit_request_fields": _BOUNDED,
    "limit_request_field_size": _BOUNDED,
    "forwarded_allow_ips": _FORWARDED,
    "secure_scheme_headers": _FORWARDED,
    "proxy_allow_ips": _FORWARDED,
    "forwarder_headers": _FORWARDED,
    "header_map": "names with an underscore are dropped",
    "http_protocols": "the gateway speaks HTTP/1.1 and WebSocket",
    "http2_cleartext": "the gateway speaks HTTP/1.1 and WebSocket",
    "http_parser": "the gateway reads requests itself",
    "sendfile": "the gateway writes answers itself",
    "pre_request": "use Flask's before_request",
    "post_request": "use Flask's after_request",
    "websocket_max_message_size": "use HEADGATE_MAX_PAYLOAD_BYTES",
}


def named(changed: Mapping[str, object], reasons: Mapping[str, str]) -> list[str]:
    """Return one line for each changed setting in `reasons`."""
    return [f"{name}: {reason}" for name, reason in reasons.items() if name in changed]
