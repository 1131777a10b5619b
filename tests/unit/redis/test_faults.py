"""Errors of redis-py and of the connection become errors of our tree: distinguished by the code of the reply, with an advice."""

import socket
import ssl

import pytest
import redis
from hypothesis import given
from hypothesis import strategies as st

from headgate import errors
from headgate.redis.faults import NO_FUNCTION, NO_PERMISSION, reason_of, translate


def reply(text: str) -> errors.HeadgateError:
    return translate(redis.ResponseError(text), "redis.example:6379")


@pytest.mark.parametrize("text", ["ERR it said NOPERM, Function not found", "ERR user NOPERM", "WEIRD Function not found"])
def test_a_word_inside_a_text_is_no_code(text: str) -> None:
    """A topic or a script's message may hold any of them."""
    error = reply(text)
    assert isinstance(error, errors.BusRefused)
    assert error.redis_code not in (NO_PERMISSION, NO_FUNCTION)


@pytest.mark.parametrize(
    ("sent", "kind", "parts"),
    [
        ('invalid_topic {"topic":"a..b","reason":"empty word"}', errors.InvalidTopic, {"topic": "a..b", "reason": "empty word"}),
        ('invalid_event {"field":"id","reason":"too long"}', errors.InvalidEvent, {"field": "id", "reason": "too long"}),
        ('payload_too_large {"size":9,"limit":8,"where":"bus"}', errors.PayloadTooLarge, {"size": 9, "limit": 8, "where": "bus"}),
        ('not_serializable {"reason":"NaN"}', errors.NotSerializable, {"reason": "NaN"}),
        ('unknown_namespace {"namespace":"x"}', errors.UnknownNamespace, {"namespace": "x", "known": []}),
        ('invalid_request {"reason":"no"}', errors.InvalidRequest, {"reason": "no"}),
    ],
)
def test_a_refusal_of_our_function_is_the_named_error(
    sent: str, kind: type[errors.HeadgateError], parts: dict[str, object]
) -> None:
    error = reply(f"HEADGATE {sent}")
    assert type(error) is kind
    assert error.parts == parts


@given(st.text(max_size=60))
def test_whatever_follows_headgate_is_an_error_of_the_tree(text: str) -> None:
    """A library of another version, or of another owner, may send anything."""
    assert isinstance(reply(f"HEADGATE {text}"), errors.HeadgateError)


def test_strangers_are_told_neither_the_address_nor_the_reason() -> None:
    """They stand in the gateway's log."""
    for error in (
        reply("OOM command not allowed"),
        reply("LOADING Redis is loading"),
        translate(TimeoutError(), "redis.example:1"),
    ):
        assert "redis.example" in error.message
        assert "redis.example" not in str(error.to_wire())
        assert "OOM" not in str(error.to_wire())


@pytest.mark.parametrize(
    ("cause", "tls", "at_first", "later"),
    [
        (socket.gaierror(-2, "Name or service not known"), False, "check the host name", "check the host name"),
        (ConnectionRefusedError(111, "Connection refused"), False, "start Redis there", "start Redis there"),
        (ConnectionResetError(104, "Connection reset by peer"), False, "check the port", "not held up"),
        (ConnectionResetError(104, "Connection reset by peer"), True, "?ssl_certfile=FILE", "not held up"),
        (PermissionError(13, "Permission denied"), False, "a user who may open that socket", "a user who may open that socket"),
        (TimeoutError(), True, "speaks TLS on this port", "not held up"),
        (TimeoutError(), False, "start Redis there", "not held up"),
    ],
)
def test_a_usual_fault_of_connecting_comes_with_an_advice(cause: OSError, tls: bool, at_first: str, later: str) -> None:
    """As the second line that a command shows. Where Redis has answered before, neither the port nor TLS is wrong."""
    for has_answered, advice in ((False, at_first), (True, later)):
        (_, line) = translate(cause, "here", tls=tls, has_answered=has_answered).lines()
        assert advice in line


def test_a_server_that_wants_a_certificate_of_its_clients_is_said() -> None:
    """Its alert comes after the handshake, so TLS works; some servers only close the connection."""
    alert = ssl.SSLError(1, "[SSL] tlsv13 alert certificate required")
    alert.reason = "TLSV13_ALERT_CERTIFICATE_REQUIRED"
    for cause, says in (
        (alert, "it accepts only clients with a certificate"),
        (ssl.SSLEOFError(8, "EOF"), "it closed the connection"),
    ):
        reason, advice = translate(cause, "here", tls=True).lines()
        assert f"here: {says}" in reason
        assert "?ssl_certfile=FILE&ssl_keyfile=FILE" in advice
    closed = redis.ConnectionError("Connection closed by server.")
    assert "?ssl_certfile=FILE" in translate(closed, "here", tls=True).lines()[1]


def test_a_server_without_room_for_another_connection_has_an_advice() -> None:
    """Its reply has no code, and redis-py takes it for a fault of the connection."""
    full = redis.ConnectionError("max number of clients reached")
    assert "raise maxclients" in translate(full, "here").lines()[1]


def test_a_fault_without_a_usual_remedy_has_no_advice() -> None:
    error = redis.ResponseError("ERR something else")
    assert len(translate(error).lines()) == 1


def test_ciphers_that_openssl_does_not_know_are_a_reason() -> None:
    """Of that fault alone Python's error has no `reason`."""
    with pytest.raises(ssl.SSLError) as caught:
        ssl.create_default_context().set_ciphers("junk")
    assert reason_of(caught.value) == "no TLS (no cipher can be selected.)"
