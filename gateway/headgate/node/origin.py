"""Hosts and origins: the names under which we answer, and the pages that may connect. No I/O.

In: the WSGI environment of a request. Out: whether its Host is one of ours, and whether its Origin may connect.

Rules. 1. A page of another site may not connect (cross-site WebSocket hijacking): its Origin must be listed, and where nothing
is listed it must be the one that the browser sees us under. 2. A name that was rebound to our address is not ours (DNS
rebinding), though page and Host then have the same one. An address is nobody's to rebind. 3. Behind proxies of ours the scheme
and the host are those that they forward: what we see ourselves is the last hop.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from headgate.errors import UnknownHost
from headgate.metrics import HOSTS_REFUSED
from headgate.settings import EVERYWHERE, Settings, is_loopback

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

_AUTHORITY = re.compile(r"(?P<host>[A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(?::[0-9]{1,5})?", re.ASCII)


class Hosts:
    """The names under which this gateway answers: HEADGATE_HOSTS, else those that can be known."""

    def __init__(self, settings: Settings) -> None:
        self._proxies = settings.proxies
        self._listed = frozenset(settings.hosts)
        known = {urlsplit(origin).hostname for origin in settings.allowed_origins}
        if settings.host not in EVERYWHERE:
            known.add(settings.host.lower())
        self._known = frozenset(name for name in known if name)

    def check(self, environ: Mapping[str, Any]) -> None:
        """Refuse a request that was sent to another name than ours. One without a Host is not from a browser.

        Raises:
            UnknownHost: with what to set.
        """
        shown = forwarded_host(environ, self._proxies)
        if not shown or "*" in self._listed:
            return
        name = _name(shown)
        if name is None or not (is_loopback(name) or self._answers(name, environ)):
            raise UnknownHost(shown)

    def guard(self, application: WSGIApplication) -> WSGIApplication:
        """Return an application that answers 421 to requests under another name than ours, and passes on the others."""

        def guarded(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
            try:
                self.check(environ)
            except UnknownHost as error:
                HOSTS_REFUSED.inc()
                body = json.dumps({"error": error.to_wire()}).encode()
                headers = [("Content-Type", "application/json"), ("Content-Length", str(len(body)))]
                start_response("421 Misdirected Request", headers)
                return [body]
            return application(environ, start_response)

        return guarded

    def _answers(self, name: str, environ: Mapping[str, Any]) -> bool:
        if self._listed:
            return name in self._listed
        return name in self._known or _is_address(name) or bool(self._proxies and environ.get("HTTP_X_FORWARDED_FOR"))


def origin_check(settings: Settings) -> Callable[[str | None, Mapping[str, Any]], bool]:
    """Return whether a page of an origin may connect: one that is listed, and where none is listed, our own."""

    def allowed(origin: str | None, environ: Mapping[str, Any]) -> bool:
        if settings.allowed_origins:
            return origin in settings.allowed_origins
        if origin is None or origin != own_origin(environ, settings.proxies):
            return False
        # Development lets anyone in: there a page must be of this machine, whatever name leads to it.
        return not settings.dev or is_loopback(urlsplit(origin).hostname)

    return allowed


def own_origin(environ: Mapping[str, Any], proxies: int) -> str | None:
    """Return the origin under which a browser sees us; None where that cannot be known: no Host, no forwarded scheme.

    A forwarded scheme counts in any case: a page cannot set the header on a WebSocket, and behind TLS `http://` is not ours.
    """
    scheme, host = _forwarded(environ, "HTTP_X_FORWARDED_PROTO", proxies), forwarded_host(environ, proxies)
    if not host or (scheme is None and proxies):
        return None
    return f"{scheme or environ.get('wsgi.url_scheme', 'http')}://{host}"


def forwarded_host(environ: Mapping[str, Any], proxies: int) -> str:
    """Return the Host that the browser sent: behind proxies, X-Forwarded-Host if they set it."""
    forwarded = _forwarded(environ, "HTTP_X_FORWARDED_HOST", proxies) if proxies else None
    return forwarded if forwarded is not None else str(environ.get("HTTP_HOST", ""))


def _forwarded(environ: Mapping[str, Any], name: str, proxies: int) -> str | None:
    """Return what the outermost proxy of ours put into a header; where one overwrites it, that is all that there is."""
    parts = [part.strip() for part in str(environ.get(name, "")).split(",") if part.strip()]
    return parts[-max(1, min(proxies, len(parts)))] if parts else None


@lru_cache(maxsize=256)  # a gateway has few names; a stranger's are forgotten again
def _name(authority: str) -> str | None:
    """Return the host of `host:port` as it is compared; None where it is none."""
    found = _AUTHORITY.fullmatch(authority)
    return found["host"].strip("[]").rstrip(".").lower() if found else None


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
