"""Plain heads: read below WSGI as pywsgi and our headers read them, and left to those when there is any doubt."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.transport.http_answers import Answer
from headgate.transport.http_limits import HttpLimits
from headgate.transport.http_routes import RoutedRequest
from headgate.transport.request_head import MAX_NAMES, _known_names, read_head
from tests.support.http_peer import Peer

PATH = "/here"
NAMES = [
    "Host",
    "Content-Type",
    "Content-Length",
    "Connection",
    "Cookie",
    "X-Forwarded-For",
    "x-a",
    "X-A",
    "X_A",
    "Expect",
    "X A",
    "",
]
NAMES += ["Transfer-Encoding", "Upgrade", "TE", "content-length", "HTTP-HOST", "Authorization", "X\xe4"]
VALUES = [
    "",
    "a",
    "0",
    "3",
    "03",
    "+3",
    "close",
    "Close",
    "keep-alive",
    "chunked",
    "application/json",
    "a, b",
    "a\tb",
    "100-continue",
]
VALUES += ["\xe4", "a\rb", "a\0b", "a\x1fb", "\x85", "websocket", "Upgrade", "1" * 19]

lines = st.builds(
    lambda name, blank, value, end: f"{name}:{blank}{value}{end}",
    st.sampled_from(NAMES),
    st.sampled_from(["", " ", "  ", "\t "]),
    st.sampled_from(VALUES),
    st.sampled_from(["\r\n"] * 12 + [" \r\n", "\t\r\n", "\n", "\r\n folded\r\n"]),
)
# Of a head that may well be plain, with the corners of that: repetitions, blanks, lengths.
good_lines = st.builds(
    lambda line, blank, end: line.replace(":", f":{blank}", 1) + end,
    st.sampled_from(
        [
            *("Host:test", "Content-Type:a", "Content-Type:b", "Content-Length:3", "Content-Length:03", "Connection:close"),
            *("Connection:keep-alive", "Cookie:a=1", "Cookie:b=2", "X-A:1", "x-a:2", "X-A:", "X-Forwarded-For:192.0.2.1"),
        ]
    ),
    st.sampled_from(["", " ", "\t "]),
    st.sampled_from(["\r\n", "\r\n", " \r\n", "\t\r\n"]),
)
good_heads = st.builds(
    lambda method, target, listed: f"{method} {target} HTTP/1.1\r\n{''.join(listed)}\r\n".encode(),
    st.sampled_from(["GET", "POST"]),
    st.sampled_from([PATH, f"{PATH}?a=1&b=%20", "/h%65re"]),
    st.lists(good_lines, max_size=5),
)
wild_heads = st.builds(
    lambda method, target, version, listed: f"{method} {target} {version}\r\n{''.join(listed)}\r\n".encode("latin-1"),
    st.sampled_from(["GET", "POST", "POST", "POST", "HEAD", "post", "PO ST"]),
    st.sampled_from([PATH, PATH, f"{PATH}?a=1&b=%20", f"{PATH}?", "/h%65re", f"http://test{PATH}", "/there", "*", f"{PATH}\xe4"]),
    st.sampled_from(["HTTP/1.1"] * 8 + ["HTTP/1.0", "HTTP/1.1 ", "HTTP/2.0", "http/1.1", ""]),
    st.lists(lines, max_size=6),
)
heads = good_heads | good_heads | wild_heads


class Seen:
    """An application, and a route that leaves requests to it: they remember the WSGI environments."""

    def __init__(self) -> None:
        self.environs: list[dict[str, Any]] = []
        self.routed: list[RoutedRequest] = []

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        self.environs.append({name: value for name, value in environ.items() if name not in ("wsgi.input", "headgate.handler")})
        start_response("200 OK", [("Content-Length", "0")])
        return [b""]

    def leave(self, request: RoutedRequest) -> Answer | None:
        """Be the route."""
        self.routed.append(request)
        return None

    def served(self, sent: bytes, *, routes: bool) -> Peer:
        """Serve a peer that sends this."""
        peer = Peer([sent])
        with pytest.MonkeyPatch.context() as patch:
            found = {(method, PATH): self.leave for method in ("GET", "POST", "HEAD")}
            peer.served_by(self, HttpLimits(), patch, routes=found if routes else {})
        return peer


@given(heads, st.sampled_from([b"", b"abc"]))
def test_a_request_means_below_wsgi_as_much_as_through_it(head: bytes, body: bytes) -> None:
    """The same requests are accepted, with the same environment, and the same answers are given to the others."""
    through, below = Seen(), Seen()
    sent = head + body
    received = [through.served(sent, routes=False).received, below.served(sent, routes=True).received]
    # The second may end between the two.
    first, second = (re.sub(rb"\r\nDate: [^\r]+", b"", answer) for answer in received)
    assert first == second
    assert through.environs == below.environs


@given(heads)
def test_a_plain_head_is_one_that_pywsgi_accepts(head: bytes) -> None:
    """With the same method, target, headers, and length of its body."""
    plain = read_head(head)
    if plain is None:
        return
    seen = Seen()
    seen.served(head + b"x" * min(plain.body_bytes, 100), routes=False)
    environ = seen.environs[0]
    assert (environ["REQUEST_METHOD"], environ["PATH_INFO"]) == (plain.method, plain.path)
    assert environ["QUERY_STRING"] == plain.query
    assert int(environ.get("CONTENT_LENGTH", 0)) == plain.body_bytes
    assert plain.fields == {name: environ[name] for name in plain.fields}


def test_an_ordinary_request_is_plain() -> None:
    """Names in any case, blanks around values, several headers of a name."""
    plain = read_head(
        b"POST /api/publish?a=b HTTP/1.1\r\nHost: test:80\r\ncontent-type:application/json \r\nContent-Length: 12\r\n"
        b"Cookie: a=1\r\nCookie: b=2\r\nX-Forwarded-For: 192.0.2.1\r\nX-Forwarded-For: 192.0.2.2\r\nConnection: Close\r\n\r\n"
    )
    assert plain is not None
    assert (plain.method, plain.path, plain.query) == ("POST", "/api/publish", "a=b")
    assert (plain.body_bytes, plain.ends) == (12, True)
    assert plain.fields == {
        "HTTP_HOST": "test:80",
        "CONTENT_TYPE": "application/json",
        "CONTENT_LENGTH": "12",
        "HTTP_COOKIE": "a=1; b=2",
        "HTTP_X_FORWARDED_FOR": "192.0.2.1,192.0.2.2",
        "HTTP_CONNECTION": "Close",
    }


@pytest.mark.parametrize(
    "line",
    [
        b"Transfer-Encoding: chunked",
        b"Expect: 100-continue",
        b"Content-Length: 5",
        b"Host: other",
        b"Content-Length : 5",
        b"X_A: 1",
        b"X-A: \xe4",
        b"X-A: 1\0",
        b"X-A: 1\r 2",
        b" folded",
        b"no colon",
    ],
)
def test_any_doubt_leaves_a_head_to_pywsgi(line: bytes) -> None:
    """A body that does not say its length, a second header of which one is allowed, bytes that somebody may read differently."""
    first = b"POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 5\r\n"
    assert read_head(first + b"\r\n") is not None
    assert read_head(first + line + b"\r\n\r\n") is None


def test_more_lines_than_are_allowed_are_left_to_pywsgi() -> None:
    """100 are plain, 101 are not."""
    line = b"GET / HTTP/1.1\r\n"
    assert read_head(line + b"A: b\r\n" * 100 + b"\r\n") is not None
    assert read_head(line + b"A: b\r\n" * 101 + b"\r\n") is None


def test_names_that_a_client_makes_up_are_not_all_remembered() -> None:
    """They are translated each time."""
    for number in range(2 * MAX_NAMES):
        plain = read_head(f"GET / HTTP/1.1\r\nX-{number}: a\r\n\r\n".encode())
        assert plain is not None
        assert plain.fields == {f"HTTP_X_{number}": "a"}
    assert len(_known_names) <= MAX_NAMES
    assert {"Host", "host", "Sec-WebSocket-Key"} <= set(_known_names)


def test_a_long_hostile_head_costs_no_more_than_its_length() -> None:
    """Nothing is looked at twice: what almost matches is given up at once."""
    for filler in (b"a", b" ", b":", b"\t", b"a:", b"a: "):
        assert read_head(b"GET / HTTP/1.1\r\n" + filler * 8000 + b"\0\r\n\r\n") is None
