"""The word of a sender: which users it may show, and that it is never another user's."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headgate.auth.api_keys import shown_name
from headgate.errors import HeadgateError
from headgate.events.event import decode_message
from headgate.events.sender import MAX_LENGTH, operators_name, read_sender, sender_word

NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=140)
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@given(NAMES, st.booleans())
@example("=ana", False)
@example("=ana", True)
@example("a" * 127, True)
@example("a" * 128, True)
@example("é" * 22, True)
def test_a_word_shows_its_own_user_or_none(user: str, shown: bool) -> None:
    """A name that is cut, or hidden, shows no user; operators read as much of it as there is."""
    word = sender_word(user, shown=shown)

    assert 0 < len(word) <= MAX_LENGTH
    assert all("!" <= each <= "~" for each in word)
    assert read_sender(word) in ((user, None) if shown else (None,))
    if len(word) < MAX_LENGTH:
        assert operators_name(word) == user


@pytest.mark.parametrize(
    ("user", "shown"), [("ana", "ana"), ("ana@example.org", "ana@example.org"), ("Ana Müller", "Ana Müller"), ("x" * 128, None)]
)
def test_users_of_up_to_127_characters_are_shown(user: str, shown: str | None) -> None:
    """A longer word could be cut to that of another user."""
    assert read_sender(sender_word(user, shown=True)) == shown


def test_an_api_key_is_no_user() -> None:
    """Its account has a character that no user's name has, so no client takes it for a user."""
    account = "\0key:abc"
    assert shown_name(account) != account
    assert read_sender(sender_word(account, shown=True)) is None


@pytest.mark.parametrize("origin", [PARENT, f"{PARENT} =ana", "- =ana"])
def test_a_header_ends_with_a_trace_a_sender_or_both(origin: str) -> None:
    event = decode_message("a.b", f"hg1 0123456789abcdef 7 9 x:1 {origin}\n1".encode(), 99, 0)
    assert (event.traceparent, event.by) == (PARENT if PARENT in origin else None, "ana" if "=" in origin else None)


@pytest.mark.parametrize(
    "origin",
    ["", "-", "=ana", "- ana", "- =", "- = ", f"{PARENT} ana", f"{PARENT}  =ana", "- =ana =bob", "- =\xe9", "- =" + "x" * 128],
)
def test_a_header_that_ends_otherwise_is_malformed(origin: str) -> None:
    """The gateway reads such an event from the log instead."""
    with pytest.raises(HeadgateError, match="header"):
        decode_message("a.b", f"hg1 0123456789abcdef 7 9 x:1 {origin}\n1".encode("latin-1"), 99, 0)
