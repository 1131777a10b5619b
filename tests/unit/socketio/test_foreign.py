"""The look at an event of another process: it has the event's receivers exactly when its JSON does."""

import json
from typing import Any

import pytest
import socketio
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.socketio.foreign import TAIL_BYTES, destination_of

EXAMPLES = 40
TEXT = st.text(max_size=20) | st.sampled_from(['"room": "x"', '"namespace": "/"', "\\", '"}', "[]", "{", "é\n"])
SID = st.text(st.characters(codec="ascii"), max_size=20)
SCALAR = st.none() | st.booleans() | st.integers() | TEXT
FORGED = {"namespace": "/", "room": "x", "skip_sid": None, "callback": None, "host_id": "h"}
DATA = st.recursive(
    SCALAR | st.just(FORGED), lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3)
)


class Publishing(socketio.PubSubManager):  # type: ignore[misc]
    """Records the events that it would publish."""

    def __init__(self) -> None:
        super().__init__(write_only=True)
        self.published: list[dict[str, Any]] = []

    def _publish(self, message: dict[str, Any]) -> None:
        self.published.append(message)


def message_of(**options: Any) -> dict[str, Any]:
    """Return the message of an emit, as python-socketio makes it."""
    manager = Publishing()
    manager._handle_emit = lambda message: None
    manager.emit("event", options.pop("data", 1), **options)
    return manager.published[0]


@pytest.mark.no_cover
@settings(max_examples=EXAMPLES)
@given(
    DATA,
    st.text(max_size=10),
    st.none() | TEXT | st.integers() | st.lists(TEXT, max_size=3),
    st.none() | SID | st.lists(SID, max_size=3),
)
def test_it_says_what_the_json_says_or_nothing(data: Any, namespace: str, room: Any, skip_sid: Any) -> None:
    """Whatever the data, which may look like such an end itself."""
    message = message_of(data=data, namespace="/" + namespace, room=room, skip_sid=skip_sid)
    for encoded in (json.dumps(message), json.dumps(message).encode(), json.dumps(message, ensure_ascii=False).encode()):
        said = destination_of(encoded)
        assert said is None or said == (message["namespace"], message["room"], message["host_id"])
        if isinstance(room, str | None) and len(encoded) < TAIL_BYTES:
            assert said is not None


@pytest.mark.no_cover
@settings(max_examples=EXAMPLES)
@given(
    st.permutations(["method", "event", "data", "binary", "namespace", "room", "skip_sid", "callback", "host_id"]),
    DATA,
    st.booleans(),
)
def test_a_message_with_its_keys_in_another_order_is_not_misread(order: list[str], data: Any, compact: bool) -> None:
    """Another emitter's; its data may end as a message does."""
    message = message_of(data=data, room="room")
    changed = {key: message[key] for key in order} | {"callback": data}
    encoded = json.dumps(changed, separators=(",", ":") if compact else None).encode()
    said = destination_of(encoded)

    assert said is None or said == ("/", "room", message["host_id"])


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\x80\x04 pickled",
        {"method": "emit"},
        json.dumps({**message_of(room="room"), "method": "disconnect"}),
        json.dumps(message_of(room="x" * TAIL_BYTES)),
        json.dumps(message_of(room="room")).encode().replace(b'"room"', b'"\\x"', 2),
        json.dumps(message_of(room="room")).encode()[:-1],
        json.dumps(message_of(room="room")).encode().replace(b': "room"', rb': "\x"'),
        json.dumps(message_of(room="\ud800"), ensure_ascii=False),
        json.dumps(message_of(room="room")).encode() + b" ",
        json.dumps(message_of(room="room")).encode().replace(b': "room"', b': "\xff"'),
    ],
)
def test_anything_else_is_decoded_as_ever(message: object) -> None:
    """It says nothing."""
    assert destination_of(message) is None


def test_large_data_do_not_matter() -> None:
    """Only the end is examined."""
    message = message_of(data={"blob": "y" * 1_000_000}, namespace="/chat", room="lobby", skip_sid=["a", "b"])

    assert destination_of(json.dumps(message)) == ("/chat", "lobby", message["host_id"])
