"""The pages that may connect, and the headers that let them read an answer (Fetch, section 3.2). No I/O."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import structlog

from headgate.errors import OriginNotAllowed
from headgate.runtime.log_throttle import LogThrottle

Headers = list[tuple[str, str]]
# Gets the origin and the environment of a request.
IsAllowed = Callable[[str, Mapping[str, Any]], bool]

METHODS = "OPTIONS, GET, POST"
# A refused page retries for ever.
REFUSED_S = 60.0
MAX_REFUSED = 64

log = structlog.get_logger("headgate.engine")


class Cors:
    """See the module. `is_allowed` None refuses no page, and sends no header. With `credentials` a page may send cookies.

    Attributes:
        setting: the name of the list of allowed origins.
        allowing: returns the setting that would allow an origin; None if no setting can.
    """

    setting = "cors_allowed_origins"

    def __init__(self, is_allowed: IsAllowed | None, *, credentials: bool = True) -> None:
        self._is_allowed, self._credentials = is_allowed, credentials
        self.refused = LogThrottle(every_s=REFUSED_S, max_names=MAX_REFUSED)
        self.allowing: Callable[[str, Mapping[str, Any]], str | None] = lambda origin, _: f"{self.setting}={origin[:200]!r}"

    def lets_in(self, environ: Mapping[str, Any]) -> bool:
        """Return whether a request's page may connect. A request without an origin does not come from a page."""
        origin = environ.get("HTTP_ORIGIN")
        return not origin or self._is_allowed is None or self._is_allowed(origin, environ)

    def refusal(self, environ: Mapping[str, Any]) -> OriginNotAllowed:
        """Return the error for a page that may not connect. Logs it once a minute for each origin, with the line to set."""
        origin: str = environ["HTTP_ORIGIN"]
        if (left_out := self.refused.due(origin[:200])) is not None:
            log.warning("origin refused", origin=origin[:200], set=self.allowing(origin, environ), left_out=left_out)
        return OriginNotAllowed(origin, self.setting)

    def headers(self, environ: Mapping[str, Any]) -> Headers:
        """Return the headers of an answer to a request."""
        if self._is_allowed is None:
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
