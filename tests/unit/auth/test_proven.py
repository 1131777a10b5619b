"""Proven tokens: found again with the same keys, never with others, and not without bound."""

from headgate.auth.identity import Identity
from headgate.auth.tokens import MAX_PROVEN, MAX_TOKEN_BYTES, ProvenTokens

KEYS, OTHER_KEYS = object(), object()


def test_a_token_is_found_with_the_keys_that_proved_it() -> None:
    """No other token, and no part of it."""
    proven, ana = ProvenTokens(), Identity("ana")
    assert proven.get("a.b.c", KEYS) is None
    proven.add("a.b.c", KEYS, ana)
    assert proven.get("a.b.c", KEYS) is ana
    assert [proven.get(token, KEYS) for token in ("a.b", "a.b.c.", "", "a.b.c=")] == [None] * 4


def test_other_keys_prove_nothing() -> None:
    """Proofs by the keys before them are forgotten, also when those keys come back."""
    proven = ProvenTokens()
    proven.add("a.b.c", KEYS, Identity("ana"))
    assert proven.get("a.b.c", OTHER_KEYS) is None
    proven.add("d.e.f", OTHER_KEYS, Identity("bob"))
    proven.add("g.h.i", KEYS, Identity("cyd"))
    assert proven.get("a.b.c", KEYS) is None


def test_the_first_is_forgotten_when_there_are_too_many() -> None:
    """As many are kept as may be."""
    proven = ProvenTokens()
    for number in range(MAX_PROVEN + 1):
        proven.add(f"token.{number}", KEYS, Identity("ana"))
    assert [proven.get(f"token.{number}", KEYS) is not None for number in (0, 1, MAX_PROVEN)] == [False, True, True]


def test_a_token_that_is_too_large_or_no_text_that_travels_is_simply_unknown() -> None:
    """Nothing is computed of the first; the second may be anything that JSON can say."""
    proven = ProvenTokens()
    proven.add("a.b.c", KEYS, Identity("ana"))
    assert proven.get("x" * (MAX_TOKEN_BYTES + 1), KEYS) is None
    assert proven.get("\ud800", KEYS) is None
