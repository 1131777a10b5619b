"""Checks the names under which we answer, and the origins of pages that may connect. No I/O.

In: the WSGI environment of a request. Out: whether its Host is one of ours, and whether its Origin may connect.

Rules. 1. A page of another site may not connect (cross-site WebSocket hijacking). Its Origin must be listed. If no origin is
listed, it must be the one under which the browser sees us. 2. A name rebound to our address (DNS rebinding) is not ours,
though page and Host then have the same one. An IP address cannot be rebound. 3. With declared proxies, their forwarded scheme
and host count, because we see only the last hop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from headgate.errors import Forbidden, UnknownHost
from headgate.settings.addresses import origins
from headgate.settings.settings import EVERYWHERE, Settings
from headgate.transport.http_answers import Answer, error_answer
from headgate.transport.peer_address import forwarded_host, forwarded_port, forwarded_scheme, is_forwarded

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment


class Hosts:
    """The names under which this gateway answers, from HEADGATE_HOSTS or from what it can know."""

    def __init__(self, settings: Settings) -> None:
        self._settings, self._proxies = settings, settings.proxies
        self._listed = settings.hosts
        pages = (origins.parse_origin_pattern(origin) for origin in settings.allowed_origins if origin != "*")
        known = {page.host for page in pages if page.scheme in origins.DEFAULT_PORTS}
        if settings.host not in EVERYWHERE:
            known.add(settings.host)
        self._names = frozenset(self._listed or known)
        self._wildcards = [name for name in self._names if name.startswith("*.")]

    def check(self, environ: Mapping[str, Any]) -> None:
        """Refuse a request to a name other than ours. A request without a Host does not come from a browser.

        Raises UnknownHost with the setting to change.
        """
        shown = forwarded_host(environ, self._proxies)
        if not shown or "*" in self._listed:
            return
        authority = origins.authority_in_header(shown)
        if authority is not None:
            name = authority[0]
            if origins.is_local(name) or name in self._names or any(origins.host_matches(each, name) for each in self._wildcards):
                return
            if not self._listed and (origins.is_address(name) or (self._proxies and is_forwarded(environ))):
                return
        raise UnknownHost(shown)

    def guard(self, application: WSGIApplication, on_refusal: Callable[[UnknownHost], None]) -> WSGIApplication:
        """Return an application that answers 421 to requests for other names and passes on the rest."""

        def guarded(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
            try:
                self.check(environ)
            except UnknownHost as error:
                on_refusal(error)
                answer = error_answer("421 Misdirected Request", error.to_wire())
                return readable_by_pages(self._settings, answer, environ)(environ, start_response)
            return application(environ, start_response)

        return guarded


def origin_check(settings: Settings) -> Callable[[str | None, Mapping[str, Any]], bool]:
    """Return a function that returns whether a page of an origin may connect, which is a listed one, or else our own.

    Development admits every client, so its own page must come from this machine, under any name. Any page of this machine may
    connect.
    """
    if "*" in settings.allowed_origins:
        return lambda *_: True
    patterns = [origins.parse_origin_pattern(each) for each in settings.allowed_origins]
    exact, wildcards = frozenset(patterns), [each for each in patterns if each.host.startswith("*.")]

    def allowed(text: str | None, environ: Mapping[str, Any]) -> bool:
        origin = None if text is None else origins.origin_in_header(text)
        if origin is None:
            return False
        if settings.dev and origin.is_loopback:
            return True
        if patterns:
            return origin in exact or any(pattern.matches(origin) for pattern in wildcards)
        return not settings.dev and origin == own_origin(environ, settings.proxies)

    return allowed


def readable_by_pages(settings: Settings, answer: Answer, environ: Mapping[str, Any]) -> Answer:
    """Make an answer readable for pages of allowed origins. For any other page it stays unchanged."""
    origin = environ.get("HTTP_ORIGIN")
    if not origin or not origin_check(settings)(origin, environ):
        return answer
    headers = (
        ("Access-Control-Allow-Origin", origin),
        ("Access-Control-Allow-Credentials", "true"),
        ("Access-Control-Expose-Headers", "Retry-After"),
    )
    return msgspec.structs.replace(answer, headers=(*answer.headers, *headers))


def origins_with(settings: Settings, origin: str, environ: Mapping[str, Any]) -> str | None:
    """Return the configuration line that allows an origin in addition to the current ones; None if it cannot be listed."""
    wanted = origins.origin_in_header(origin)
    if wanted is None:
        return None
    own = own_origin(environ, settings.proxies)
    listed = settings.allowed_origins or (() if own is None else (str(own),))
    return f"HEADGATE_ALLOWED_ORIGINS={','.join(dict.fromkeys((*listed, str(wanted))))}"


def check_local_host(host: str) -> None:
    """Refuse a request without a Host of this machine. A page that rebinds its DNS name cannot fake it.

    Raises Forbidden.
    """
    authority = origins.authority_in_header(host)
    if authority is None or not origins.is_loopback(authority[0]):
        raise Forbidden("call from host", host)


def own_origin(environ: Mapping[str, Any], proxies: int) -> origins.Origin | None:
    """Return the origin under which a browser sees us. None without a Host or a forwarded scheme."""
    scheme = forwarded_scheme(environ, proxies)
    if scheme is None and proxies:
        return None
    return origin_over(scheme or str(environ.get("wsgi.url_scheme", "http")), environ, proxies)


def origin_over(scheme: str, environ: Mapping[str, Any], proxies: int) -> origins.Origin | None:
    """Return the origin under which a browser with this scheme sees us; None without a Host."""
    authority = origins.authority_in_header(forwarded_host(environ, proxies))
    if authority is None or scheme not in origins.DEFAULT_PORTS:
        return None
    host, port = authority
    return origins.Origin(scheme, host, forwarded_port(environ, proxies, scheme) if port is None else port)
