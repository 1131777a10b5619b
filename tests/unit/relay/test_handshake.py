"""The handshake of a link, byte by byte: who may come, and what proves nothing."""

from __future__ import annotations

import pytest

from headgate.relay.handshake import MAGIC, TRANSITIONS, Awaits, Handshake, Refused, relay_key

KEY, OTHER_KEY = b"k" * 32, b"o" * 32
NAME = "AbCdEfAB"


def shake(dialer: Handshake, listener: Handshake, at_once: int = 1000) -> None:
    """Let both ends talk until they are done, in pieces."""
    to_listener, to_dialer = dialer.first, b""
    while to_listener or to_dialer:
        piece, to_listener = to_listener[:at_once], to_listener[at_once:]
        if piece:
            to_dialer += listener.receive(piece)
        piece, to_dialer = to_dialer[:at_once], to_dialer[at_once:]
        if piece:
            to_listener += dialer.receive(piece)


@pytest.mark.parametrize("at_once", [1, 7, 1000])
def test_two_ends_with_one_key_know_each_other(at_once: int) -> None:
    """However the bytes come."""
    dialer, listener = Handshake(KEY, NAME, dials=True), Handshake(KEY, NAME, dials=False)
    shake(dialer, listener, at_once)
    assert (dialer.is_over, listener.is_over, dialer.left, listener.left) == (True, True, b"", b"")


def test_what_comes_behind_the_handshake_is_left() -> None:
    """It is the link's."""
    dialer, listener = Handshake(KEY, NAME, dials=True), Handshake(KEY, NAME, dials=False)
    proof = dialer.receive(listener.receive(dialer.first))
    listener.receive(proof + b"frames")
    assert listener.left == b"frames"


def test_a_listener_with_another_key_is_refused_by_the_dialer() -> None:
    """It has been sent a nonce, and nothing else."""
    dialer, listener = Handshake(KEY, NAME, dials=True), Handshake(OTHER_KEY, NAME, dials=False)
    with pytest.raises(Refused, match="another key"):
        dialer.receive(listener.receive(dialer.first))
    assert not dialer.is_over


def test_a_dialer_with_another_key_is_refused_by_the_listener() -> None:
    """Whatever it sends as its proof, the listener's own included."""
    for proof in (bytes(32), b"x" * 32):
        listener = Handshake(KEY, NAME, dials=False)
        listener.receive(Handshake(OTHER_KEY, NAME, dials=True).first)
        with pytest.raises(Refused, match="another key"):
            listener.receive(proof)
    listener = Handshake(KEY, NAME, dials=False)
    reflected = listener.receive(Handshake(OTHER_KEY, NAME, dials=True).first)[32:]
    with pytest.raises(Refused, match="another key"):
        listener.receive(reflected)


def test_what_was_heard_once_proves_nothing_again() -> None:
    """Neither what a dialer has said, nor what a listener has answered."""
    dialer, listener = Handshake(KEY, NAME, dials=True), Handshake(KEY, NAME, dials=False)
    answer = listener.receive(dialer.first)
    proof = dialer.receive(answer)
    again = Handshake(KEY, NAME, dials=False)
    again.receive(dialer.first)
    with pytest.raises(Refused, match="another key"):
        again.receive(proof)
    with pytest.raises(Refused, match="another key"):
        Handshake(KEY, NAME, dials=True).receive(answer)


def test_another_owner_than_the_wanted_one_is_refused() -> None:
    """A port can be another process's since Redis was told."""
    with pytest.raises(Refused, match="another owner"):
        Handshake(KEY, NAME, dials=False).receive(Handshake(KEY, "AbCdEfAC", dials=True).first)


@pytest.mark.parametrize("said", [b"GET / HTTP/1.1\r\n", b"\x16\x03\x01", b"headgate-relay-2", MAGIC[:-1] + b"x" * 100])
def test_something_else_is_no_gateway(said: bytes) -> None:
    """It is refused at its first bytes."""
    with pytest.raises(Refused, match="no gateway"):
        Handshake(KEY, NAME, dials=False).receive(said)


def test_the_key_is_derived_from_what_is_set() -> None:
    """The secret of tokens is not the key of links, and a set key goes before it."""
    secret, own = "s" * 40, "r" * 40
    assert relay_key(None, None) is None
    assert relay_key(secret, None) not in (secret.encode(), relay_key(secret, own))
    assert relay_key(secret, own) == relay_key(None, own)
    assert len(relay_key(secret, None) or b"") == 32


def test_every_state_but_the_last_waits_for_a_message() -> None:
    """And leads to another."""
    assert TRANSITIONS.keys() == set(Awaits) - {Awaits.NOTHING}
