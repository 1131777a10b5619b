"""Answers of the HTTP server itself: whole, plain, and with a reason."""

from __future__ import annotations

from headgate.transport.http_answers import RETRY_AFTER_S, error_answer, refusing, retry_after_s, too_many_text
from tests.support.wsgi import Said


def test_an_error_is_a_whole_answer_that_closes_the_connection() -> None:
    """With a line that says why; its length counts bytes."""
    head, _, body = error_answer("400 Bad Request", "no good: ü €").partition(b"\r\n\r\n")

    assert body == b"no good: \xfc ?\n"
    assert head.split(b"\r\n") == [
        b"HTTP/1.1 400 Bad Request",
        b"Connection: close",
        b"Content-Type: text/plain",
        b"Content-Length: %d" % len(body),
    ]


def test_an_error_may_say_when_to_come_again() -> None:
    """In seconds, as RFC 9110 has it."""
    head, _, _ = error_answer("503 Service Unavailable", "no room", 4).partition(b"\r\n\r\n")

    assert b"\r\nRetry-After: 4\r\n" in head


def test_clients_that_are_refused_together_are_told_different_times() -> None:
    """Each of the seconds is drawn, and no other."""
    first, last = RETRY_AFTER_S

    assert {retry_after_s() for _ in range(1000)} == set(range(first, last + 1))


def test_a_refused_request_is_told_the_limit_and_when_to_come_again() -> None:
    """429, by an application that stands in for the real one."""
    said = Said()
    (body,) = refusing("429 Too Many Requests", too_many_text(7), 1)({}, said)

    assert body.decode() == f"{too_many_text(7)}\n"
    assert "connections_per_address (at most 7 " in body.decode()
    assert said.status == "429 Too Many Requests"
    assert said.headers == {
        "Content-Type": "text/plain",
        "Content-Length": str(len(body)),
        "Retry-After": "1",
        "Connection": "close",
    }
