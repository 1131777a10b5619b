"""Routes: requests that are answered below WSGI, by method and path. Everything else goes to the application. No I/O.

In: a request of HTTP/1.1 for a route of the server, whose body has a length and needs no leave to be sent. Out: its answer,
which the connection writes with one send. WSGI and Flask take most of the time of a small request; a route pays for neither.

A route also has a WSGI twin in the application, with the same answers: any other request for its path, or one that the route
leaves to the application, arrives there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

from .http_parser import Request

if TYPE_CHECKING:
    from wsgiref.types import WSGIEnvironment

    from .http_answers import Answer


class RoutedRequest(Protocol):
    """A request, as a route sees it.

    Attributes:
        known: what the route has found out about the head, for the next request with the same one on this connection; else None.
    """

    known: object

    @property
    def head(self) -> Request:
        """Method, path, query, headers. Requests of one connection with the same head have the same object."""

    @property
    def environ(self) -> Mapping[str, object]:
        """The WSGI environment, without `wsgi.input`; not to be changed."""

    def body(self) -> bytes:
        """Return the whole body. Switches greenlets.

        Raises:
            TimeoutError: the peer kept us waiting for too long.
            ConnectionError: it went away.
        """


class LaterAnswer(Protocol):
    """The answer to a request whose work has begun, and goes on elsewhere. The body has been read."""

    def wait(self) -> Answer:
        """Return the answer, which does not end the connection by itself. Switches greenlets."""


# The answer; None leaves the request to the application. None also when the route has detached the socket (detach.py).
# It must leave a request to the application before it reads the body or has an effect. While an answer is to come, the requests
# behind it are asked of the same route, in order, as far as they have come; their answers are written together.
Route: TypeAlias = "Callable[[RoutedRequest], Answer | LaterAnswer | None]"


@dataclass(frozen=True, slots=True)
class NeverWaits:
    """A route that never switches greenlets, and reads no body. The first request of a connection is asked of it in the hub.

    None from it means that it has detached the socket, or leaves the request to the application.
    """

    route: Callable[[RoutedRequest], Answer | None]

    def __call__(self, request: RoutedRequest) -> Answer | None:
        """Answer a request."""
        return self.route(request)


Routes: TypeAlias = Mapping[tuple[str, str], Route]


class Routed:
    """A RoutedRequest of a connection. `read_body` returns the whole body; it switches greenlets."""

    __slots__ = ("_read_body", "environ", "head", "known", "route")

    def __init__(self, read_body: Callable[[], bytes], head: Request, route: Route, environ: WSGIEnvironment) -> None:
        self._read_body, self.head, self.route, self.environ = read_body, head, route, environ
        self.known: object = None

    def again(self, head: Request) -> Routed:
        """Return the request behind this one, whose head is the same but for the length of the body."""
        if head is self.head:
            return self
        other = Routed(self._read_body, head, self.route, {**self.environ, "CONTENT_LENGTH": head.fields["CONTENT_LENGTH"]})
        other.known = self.known
        return other

    def body(self) -> bytes:
        """As RoutedRequest."""
        return self._read_body()
