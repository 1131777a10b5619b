"""The origins of an application, in each form of python-engineio's option `cors_allowed_origins`. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from headgate.settings.addresses.origins import origin_in_header
from headgate.transport.cors import IsAllowed

# None allows only pages of the server's own address, or of the one that a proxy reports, and "*" any. A callable gets the origin
# and, if it takes it, the environment. An empty list refuses none.
Allowed = str | Sequence[str] | Callable[..., bool] | None


def origin_check(allowed: Allowed) -> IsAllowed | None:
    """Return a function that returns whether a page of an origin may connect; None if none is refused."""
    if allowed == []:
        return None

    def is_allowed(origin: str, environ: Mapping[str, Any]) -> bool:
        if callable(allowed):
            try:
                return bool(allowed(origin, environ))
            except TypeError:  # it takes only the origin
                return bool(allowed(origin))
        listed = _own(environ) if allowed is None else [allowed] if isinstance(allowed, str) else allowed
        if "*" in listed or origin in listed:
            return True
        shown = origin_in_header(origin)
        return shown is not None and any(origin_in_header(each) == shown for each in listed)

    return is_allowed


def _own(environ: Mapping[str, Any]) -> list[str]:
    """Return the origins of the server's own address, and of the address that a proxy reports."""
    if "wsgi.url_scheme" not in environ or "HTTP_HOST" not in environ:
        return []
    scheme, host = cast(str, environ["wsgi.url_scheme"]), cast(str, environ["HTTP_HOST"])
    own = [f"{scheme}://{host}"]
    if "HTTP_X_FORWARDED_PROTO" in environ or "HTTP_X_FORWARDED_HOST" in environ:
        its_scheme = environ.get("HTTP_X_FORWARDED_PROTO", scheme).split(",")[0].strip()
        own.append(f"{its_scheme}://{environ.get('HTTP_X_FORWARDED_HOST', host).split(',')[0].strip()}")
    return own
