"""The pages that may connect, and the headers that let them read an answer (Fetch, section 3.2). No I/O.

Without a list of origins, only pages from the server's own address, or from the one that a proxy reports, may connect.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import structlog

from headgate.errors import OriginNotAllowed
from headgate.runtime.log_throttle import LogThrottle
from headgate.settings.addresses.origins import origin_in_header

Headers = list[tuple[str, str]]
# "*" allows any, None only pages of the server's own address. A callable gets the origin and the environment. An empty list
# refuses none, and sends no header.
Allowed = str | Sequence[str] | Callable[..., bool] | None

METHODS = "OPTIONS, GET, POST"
# A refused page retries for ever.
REFUSED_S = 60.0
MAX_REFUSED = 64

log = structlog.get_logger("headgate.engine")


class Cors:
    """See the module. With `credentials` a page may send cookies.

    Attributes:
        setting: the name of the list of allowed origins.
        allowing: returns the setting that would allow an origin; None if no setting can.
    """

    setting = "cors_allowed_origins"

    def __init__(self, allowed: Allowed = None, *, credentials: bool = True) -> None:
        self._allowed, self._credentials = allowed, credentials
        self.refused = LogThrottle(every_s=REFUSED_S, max_names=MAX_REFUSED)
        self.allowing: Callable[[str, Mapping[str, Any]], str | None] = lambda origin, _: f"{self.setting}={origin[:200]!r}"

    def lets_in(self, environ: Mapping[str, Any]) -> bool:
        """Return whether a request's page may connect. A request without an origin does not come from a page."""
        origin = environ.get("HTTP_ORIGIN")
        return not origin or self._allowed == [] or self._is_allowed(origin, environ)

    def refusal(self, environ: Mapping[str, Any]) -> OriginNotAllowed:
        """Return the error for a page that may not connect. Logs it once a minute for each origin, with the line to set."""
        origin: str = environ["HTTP_ORIGIN"]
        if (left_out := self.refused.due(origin[:200])) is not None:
            log.warning("origin refused", origin=origin[:200], set=self.allowing(origin, environ), left_out=left_out)
        return OriginNotAllowed(origin, self.setting)

    def headers(self, environ: Mapping[str, Any]) -> Headers:
        """Return the headers of an answer to a request."""
        if self._allowed == []:
            return []
        headers: Headers = []
        if "HTTP_ORIGIN" in environ and self._is_allowed(environ["HTTP_ORIGIN"], environ):
            headers.append(("Access-Control-Allow-Origin", environ["HTTP_ORIGIN"]))
        if environ["REQUEST_METHOD"] == "OPTIONS":
            headers.append(("Access-Control-Allow-Methods", METHODS))
        if "HTTP_ACCESS_CONTROL_REQUEST_HEADERS" in environ:
            headers.append(("Access-Control-Allow-Headers", environ["HTTP_ACCESS_CONTROL_REQUEST_HEADERS"]))
        if self._credentials:
            headers.append(("Access-Control-Allow-Credentials", "true"))
        return headers

    def refusal_headers(self, environ: Mapping[str, Any]) -> Headers:
        """Return the headers that let a page of an allowed origin read a refusal; none for other pages."""
        headers = self.headers(environ)
        may_read = any(name == "Access-Control-Allow-Origin" for name, _ in headers)
        return [*headers, ("Access-Control-Expose-Headers", "Retry-After")] if may_read else headers

    def _is_allowed(self, origin: str, environ: Mapping[str, Any]) -> bool:
        allowed = self._allowed
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
