"""HTTP/1.1 from bytes: the meaning of a request, refusals, and that three readers of it never see different requests.

The other readers are h11 and, where it is installed, llhttp (httptools).
"""

from collections.abc import Iterable
from importlib import import_module
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, NamedTuple

import h11
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headgate.installation import native
from headgate.transport.http_parser import (
    END,
    MACHINE,
    MAX_CHUNK_LINE_BYTES,
    MAX_HEADER_BYTES,
    MAX_LINE_BYTES,
    BadRequest,
    ParserState,
    Request,
    RequestParser,
    _environ_name,
    read_head,
    read_head_in_python,
)

try:
    httptools: Any = import_module("httptools")
except ImportError:
    httptools = None
usual_head = native("usual_head")


class Read(NamedTuple):
    """A reader's result from bytes: whole requests in order, each with its body, and whether it refused something."""

    requests: tuple[tuple[str, str, tuple[tuple[str, str], ...], bytes], ...]
    refused: bool


def read(pieces: Iterable[bytes]) -> Read:
    """Read bytes that come in these pieces."""
    parser, found = RequestParser(), list[Any]()
    request, body = None, b""
    for piece in pieces:
        parser.feed(piece)
        while (event := parser.next_event()) is not None:
            if isinstance(event, BadRequest):
                return Read(tuple(found), True)
            if isinstance(event, Request):
                request, body = event, b""
            elif event is END:
                assert request is not None
                fields = tuple(sorted(request.fields.items()))
                found.append((request.method, f"{request.path}?{request.query}", fields, body))
                parser.next_request()
            else:
                body += event
    return Read(tuple(found), False)


def one(sent: bytes) -> Request | BadRequest | None:
    """Return the first result of these bytes."""
    event = RequestParser(sent).next_event()
    assert event is None or isinstance(event, Request | BadRequest)
    return event


def request_of(*lines: str, line: str = "POST /here?a=b HTTP/1.1", host: str = "Host: test") -> bytes:
    return "\r\n".join([line, *([host] if host else []), *lines, "", ""]).encode("latin-1")


NAMES = ["Host", "Content-Type", "Content-Length", "Connection", "Cookie", "X-A", "x-a", "X_A", "Expect", "X A", "", "TE"]
NAMES += ["Transfer-Encoding", "Upgrade", "content-length", "HTTP-HOST", "X\xe4"]
VALUES = ["", "a", "0", "3", "03", "+3", "close", "Close", "keep-alive", "chunked", "a, b", "a\tb", "100-continue", "\xe4"]
VALUES += ["a\rb", "a\0b", "a\x1fb", "\x85", "websocket", "1" * 19, "gzip, chunked", "\x7f", "\x0b"]
LINES = st.builds(
    lambda name, blank, value, end: f"{name}:{blank}{value}{end}",
    st.sampled_from(NAMES),
    st.sampled_from(["", " ", "  ", "\t "]),
    st.sampled_from(VALUES),
    st.sampled_from(["\r\n"] * 12 + [" \r\n", "\t\r\n", "\n", "\r\n folded\r\n", "\r"]),
)
HEADS = st.builds(
    lambda method, target, version, lines: f"{method} {target} {version}\r\n{''.join(lines)}\r\n".encode("latin-1"),
    st.sampled_from(["GET", "POST", "POST", "HEAD", "post", "PO ST", "G\xe4T", "G\0T", "OPTIONS"]),
    st.sampled_from(["/here", "/here?a=1&b=%20", "/h%65re", "http://test/here?a", "*", "/here\xe4", "//here", "here", "/a#b"]),
    st.sampled_from(["HTTP/1.1"] * 8 + ["HTTP/1.0", "HTTP/1.1 ", "HTTP/2.0", "http/1.1", ""]),
    st.lists(LINES, max_size=5).flatmap(lambda lines: st.sampled_from([["Host: test\r\n", *lines]] * 3 + [lines])),
)
BODIES = st.sampled_from(
    [b"", b"abc", b"3\r\nabc\r\n0\r\n\r\n", b"0\r\n\r\n", b"3;x=y\r\nabc\r\n0\r\nT: x\r\n\r\n", b"3 \r\nabc"]
)
WILD = st.builds(
    lambda head, body, rest: head + body + rest, HEADS, BODIES, st.sampled_from([b"", b"GET / HTTP/1.1\r\nHost:\r\n\r\n"])
)


@given(WILD, st.lists(st.integers(1, 40), max_size=12))
def test_where_bytes_are_cut_changes_nothing(sent: bytes, cuts: list[int]) -> None:
    """Bytes that come one by one, or at once, are the same requests, and are refused all the same."""
    pieces, at = [], 0
    for cut in cuts:
        pieces.append(sent[at : at + cut])
        at += cut
    whole = read([sent])
    assert read([*pieces, sent[at:]]) == whole
    assert read(sent[at : at + 1] for at in range(len(sent))) == whole


def by_h11(sent: bytes) -> tuple[list[bytes], bool]:
    """Return the body of the first request as h11 reads it, and whether it refuses that."""
    reader, bodies = h11.Connection(h11.SERVER), list[bytes]()
    reader.receive_data(sent)
    try:
        while True:
            event = reader.next_event()
            if event is h11.NEED_DATA or event is h11.PAUSED:
                return bodies, False
            if isinstance(event, h11.Request):
                bodies.append(b"")
            elif isinstance(event, h11.Data):
                bodies[-1] += bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                return bodies, False
    except h11.RemoteProtocolError:
        return bodies, True


def by_llhttp(sent: bytes) -> tuple[list[bytes], bool]:
    """Return the bodies of the requests that llhttp reads, and whether it refuses the first."""
    bodies, whole = list[bytes](), list[None]()
    told = SimpleNamespace(
        on_message_begin=lambda: bodies.append(b""),
        on_body=lambda data: bodies.append(bodies.pop() + data),
        on_message_complete=lambda: whole.append(None),
    )
    try:
        httptools.HttpRequestParser(told).feed_data(sent)
    except httptools.HttpParserUpgrade:
        pass
    except httptools.HttpParserError:
        return bodies, not whole
    return bodies, False


@given(HEADS, BODIES)
def test_what_we_read_is_what_others_read(head: bytes, body: bytes) -> None:
    """A request that we take has the body that h11 and llhttp see; one that both of them refuse is refused here."""
    sent = head + body
    ours = read([sent])
    readers = [by_h11(sent), *([by_llhttp(sent)] if httptools is not None else [])]
    if len(readers) == 2 and all(refused for _, refused in readers):
        assert ours.refused or not ours.requests, sent
    for bodies, refused in readers:
        if ours.requests and not refused and bodies:
            assert bodies[0] == ours.requests[0][3], sent


USUAL = b"GET /here?a=1 HTTP/1.1\r\nHost: test\r\nContent-type:\ta b\r\nX-A: \xe4 \r\nContent-Length: 3\r\n\r\n"
SPOILT = st.builds(
    lambda at, count, put: USUAL[:at] + put + USUAL[at + count :],
    st.integers(0, len(USUAL)),
    st.integers(0, 3),
    st.binary(max_size=3),
)


@pytest.mark.skipif(usual_head is None, reason="the reader in C is not built here, or not wanted")
@given(st.one_of(HEADS, SPOILT.filter(lambda head: head.endswith(b"\r\n\r\n"))))
@example(USUAL)
@example(request_of(*(f"X-{number}:" for number in range(100))))
@example(request_of(host=""))
def test_the_reader_in_c_leaves_a_head_or_reads_it_as_the_other_does(head: bytes) -> None:
    """It reads the usual ones, in which the headers have the same order."""
    usual = usual_head(head)
    assert (usual is not None) >= (head == USUAL)
    if usual is not None:
        outcomes = [read_head(head), read_head_in_python(head)]
        assert outcomes[0] == outcomes[1]
        in_c, in_python = ([*outcome.fields] if isinstance(outcome, Request) else [] for outcome in outcomes)
        assert in_c == in_python


GOOD_LINES = st.lists(
    st.sampled_from(
        [
            *("Content-Type: a", "Content-Length: 3", "Connection:close", "Connection: keep-alive", "Cookie: a=1"),
            *("Cookie: b=2", "X-A:1 ", "x-a:\t2", "X-A:", "X_A: 1", "X-Forwarded-For:192.0.2.1", "Expect: 100-Continue"),
        ]
    ),
    max_size=6,
)


@given(GOOD_LINES)
def test_headers_have_the_names_and_values_of_wsgi(lines: list[str]) -> None:
    """As PEP 3333 and CGI have them, against a plain reading; two of which one is allowed are refused."""
    event = one(request_of(*lines))
    expected: dict[str, list[str]] = {"HOST": ["test"]}
    for line in lines:
        name, _, value = line.partition(":")
        if "_" not in name:
            expected.setdefault(name.upper().replace("-", "_"), []).append(value.strip(" \t"))
    if any(len(expected.get(name, [])) > 1 for name in ("CONTENT_LENGTH", "EXPECT")):
        assert isinstance(event, BadRequest)
        return
    assert isinstance(event, Request)
    wanted = {}
    for key, values in expected.items():
        joined = values[0] if key == "CONTENT_TYPE" else ("; " if key == "COOKIE" else ",").join(values)
        wanted[key if key in ("CONTENT_TYPE", "CONTENT_LENGTH") else f"HTTP_{key}"] = joined
    assert dict(event.fields) == wanted


@pytest.mark.parametrize(
    ("line", "path", "query", "host"),
    [
        ("GET /a/b?c=%20?d HTTP/1.1", "/a/b", "c=%20?d", "test"),
        ("GET /%C3%A4%2Fb HTTP/1.1", "/\xc3\xa4/b", "", "test"),
        ("GET //socket.io/?a HTTP/1.1", "//socket.io/", "a", "test"),
        ("GET http://there:80/a?b HTTP/1.1", "/a", "b", "there:80"),
        ("GET HTTPS://there?b HTTP/1.1", "/", "b", "there"),
        ("OPTIONS * HTTP/1.1", "*", "", "test"),
    ],
)
def test_a_target_is_a_path_and_a_query(line: str, path: str, query: str, host: str) -> None:
    """In origin form, in absolute form, with the host that counts (RFC 9112 section 3.2.2), or `*`; decoded as WSGI has it."""
    event = one(request_of(line=line))
    assert isinstance(event, Request)
    assert (event.path, event.query, event.fields["HTTP_HOST"]) == (path, query, host)


ECHO = b"POST /echo HTTP/1.1\r\nHost: test\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n"


BAD_LENGTHS = (b"0, 41", b"+0", b"-1", b"0x0", b"0_0", b"", b"00000000000000000000")
UNKNOWN_CODINGS = (b"identity", b"gzip, chunked", b"chunked, chunked", b"chunked, identity", b"xchunked", b'"chunked"', b"")
BAD_CHUNKS = (
    b"5 \r\nhello\r\n",
    b"0x5\r\nhello\r\n",
    b"5\nhello\r\n",
    b"5\r\nhelloX\r\n",
    b"F" * 17 + b"\r\n",
    b"0\r\nbad trailer: x\r\n",
)
BAD_HEADERS = (
    *(b"Content-Length: 0\r\n" + CHUNKED, CHUNKED + b"Content-Length: 5\r\n", CHUNKED + CHUNKED),
    *(b"Content-Length: 0\r\nContent-Length: 41\r\n", b"Content-Length : 0\r\n", b"Content-Length\t: 0\r\n"),
    *(b"X: y\r\n Content-Length: 41\r\n", b"X: y\rContent-Length: 41\r\n", b"X: y\0\r\n", b"A\r\n", b"A: \x01\r\n", b": b\r\n"),
    *(b"Transfer-Encoding: \x0bchunked\r\n", b"Transfer-Encoding : chunked\r\n"),
)
BAD_METHODS = (b"G(T /", b'G"ET /', b"GET: /", b"G\xc4T /", b"{} /", b"G\x00T /")
BAD_LINES = (
    *(b"G T /", b" /", b"GET  /", b"GET /a b", b"GET /\xe4", b"GET /\x7f", b"GET a", b"GET *"),
    *(b"CONNECT a:80", b"GET ftp://a/", b"GET http://a@b/", b"GET ?a=b"),
)


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        *((ECHO + b"Content-Length: %b\r\n\r\n" % length, 400) for length in BAD_LENGTHS),
        *((ECHO + lines + b"\r\n0\r\n\r\n", 400) for lines in BAD_HEADERS),
        *((ECHO + b"Transfer-Encoding: %b\r\n\r\n0\r\n\r\n" % coding, 501) for coding in UNKNOWN_CODINGS),
        *((ECHO + CHUNKED + b"\r\n" + chunk + b"\r\n", 400) for chunk in BAD_CHUNKS),
        (ECHO.replace(b"1.1", b"1.0") + CHUNKED + b"\r\n0\r\n\r\n", 400),
        (ECHO + b"X: " + b"y" * 20_000 + b"\r\n\r\n", 431),
        (ECHO + b"X: y\r\n" * 101 + b"\r\n", 431),
        (b"GET /" + b"x" * 9000 + b" HTTP/1.1\r\n\r\n", 414),
        *((request_of("A: b", line=line, host=""), 400) for line in ("GET / HTTP/1.1", "GET http://test/ HTTP/1.1")),
        (ECHO + b"Host: test\r\n\r\n", 400),
        (ECHO + b"Expect: tea\r\nContent-Length: 0\r\n\r\n", 417),
        *((b"%b HTTP/1.1\r\nHost: test\r\n\r\n" % line, 400) for line in (*BAD_LINES, *BAD_METHODS)),
        *((sent, 400) for sent in (b"nonsense\r\n\r\n", b"GET / HTTP/2.0\r\n\r\n", b"GET / HTTP/1.2\r\n\r\n", b"GET /\r\n\r\n")),
        *((sent, 400) for sent in (b"\r\nGET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\n", b"GET / HTTP/1.1\nHost: a\n\n")),
        *((sent, 400) for sent in (b"GET / HTTP/1.1\r\nHost: a\n", b"GET / HTTP/1.1\rHost: a\r\n")),
    ],
    ids=lambda value: value.removeprefix(ECHO)[:60].decode("latin-1") if isinstance(value, bytes) else str(value),
)
def test_what_is_no_request_or_ends_in_doubt_is_refused_as_soon_as_that_is_known(sent: bytes, status: int) -> None:
    """Without waiting for the end of the head where its lines do not end as they must; nothing after it is read."""
    parser = RequestParser(sent)
    while isinstance(event := parser.next_event(), Request | bytes):
        pass
    assert isinstance(event, BadRequest)
    assert event.status.startswith(str(status))
    parser.feed(b"GET /hidden HTTP/1.1\r\n\r\n")
    assert parser.next_event() is None


def test_limits_come_before_parsing() -> None:
    """Of the request line, of all headers together, of their number, of the lines of chunks; at the limit all is well."""

    def status(sent: bytes) -> str:
        event = one(sent)
        return event.status[:3] if isinstance(event, BadRequest) else "" if event is None else "taken"

    at_limit = "GET /" + "a" * (MAX_LINE_BYTES - len("GET / HTTP/1.1\r\n")) + " HTTP/1.1"
    assert status(request_of(line=at_limit)) == "taken"
    for sent in (request_of(line=at_limit.replace("/", "//", 1)), b"GET /" + b"a" * MAX_LINE_BYTES):
        assert one(sent) == BadRequest("414 URI Too Long", "the request line is too long")
    line, host, header = b"GET / HTTP/1.1\r\n", b"Host:\r\n", b"A: b\r\n"
    filled = b"A: " + b"b" * (MAX_HEADER_BYTES - len(b"Host:\r\nA: \r\n\r\n")) + b"\r\n" + host + b"\r\n"
    taken = (line + filled, line + host + header * 99 + b"\r\n")
    refused = (line + b"A" + filled, line + b"AAA" + filled[:-2], line + host + header * 100 + b"\r\n")
    assert [status(sent) for sent in (*taken, *refused)] == ["taken"] * 2 + ["431"] * 3
    chunked = request_of("Transfer-Encoding: chunked")
    assert read([chunked + b"1;" + b"a" * MAX_CHUNK_LINE_BYTES]).refused
    assert read([chunked + b"0\r\nA: " + b"a" * MAX_HEADER_BYTES]).refused


@pytest.mark.parametrize(
    ("sent", "protocol"),
    [
        (b"PROXY TCP4 192.0.2.1 192.0.2.2 5000 80\r\nGET / HTTP/1.1\r\n\r\n", "the PROXY protocol"),
        (b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c", "the PROXY protocol"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "HTTP/2"),
        (b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03", "TLS"),
    ],
)
def test_another_protocol_is_named_at_once(sent: bytes, protocol: str) -> None:
    """Of a proxy that is set up for it. TLS has no line that could end."""
    assert one(sent) == BadRequest("400 Bad Request", f"the gateway speaks HTTP/1.1, and this is {protocol}", protocol)


def test_a_long_hostile_head_costs_no_more_than_its_length() -> None:
    """Nothing is read twice, as an almost matching text is given up at once."""
    for filler in (b"a", b" ", b":", b"\t", b"a:", b"a: "):
        assert isinstance(one(b"GET / HTTP/1.1\r\n" + filler * 5000 + b"\0\r\n\r\n"), BadRequest)


def test_names_that_a_client_makes_up_are_not_all_remembered() -> None:
    for number in range(300):
        event = one(request_of(f"X-{number}: a"))
        assert isinstance(event, Request)
        assert event.fields == {"HTTP_HOST": "test", f"HTTP_X_{number}": "a"}
    assert _environ_name.cache_info().currsize <= 128


@given(
    before=st.lists(st.sampled_from(["X-A: 1", "Content-Length-Of: 5", "Accept:  x"]), max_size=4),
    behind=st.lists(st.sampled_from(["X-B: 2", "Cookie: a=b", "connection: close"]), max_size=3, unique=True),
    name=st.sampled_from(["Content-Length: ", "content-length: ", "Content-Length:", "Content-Length:  "]),
    lengths=st.lists(st.sampled_from(["5", "0", "007", "9" * 18, "5 ", "5,5", "-5", "x", "", "\xb2"]), min_size=2, max_size=4),
)
def test_a_head_that_is_not_parsed_again_means_what_it_means_when_it_is(
    before: list[str], behind: list[str], name: str, lengths: list[str]
) -> None:
    """Or it is parsed, and the memory of the last one changes nothing."""
    blocks = [request_of(*before, f"{name}{length}", *behind) for length in lengths]
    for last, block in pairwise(blocks):
        parser = RequestParser(last)
        first = parser.next_event()
        if not isinstance(first, Request) or first.body_bytes > 10:
            continue
        parser.feed(b"x" * first.body_bytes)
        while parser.next_event() is not END:
            pass
        parser.next_request()
        request = one(block)
        for size in (0, 5, 7):
            if (body := parser.repeated(block + b"x" * size)) is not None:
                assert isinstance(request, Request)
                assert len(body) == size == request.body_bytes
        parser.feed(block)
        assert parser.next_event() == request


def test_a_whole_body_can_be_seen_before_it_is_taken() -> None:
    """Not before its last byte has come."""
    parser = RequestParser(request_of("Content-Length: 2") + b"a")
    assert isinstance(parser.next_event(), Request)
    assert parser.whole_body(takes=False) is None
    parser.feed(b"bc")
    assert [parser.whole_body(takes=takes) for takes in (False, True)] == [b"ab", b"ab"]
    assert (parser.state, parser.held) == (ParserState.WHOLE, b"c")


def test_a_head_that_is_the_same_is_the_same_object() -> None:
    """A route can keep its knowledge of a head; but for another length it has a request like it."""
    parser = RequestParser(request_of("Content-Length: 0") * 2 + request_of("Content-Length: 00") + request_of())
    found = []
    for _ in range(4):
        found.append((parser.next_event(), parser.is_like_last))
        assert parser.next_event() is END
        parser.next_request()
    assert found[0][0] is found[1][0]
    assert parser.repeated(request_of()) is None  # its end is not told by a length
    parser.feed(request_of("Content-Length: 1") + b"a")
    assert isinstance(parser.next_event(), Request)
    other = request_of("Content-Length: 2")
    assert parser.repeated(other + b"bc") is None  # this one is not over yet
    assert parser.whole_body() == b"a"
    parser.next_request()
    assert [parser.repeated(other + body) for body in (b"bc", b"b", b"bcd")] == [b"bc", None, None]
    assert [is_like for _, is_like in found] == [False, True, True, False]


@pytest.mark.parametrize(("sent", "is_bad"), [(b"", False), (b"GET", True), (request_of("Content-Length: 3") + b"a", True)])
def test_a_request_that_ends_too_early_is_none(sent: bytes, is_bad: bool) -> None:
    """Between two requests a connection may end."""
    parser = RequestParser(sent)
    while parser.next_event() is not None:
        pass
    assert isinstance(parser.end(), BadRequest) is is_bad


def test_a_parser_that_is_left_gives_back_what_it_has_not_read() -> None:
    parser = RequestParser(request_of() + b"\x81\x00")
    assert isinstance(parser.next_event(), Request)
    assert parser.leave() == b"\x81\x00"
    assert parser.next_event() is None
    with pytest.raises(RuntimeError):
        parser.next_request()


def test_every_state_can_be_reached_and_left() -> None:
    """But for the last one; the next request begins only after a whole one."""
    assert set(MACHINE.values()) == set(ParserState)
    assert set(ParserState) - {before for before, _ in MACHINE} == {ParserState.OVER}
    assert [before for before, after in MACHINE if after is ParserState.HEAD] == [ParserState.WHOLE]
