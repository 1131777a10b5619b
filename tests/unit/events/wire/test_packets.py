"""The wire: packets are what a Socket.IO decoder reads, payload bytes untouched, names as the browser's."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from socketio.packet import EVENT as SOCKETIO_EVENT
from socketio.packet import Packet

from headgate.errors import (
    BusUnavailable,
    Forbidden,
    HeadgateError,
    LimitReached,
    Overloaded,
    Paused,
    PayloadTooLarge,
    Unauthorized,
    UnauthorizedReason,
)
from headgate.events.event import Event
from headgate.events.wire import packets as protocol
from headgate.events.wire.frames import event_frame
from headgate.events.wire.packets import GapReason, Overflow, gap_body, notice_packet, ok, refused
from headgate.settings.settings import Settings

# The vectors that web/test/language/wire.test.js reads too.
ROOT = Path(__file__).resolve().parents[4]
GOLDEN = json.loads((ROOT / "tests/golden/wire.json").read_text(encoding="utf-8"))
NAMESPACE: str = GOLDEN["namespace"]
REFUSALS: dict[str, type[HeadgateError]] = {
    kind.code: kind for kind in (BusUnavailable, Forbidden, LimitReached, Overloaded, Paused, PayloadTooLarge, Unauthorized)
}

WORDS = st.text(alphabet="abcXYZ019_-", min_size=1, max_size=8)
TOPICS = st.lists(WORDS, min_size=1, max_size=8).map(".".join)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
EVENTS = st.builds(
    Event,
    topic=TOPICS,
    data=JSON.map(lambda value: json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")),
    id=st.none() | st.text(alphabet="abcXYZ019_.:~-", min_size=1, max_size=40),
    time_ms=st.integers(0, 2**48),
    epoch=st.just("0123456789abcdef"),
    offset=st.none() | st.integers(1, 2**53),
)


def event_packet(namespace: str, event: Event, *, replayed: bool = False) -> bytes:
    return event_frame(namespace.encode(), event, replayed=replayed).packet.removeprefix(b"4")


def read(packet: bytes) -> Packet:
    """Decode as python-socketio does, because the other end's reading counts, not ours."""
    return Packet(encoded_packet=packet.decode("utf-8"))


@given(EVENTS, st.booleans())
def test_an_event_packet_is_read_by_socketio_as_topic_data_and_meta(event: Event, replayed: bool) -> None:
    """A handler gets the event: topic, data, and the meta that is known."""
    packet = read(event_packet("notifications", event, replayed=replayed))
    meta: dict[str, Any] = {"id": event.id, "time": event.time_ms}
    if event.offset is not None:
        meta["offset"] = event.offset
    if replayed:
        meta["replayed"] = True
    assert (packet.packet_type, packet.namespace, packet.id) == (SOCKETIO_EVENT, "/notifications", None)
    assert packet.data == ["event", event.topic, json.loads(event.data), meta]


@pytest.mark.parametrize(
    "data",
    [b"12345678901234567890123", b"1.0", b'{"b":1,"a":2,"a":3}', b' [ 1 , "\\u00e9" ] ', '"é\u2028𝄞"'.encode(), b"1e400"],
)
def test_payload_bytes_are_copied_as_they_are(data: bytes) -> None:
    """Decoding and encoding again would change big integers, key order, spacing and escapes, and cost the hot path."""
    event = Event("orders.42", data, "a", 7, "0123456789abcdef", 3)
    assert (
        event_packet("notifications", event)
        == b'2/notifications,["event","orders.42",' + data + b',{"id":"a","time":7,"offset":3}]'
    )


@pytest.mark.parametrize(
    "name", [protocol.WELCOME, protocol.GAP, protocol.BACKPRESSURE, protocol.CURSOR, protocol.STATUS], ids=str
)
def test_a_notice_packet_is_read_by_socketio_as_name_and_body(name: str) -> None:
    """Notices have one argument, JSON of the body, text of any script included."""
    body = {"text": 'é"\\\u2028<script>', "none": None, "list": [1, 2.5, True]}
    packet = read(notice_packet("notifications", name, body))
    assert (packet.packet_type, packet.namespace, packet.data) == (SOCKETIO_EVENT, "/notifications", [name, body])


def test_acknowledgements_say_ok_or_carry_the_error() -> None:
    """A client decides by `ok` alone; the error is that of the publisher or the HTTP API."""
    assert ok(offset=3) == {"ok": True, "offset": 3}
    assert refused(Forbidden("subscribe to", "x").to_wire()) == {
        "ok": False,
        "error": {
            "code": "forbidden",
            "message": "not allowed to subscribe to 'x'",
            "retry": False,
            "action": "subscribe to",
            "name": "x",
        },
    }


def test_overflow_policies_are_listed_strongest_first() -> None:
    """Per event the strongest of the matching subscriptions wins; the order of the members is that order."""
    assert [policy.value for policy in Overflow] == ["catch_up", "latest", "drop"]


def test_no_two_messages_share_a_name() -> None:
    """Client and server listen on the same connection."""
    names = [value for name, value in vars(protocol).items() if name.isupper() and isinstance(value, str)]
    assert len(names) >= 9
    assert len(set(names)) == len(names)


def named(vectors: list[dict[str, Any]]) -> list[Any]:
    return [pytest.param(vector, id=vector["name"]) for vector in vectors]


def golden_notices(name: str) -> list[dict[str, Any]]:
    return [vector for vector in GOLDEN["notices"] if vector["message"][0] == name]


@pytest.mark.parametrize("vector", named(GOLDEN["events"]))
def test_an_event_packet_is_the_golden_one(vector: dict[str, Any]) -> None:
    """The browser's tests read the same bytes."""
    event = Event(**{**vector["event"], "data": vector["event"]["data"].encode("utf-8")})
    packet = event_packet(NAMESPACE, event, replayed=vector["replayed"])
    assert packet.decode("utf-8") == vector["packet"]
    assert read(packet).data == vector["message"]


@pytest.mark.parametrize("vector", named(GOLDEN["notices"]))
def test_a_notice_packet_is_the_golden_one(vector: dict[str, Any]) -> None:
    """The same for welcome, gap, backpressure, cursor and status."""
    name, body = vector["message"]
    assert notice_packet(NAMESPACE, name, body).decode("utf-8") == vector["packet"]


@pytest.mark.parametrize("vector", named(golden_notices("gap")))
def test_a_gap_body_is_the_golden_one(vector: dict[str, Any]) -> None:
    body = vector["message"][1]
    made = gap_body(
        body["patterns"],
        body["from"],
        body["to"],
        body["count"],
        body["bytes"],
        GapReason(body["reason"]),
        recoverable=body["recoverable"],
        epoch=body.get("epoch"),
    )
    assert made == body


def test_there_is_a_golden_gap_for_every_reason() -> None:
    """A new reason is shown to the browser's tests too."""
    assert {vector["message"][1]["reason"] for vector in golden_notices("gap")} == {reason.value for reason in GapReason}


@pytest.mark.parametrize("vector", named(golden_notices("welcome")))
def test_the_limits_of_a_golden_welcome_are_those_that_the_settings_tell(vector: dict[str, Any]) -> None:
    """A limit that one side renames would silently stop limiting the other."""
    assert vector["message"][1]["limits"] == Settings().limits()


@pytest.mark.parametrize(
    "error",
    [pytest.param(vector["reply"]["error"], id=vector["name"]) for vector in GOLDEN["requests"] if not vector["reply"]["ok"]]
    + [pytest.param(vector["data"], id=f"connect: {vector['name']}") for vector in GOLDEN["refusals"]],
)
def test_a_golden_refusal_is_what_the_error_tree_says(error: dict[str, Any]) -> None:
    """Built from the same parts, our error has the same code, text and advice."""
    says_when = (LimitReached, Overloaded, Paused)
    told = {"code", "message", "retry"} | ({"retry_after_s"} if REFUSALS[error["code"]] not in says_when else set())
    parts = {name: value for name, value in error.items() if name not in told}
    assert REFUSALS[error["code"]](**parts).to_wire() == error


def test_the_reasons_of_unauthorized_are_those_of_the_golden_list_and_of_the_page() -> None:
    """Both ends of the wire and docs/protocol.md list the same words, each once."""
    page = (ROOT / "docs/protocol.md").read_text(encoding="utf-8")
    rows = page[page.index("| reason | meaning |\n") : page.index("## Server → client")].splitlines()[2:]
    listed = [word for row in rows if row for word in re.findall(r"`(\w+)`", row.split("|")[1])]

    assert sorted(listed) == sorted(GOLDEN["unauthorized_reasons"]) == sorted(UnauthorizedReason)


@pytest.mark.parametrize("vector", named(golden_notices("status")))
def test_the_errors_inside_a_golden_status_are_what_the_error_tree_says(vector: dict[str, Any]) -> None:
    """Of a disconnected client, and of subscriptions that a refresh has ended."""
    body = vector["message"][1]
    if "unauthorized" in body:
        assert Unauthorized(body["unauthorized"]["reason"]).to_wire() == body["unauthorized"]
    for ended in body.get("ended", ()):
        assert Forbidden("subscribe to", ended["pattern"]).to_wire() == ended["error"]
