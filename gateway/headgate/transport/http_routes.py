"""Routes: requests that are answered below WSGI, by method and path. Everything else goes to the application, as ever.

In: a request with a plain head (request_head.py) for a route of the server. Out: its answer, which the handler of the connection
writes with one send. WSGI and Flask take most of the time of a small request; a route pays for neither.

A route also has a WSGI twin in the application, with the same answers: a request whose head is not plain, or that the route
leaves to the application, arrives there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    from .http_answers import Answer
    from .request_head import Head


class RoutedRequest(Protocol):
    """A request, as a route sees it.

    Attributes:
        known: what the route has found out about the head, for the next request with the same one on this connection; else None.
    """

    known: object

    @property
    def head(self) -> Head:
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
