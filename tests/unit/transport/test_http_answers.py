"""Answers of the HTTP server itself: whole, in the shape of every refusal, and with a reason."""

import json

from headgate.transport.http_answers import NO_ROOM_RETRY_S, error_answer, http_error, no_room
from tests.support.wsgi import Said


def test_an_error_is_a_whole_answer_that_no_cache_keeps() -> None:
    """The body is JSON, so its length counts bytes whatever the words are."""
    answer = error_answer("400 Bad Request", http_error("bad_request", "no good: ü €"))

    assert json.loads(answer.body) == {"error": {"code": "bad_request", "message": "no good: ü €", "retry": False}}
    assert answer.to_bytes(0, close=True).partition(b"\r\n\r\n")[0].split(b"\r\n") == [
        b"HTTP/1.1 400 Bad Request",
        b"Content-Type: application/json",
        b"Content-Length: %d" % len(answer.body),
        b"Cache-Control: no-store",
        b"Date: Thu, 01 Jan 1970 00:00:00 GMT",
        b"Connection: close",
    ]


def test_an_answer_to_head_has_no_body_but_its_headers() -> None:
    """On a connection that lives on, the client would read the body as the next answer."""
    answer, said = error_answer("405 Method Not Allowed", http_error("method_not_allowed", "expected GET")), Said()

    assert answer({"REQUEST_METHOD": "HEAD"}, said) == []
    assert said.headers["Content-Length"] == str(len(answer.body))


def test_clients_that_are_refused_together_are_told_different_times() -> None:
    """Each of the seconds is drawn, and no other."""
    first, last = NO_ROOM_RETRY_S

    told = {json.loads(no_room("connections", 7).body)["error"]["retry_after_s"] for _ in range(1000)}
    assert told == set(range(first, last + 1))


def test_a_client_without_room_is_told_the_limit_and_when_to_come_again() -> None:
    """By an application that stands in for the real one. The Origin is not known, so any page may read it."""
    said = Said()
    (body,) = no_room("connections_per_address", 7)({}, said)
    error = json.loads(body)["error"]

    assert (error["code"], error["name"], error["limit"]) == ("limit_reached", "connections_per_address", 7)
    assert error["retry"]
    assert said.status == "429 Too Many Requests"
    assert said.headers == {
        "Content-Type": "application/json",
        "Content-Length": str(len(body)),
        "Cache-Control": "no-store",
        "Retry-After": str(error["retry_after_s"]),
        "Access-Control-Allow-Origin": "*",
        "Access-Control-Expose-Headers": "Retry-After",
        "Connection": "close",
    }
    assert no_room("connections", 7).status == "503 Service Unavailable"
