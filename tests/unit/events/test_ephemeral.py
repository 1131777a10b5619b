"""The message of an ephemeral event: reading, and refusals."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.errors import HeadgateError, NotSerializable, PayloadTooLarge
from headgate.events.event import Event, decode_message, encode_ephemeral
from headgate.events.sender import read_sender, sender_word


@given(st.from_regex(r"[A-Za-z0-9_.:~-]{1,128}", fullmatch=True), st.text(min_size=1, max_size=140), st.booleans())
def test_an_ephemeral_event_is_read_as_it_was_sent(event_id: str, user: str, shown: bool) -> None:
    """It has no place in the log, the time of the gateway, and the sender only where allowed."""
    word = sender_word(user, shown=shown)
    assert decode_message("a.b", encode_ephemeral(event_id, word, b"[1]"), 9, 7) == Event(
        "a.b", b"[1]", event_id, 7, by=read_sender(word)
    )


@pytest.mark.parametrize(
    "message",
    [
        b"hg0 ",
        b"hg0 a -",
        b"hg0 a\n1",
        b"hg0 a ana\n1",
        b"hg0 a =\n1",
        b"hg0 a - -\n1",
        b"hg0 \xe9 -\n1",
        b"hg0 " + b"a" * 129 + b" -\n1",
    ],
)
def test_a_header_of_another_form_is_refused(message: bytes) -> None:
    """Nothing else than an id and a sender stands there."""
    with pytest.raises(HeadgateError, match="header"):
        decode_message("a.b", message, 99, 0)


def test_its_data_is_checked_as_any_other() -> None:
    """Size first, then JSON."""
    with pytest.raises(PayloadTooLarge):
        decode_message("a.b", encode_ephemeral("a", "", b"[1,2,3]"), 6, 0)
    with pytest.raises(NotSerializable):
        decode_message("a.b", encode_ephemeral("a", "", b"[1,"), 6, 0)
