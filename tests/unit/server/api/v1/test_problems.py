"""Problems: every refusal of /api/v1 has one shape, its code is described, and a fault in a body names its place."""

import json
from typing import Any

import pytest
from flask.testing import FlaskClient

from headgate import errors
from headgate_server.api.v1.dispatch import pointer_of
from headgate_server.api.v1.problems import MAX_NAMED, BodyFault, RateReached, descriptions, not_found, problem_answer


def told(error: errors.HeadgateError | BodyFault) -> tuple[int, dict[str, str], dict[str, Any]]:
    answer = problem_answer(error)
    return int(answer.status.split()[0]), dict(answer.headers), json.loads(answer.body)


def test_a_problem_has_the_members_of_rfc_9457_and_the_parts_of_its_error() -> None:
    """`type` leads to the meaning of its code."""
    status, headers, body = told(errors.PayloadTooLarge(101, 100, "http"))
    assert (status, headers["Content-Type"]) == (413, "application/problem+json")
    assert body == {
        "type": "/api/v1/problems/payload_too_large",
        "title": "Payload too large",
        "status": 413,
        "detail": "payload of 101 bytes is above the limit of 100 bytes (http)",
        "code": "payload_too_large",
        "retry": False,
        "size": 101,
        "limit": 100,
        "where": "http",
    }


def test_a_problem_that_passes_says_when() -> None:
    """Retry-After, and for a rate the quota too."""
    status, headers, _ = told(errors.AuthorizeFailed("replay", "a.#"))
    assert (status, headers["Retry-After"]) == (503, "1")
    status, headers, body = told(RateReached("read_per_s", 0.5, 10, 3.2))
    assert (status, headers["Retry-After"], body["retry_after_s"], body["code"]) == (429, "4", 4, "limit_reached")
    assert headers["RateLimit-Policy"] == '"read_per_s";q=10;w=20'
    assert headers["RateLimit"] == '"read_per_s";r=0;t=4'


@pytest.mark.parametrize(
    ("error", "status", "retry_after"),
    [
        (errors.InvalidTopic("a..b", "empty word"), 400, None),
        (errors.BusUnavailable("gone"), 503, "1"),
        (errors.BusRefused("OOM"), 502, None),
        (errors.LimitReached("x", 1, 7), 429, "7"),
        (errors.LimitReached("failed_logins", 100, 7), 429, "7"),
        (errors.LimitReached("x", 1), 409, None),
    ],
)
def test_an_error_of_the_tree_has_its_status_and_the_words_of_the_wire(
    error: errors.HeadgateError, status: int, retry_after: str | None
) -> None:
    """The same code and parts as there."""
    answered, headers, body = told(error)
    assert (answered, headers.get("Retry-After")) == (status, retry_after)
    wire = error.to_wire()
    assert body.items() >= {"detail": wire.pop("message"), **wire}.items()


def test_an_error_of_the_bus_does_not_name_its_address() -> None:
    """As on the wire."""
    assert "10.1.2.3" not in json.dumps(told(errors.BusUnavailable("10.1.2.3 did not answer", shown="no answer"))[2])


def test_one_fault_in_a_body_is_that_error_with_its_place() -> None:
    """422, also where the error alone would be 400; other statuses stay."""
    status, _, body = told(BodyFault([("/topic", errors.InvalidTopic("a..b", "empty word"))]))
    assert (status, body["code"], body["errors"][0]["pointer"], body["errors"][0]["code"]) == (
        422,
        "invalid_topic",
        "/topic",
        "invalid_topic",
    )
    assert told(BodyFault([("/data", errors.SchemaViolation("a", "#", [], "no"))]))[0] == 422
    assert told(BodyFault([("/data", errors.PayloadTooLarge(2, 1, "http"))]))[0] == 413


def test_several_faults_are_all_named_to_a_bound() -> None:
    """Each with its place and its code; all are counted."""
    faults = [(f"/events/{at}/topic", errors.InvalidTopic("", "no word")) for at in range(MAX_NAMED + 1)]
    status, _, body = told(BodyFault(faults))
    assert (status, body["code"], body["refused"], len(body["errors"])) == (422, "batch_refused", MAX_NAMED + 1, MAX_NAMED)
    assert body["errors"][3] | {"detail": ""} == {
        "pointer": "/events/3/topic",
        "code": "invalid_topic",
        "detail": "",
        "retry": False,
        "topic": "",
        "reason": "no word",
    }


@pytest.mark.parametrize(
    ("said", "pointer"),
    [
        ("Expected `str`, got `int` - at `$.events[3].topic`", "/events/3/topic"),
        ("Object missing required field `data`", "/data"),
        ("Object missing required field `data` - at `$.events[0]`", "/events/0/data"),
        ("Object contains unknown field `a/b~c`", "/a~1b~0c"),
        ("Expected `object`, got `array`", ""),
    ],
)
def test_the_place_of_a_fault_is_a_json_pointer(said: str, pointer: str) -> None:
    """It is derived from msgspec's message."""
    assert pointer_of(said)[0] == pointer


def test_a_name_of_no_text_is_escaped_once() -> None:
    """Both where a person reads it and where a program does."""
    error = not_found("session", "a\0")
    assert (error.message, error.parts["name"]) == ("there is no session 'a\\x00' (any more)", "a\\x00")


def test_every_code_is_described_where_its_type_leads(dev: FlaskClient) -> None:
    """In one sentence or so; an unknown one is 404."""
    for code, (status, meaning) in descriptions().items():
        answer = dev.get(f"/api/v1/problems/{code}")
        assert answer.get_json() == {"code": code, "status": status, "meaning": meaning}
        assert "\n" not in meaning
    some = {"bus_unavailable", "unauthorized", "forbidden", "limit_reached", "batch_refused", "not_acceptable"}
    assert some <= descriptions().keys()
    assert dev.get("/api/v1/problems/none").status_code == 404
