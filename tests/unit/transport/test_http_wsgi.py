"""An application's rights by PEP 3333, and the output for it."""

import io
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
from structlog.testing import capture_logs

from headgate.transport.http_limits import HttpLimits
from tests.support.http_peer import Application, Peer

GET = b"GET /a HTTP/1.1\r\nHost: test\r\n\r\n"


def answers(application: Application, *sent: bytes, **limits: Any) -> list[tuple[str, dict[str, str], bytes]]:
    """Return the status, the headers and the body of each answer."""
    peer = Peer([b"".join(sent)])
    peer.served_by(application, HttpLimits(**limits))
    return peer.answers


def answering(*pieces: bytes, status: str = "200 OK", headers: Iterable[tuple[str, str]] = ()) -> Application:
    def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        start_response(status, list(headers))
        return iter(pieces)

    return application


def listed(environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
    start_response("200 OK", [])
    return [b"one", b"two"]


def written(environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
    start_response("200 OK", [])(b"one")
    return [b"two"]


CHUNKS = b"3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n"


@pytest.mark.parametrize(
    ("application", "name", "value", "body"),
    [
        (listed, "Content-Length", "6", b"onetwo"),
        (answering(b"one", b"", b"two"), "Transfer-Encoding", "chunked", CHUNKS),
        (answering(), "Transfer-Encoding", "chunked", b"0\r\n\r\n"),
        (written, "Transfer-Encoding", "chunked", CHUNKS),
    ],
    ids=["a list", "an iterator", "an empty one", "PEP 3333's older way"],
)
def test_an_answer_has_a_length_or_comes_in_chunks(application: Application, name: str, value: str, body: bytes) -> None:
    """The length of a list is known. Empty pieces are none, and `write` is as good as returning."""
    assert [(headers[name], received) for _, headers, received in answers(application, GET, GET)] == [(value, body)] * 2


def test_a_client_of_http_1_0_reads_to_the_end_of_the_connection() -> None:
    """Also one that wants to keep it, where the length is not known."""
    kept = b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"
    ((_, headers, body),) = answers(answering(b"one", b"two"), kept, kept)
    assert (headers["Connection"], "Transfer-Encoding" in headers, body) == ("close", False, b"onetwo")
    assert [headers["Connection"] for _, headers, _ in answers(listed, kept, kept)] == ["keep-alive"] * 2


def test_an_answer_to_head_has_the_headers_and_no_body() -> None:
    """Whatever the application yields; the next answer begins after it."""
    head = GET.replace(b"GET", b"HEAD")
    found = answers(answering(b"one", headers=[("Content-Length", "3")]), head, GET)
    assert [(headers["Content-Length"], body) for _, headers, body in found] == [("3", b""), ("3", b"one")]
    assert [body for *_, body in answers(answering(b"one"), head)] == [b""]


@pytest.mark.parametrize("status", ["204 No Content", "304 Not Modified"])
def test_some_answers_have_no_body(status: str) -> None:
    """The client would take it for the next answer."""
    found = answers(answering(b"one", status=status), GET, GET)
    assert [(told, body) for told, _, body in found] == [(status, b"")] * 2
    assert "Transfer-Encoding" not in found[0][1]


@pytest.mark.parametrize(("pieces", "count"), [([b"onetwo"], 2), ([b"one", b"twothree"], 2), ([b"one"], 1)])
def test_a_length_that_an_application_says_holds(pieces: list[bytes], count: int) -> None:
    """More is left out; when it is less, the connection ends, or the client would wait for ever."""
    found = answers(answering(*pieces, headers=[("Content-Length", "6")]), GET, GET)
    assert [body for *_, body in found] == [b"".join(pieces)[:6]] * count


def test_an_answer_may_be_replaced_until_it_has_begun() -> None:
    """With exc_info; after that the error is raised again, and the connection ends."""

    def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterator[bytes]:
        start_response("200 OK", [("X-A", "1")])
        for status in ("500 FIRST", "500 SECOND"):
            try:
                raise KeyError(status)
            except KeyError:
                start_response(status, [("X-B", "1")], sys.exc_info())
            yield b"one"

    with capture_logs() as logs:
        found = answers(application, GET, GET)
    assert [(status, headers.get("X-B"), body) for status, headers, body in found] == [("500 FIRST", "1", b"3\r\none\r\n")]
    assert [line["event"] for line in logs] == ["application failed"]


BREAKING = [("X", "a\r\nb"), ("X\n", "a"), ("X", "\u20ac")]


@pytest.mark.parametrize(
    ("status", "headers"), [("200 OK\r\nX: y", []), ("OK", []), *(("200 OK", [header]) for header in BREAKING)]
)
def test_what_would_break_the_answer_is_a_fault_of_the_application(status: str, headers: list[tuple[str, str]]) -> None:
    """500, without a reason."""
    with capture_logs() as logs:
        ((told, _, body),) = answers(answering(b"one", status=status, headers=headers), GET, GET)
    assert (told, b"internal_error" in body, len(logs)) == ("500 Internal Server Error", True, 1)


@pytest.mark.parametrize(("pieces", "expected"), [((), "500"), ((b"one",), "200")], ids=["at once", "later"])
def test_an_application_that_fails_is_answered_and_logged(pieces: tuple[bytes, ...], expected: str) -> None:
    """500 where nothing was written, and else the end of the connection; its result is closed."""
    closed: list[bool] = []

    class Failing:
        def __iter__(self) -> Iterator[bytes]:
            yield from pieces
            raise RuntimeError("a secret")

        def close(self) -> None:
            closed.append(True)

    def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Failing:
        start_response("200 OK", [])
        return Failing()

    with capture_logs() as logs:
        ((status, _, body),) = answers(application, GET, GET)
    assert (status[:3], b"secret" in body, len(logs), closed) == (expected, False, 1, [True])


@pytest.mark.parametrize("pieces", [[b"one"], []])
def test_an_application_that_says_nothing_is_at_fault(pieces: list[bytes]) -> None:
    """It has to call start_response; without an answer, that to the next request would be taken for it."""
    with capture_logs() as logs:
        ((status, *_),) = answers(lambda environ, start_response: pieces, GET, GET)
    assert (status[:3], len(logs)) == ("500", 1)


def test_the_environment_is_complete() -> None:
    """As PEP 3333 has it, with the keys for Flask and others."""
    seen: list[dict[str, Any]] = []

    def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        seen.append(environ)
        start_response("200 OK", [])
        wrapped: Iterable[bytes] = environ["wsgi.file_wrapper"](io.BytesIO(b"a file"))
        return wrapped

    found = answers(application, b"POST /a%20b?c=d HTTP/1.1\r\nHost: test\r\nContent-Type: x\r\nContent-Length: 0\r\n\r\n")
    assert found[0][2] == b"6\r\na file\r\n0\r\n\r\n"
    names = ("REQUEST_METHOD", "SCRIPT_NAME", "PATH_INFO", "QUERY_STRING", "CONTENT_TYPE", "CONTENT_LENGTH", "SERVER_PROTOCOL")
    assert [seen[0][name] for name in names] == ["POST", "", "/a b", "c=d", "x", "0", "HTTP/1.1"]
    assert seen[0]["wsgi.version"] == (1, 0)
    assert {"SERVER_NAME", "SERVER_PORT", "wsgi.errors", "wsgi.url_scheme", "wsgi.multiprocess", "wsgi.run_once"} <= set(seen[0])
    assert seen[0]["wsgi.input_terminated"] is True


@pytest.mark.parametrize(
    ("head", "read"), [("Content-Length: 11", 0), ("Transfer-Encoding: chunked", 10)], ids=["declared", "chunked"]
)
def test_a_body_above_the_limit_is_refused(head: str, read: int) -> None:
    """Unread where its length is known. An application gets no more than the limit of one in chunks."""
    seen: list[bytes] = []

    def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
        seen.extend(iter(lambda: environ["wsgi.input"].read(1), b""))
        start_response("200 OK", [])
        return []

    request = f"POST /a HTTP/1.1\r\nHost: test\r\n{head}\r\n\r\n".encode()
    body = b"x" * 11 if read == 0 else b"a\r\nxxxxxxxxxx\r\n1\r\nx\r\n0\r\n\r\n"
    ((status, headers, told),) = answers(application, request, body, max_body_bytes=10)

    assert (status, headers["Connection"], len(seen)) == ("413 Content Too Large", "close", read)
    error = json.loads(told)["error"]
    assert (error["code"], error["size"], error["limit"], error["where"]) == ("payload_too_large", 11, 10, "http")


@pytest.mark.parametrize("limit", [11, None])
def test_a_body_within_the_limit_is_read(limit: int | None) -> None:
    """Without one, the application limits its bodies."""

    def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
        body = environ["wsgi.input"].read()
        start_response("200 OK", [])
        return [body]

    requests = [b"POST /a HTTP/1.1\r\nHost: test\r\nContent-Length: 11\r\n\r\n" + b"x" * 11]
    requests.append(b"POST /a HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\nb\r\nxxxxxxxxxxx\r\n0\r\n\r\n")
    assert [body for *_, body in answers(application, *requests, max_body_bytes=limit)] == [b"x" * 11] * 2


def test_an_application_may_end_the_connection() -> None:
    """By a Connection header; its other words are of the hop, and not its to say, nor is the framing."""
    headers = [("Connection", "x, Close"), ("Transfer-Encoding", "gzip")]
    ((_, told, _),) = answers(answering(b"one", headers=headers), GET, GET)
    assert (told["Connection"], told["Transfer-Encoding"]) == ("close", "chunked")


def test_a_server_without_time_for_a_next_request_says_so() -> None:
    """As gunicorn with `--keep-alive 0`, because a client would send its next request into an ending connection."""
    ((_, headers, body),) = answers(listed, GET, GET, keep_alive_s=0)
    assert (headers["Connection"], body) == ("close", b"onetwo")
