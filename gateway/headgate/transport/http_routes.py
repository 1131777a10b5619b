"""Routes answer some requests below WSGI, by method and path. All others go to the application. No I/O.

WSGI and Flask take most of the time of a small request. A route gets HTTP/1.1 requests with a Content-Length and without 100
Continue. The application answers the others in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias
from wsgiref.types import WSGIEnvironment

import msgspec

from .http_parser import Request

if TYPE_CHECKING:
    from .http_answers import Answer


class RoutedRequest(msgspec.Struct):
    """A request, as a route sees it. All requests with the same head on a connection have the same `head`.

    Attributes:
        environ: the WSGI environment without `wsgi.input`. Do not change it.
        body: returns the whole body. Switches greenlets; raises OSError (TimeoutError if the peer was too slow).
        known: for the route. The next request with the same head on this connection inherits it.
    """

    body: Callable[[], bytes]
    head: Request
    route: Route
    environ: WSGIEnvironment
    known: object = None

    def again(self, head: Request) -> RoutedRequest:
        """Return the next request with the same head, apart from the length of the body."""
        environ = {**self.environ, "CONTENT_LENGTH": head.fields["CONTENT_LENGTH"]}
        return RoutedRequest(self.body, head, self.route, environ, self.known)


# Returns None after detaching the socket (detach.py), or to leave the request to the application. In the second case it must
# not have read the body or had an effect.
Route: TypeAlias = "Callable[[RoutedRequest], Answer | None]"
Routes: TypeAlias = Mapping[tuple[str, str], Route]


@dataclass(frozen=True, slots=True)
class BeginsInHub:
    """A route that can begin to answer a request in the hub, when its body has arrived.

    `begin` never switches greenlets. It returns the answer, True if `done` will get it in the hub, None as `route`, or False,
    without an effect, to leave the request to `route`. A `route` without it never switches greenlets and reads no body.
    """

    route: Route
    begin: Callable[[RoutedRequest, bytes, Callable[[Answer], object]], Answer | bool | None] | None = None

    def __call__(self, request: RoutedRequest) -> Answer | None:
        """Answer a request. May switch greenlets."""
        return self.route(request)


def route_for(routes: Routes, request: Request) -> Route | None:
    """Return the route of a request, if any."""
    if request.is_chunked or request.expects_continue or request.protocol != "HTTP/1.1":
        return None
    return routes.get((request.method, request.path))
