"""A request for a route, as the handler of its connection and the route see it. No I/O of its own.

In: a plain head and its bytes; the WSGI environment that the handler has made of them. Out: the request, and the one behind it
where that has the same head, or the same but for the length of its body: then nothing is parsed or looked up again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from .http_routes import Route
from .request_head import Head, head_but_length

if TYPE_CHECKING:
    from wsgiref.types import WSGIEnvironment


class BodyReader(Protocol):
    """The handler of the connection (http_handler.py)."""

    def read_body(self) -> bytes:
        """Return the whole body of the request. Switches greenlets."""


class Routed:
    """A request that a route answers (http_routes.RoutedRequest).

    Attributes:
        block: the bytes of the head; none where these are not known.
        counted: whether it has been let in, or refused, already.
        known: as http_routes.RoutedRequest.
    """

    __slots__ = ("_but_length", "_handler", "block", "counted", "environ", "head", "known", "route")

    def __init__(
        self,
        handler: BodyReader,
        head: Head,
        route: Route,
        environ: WSGIEnvironment,
        *,
        block: bytes = b"",
        counted: bool = False,
    ) -> None:
        self._handler, self.head, self.route, self.environ = handler, head, route, environ
        self.block, self.counted = block, counted
        self._but_length = head_but_length(block)
        self.known: object = None
        environ["headgate.handler"] = handler

    def again(self, received: bytes) -> Routed | None:
        """Return the request with which these bytes begin, if its head is this one, or is but for the length of the body."""
        if self.block and received.startswith(self.block):
            return self
        but_length = self._but_length
        digits = None if but_length is None else but_length.length_in(received)
        if but_length is None or digits is None:
            return None
        length, head, other = digits.decode(), self.head, Routed.__new__(Routed)
        fields = {**head.fields, "CONTENT_LENGTH": length}
        other.head = Head(head.method, head.path, head.query, fields, int(length), head.ends)
        other.environ = {**self.environ, "CONTENT_LENGTH": length}
        other.block = b"%b%b%b" % (but_length.before, digits, but_length.behind)
        other.route, other.counted, other.known = self.route, False, self.known
        other._but_length, other._handler = but_length, self._handler
        return other

    def body(self) -> bytes:
        """As http_routes.RoutedRequest."""
        return self._handler.read_body()
