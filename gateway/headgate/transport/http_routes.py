"""Routes: requests answered below WSGI, by method and path. Everything else goes to the application. No I/O.

WSGI and Flask take most of the time of a small request. A route gets requests of HTTP/1.1 whose body has a length and is not sent
after 100 Continue. The application answers all others in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias
from wsgiref.types import WSGIEnvironment

from .http_parser import Request

if TYPE_CHECKING:
    from .http_answers import Answer


class RoutedRequest:
    """A request, as a route sees it.

    Attributes:
        head: the same object for all requests of a connection with the same head.
        environ: the WSGI environment, without `wsgi.input`; not to be changed.
        body: returns the whole body. Switches greenlets; raises OSError (TimeoutError: the peer kept us waiting for too long).
        known: for the route's own use; the next request with the same head on this connection has it, too.
    """

    __slots__ = ("body", "environ", "head", "known", "route")

    def __init__(self, body: Callable[[], bytes], head: Request, route: Route, environ: WSGIEnvironment) -> None:
        self.body, self.head, self.route, self.environ = body, head, route, environ
        self.known: object = None

    def again(self, head: Request) -> RoutedRequest:
        """Return the next request, with the same head but for the length of the body."""
        other = RoutedRequest(self.body, head, self.route, {**self.environ, "CONTENT_LENGTH": head.fields["CONTENT_LENGTH"]})
        other.known = self.known
        return other


# Returns None where it has detached the socket (detach.py), or leaves the request to the application. Then it has read no body
# and has had no effect.
Route: TypeAlias = "Callable[[RoutedRequest], Answer | None]"
Routes: TypeAlias = Mapping[tuple[str, str], Route]


@dataclass(frozen=True, slots=True)
class NeverWaits:
    """A route that never switches greenlets and reads no body. It answers the first request of a connection in the hub."""

    route: Route

    def __call__(self, request: RoutedRequest) -> Answer | None:
        """Answer a request."""
        return self.route(request)


def route_for(routes: Routes, request: Request) -> Route | None:
    """Return the route that a request is for."""
    if request.is_chunked or request.expects_continue or request.protocol != "HTTP/1.1":
        return None
    return routes.get((request.method, request.path))
