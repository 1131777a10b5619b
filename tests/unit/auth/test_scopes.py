"""Scopes: their words, and which covers which."""

import pytest

from headgate.auth.scopes import MAX_SCOPES, PLAIN, Scopes, check_scope, check_scopes, patterns_of
from headgate.errors import HeadgateError


@pytest.mark.parametrize("scope", ["publish:orders.#", "read:*", "presence:rooms.7", *PLAIN])
def test_a_scope_is_one_of_a_few_words_or_one_with_a_pattern(scope: str) -> None:
    """It comes back as it is."""
    assert check_scope(scope) == scope


@pytest.mark.parametrize("scope", ["", "publish", "publish:", "publish:a..b", "write:a", "clients:read", "admin:", 7, None])
def test_any_other_word_is_refused(scope: object) -> None:
    """With an error of the tree."""
    with pytest.raises(HeadgateError):
        check_scope(scope)


def test_scopes_are_bounded_and_each_is_there_once() -> None:
    """At least one, at most MAX_SCOPES."""
    assert check_scopes(["clients", "clients", "trace"]) == ("clients", "trace")
    for count in (0, MAX_SCOPES + 1):
        with pytest.raises(HeadgateError):
            check_scopes([f"read:a.{number}" for number in range(count)])


@pytest.mark.parametrize(
    ("held", "wanted", "covered"),
    [
        ("publish:orders.#", "publish:orders.42.shipped", True),
        ("publish:orders.#", "publish:orders.*.shipped", True),
        ("publish:orders.*", "publish:orders.#", False),
        ("publish:orders.#", "read:orders.42", False),
        ("publish:#", "clients", False),
        ("clients", "clients", True),
        ("clients", "clients:write", False),
        ("clients:write", "clients", True),
        ("users:write", "clients:write", False),
        ("admin", "keys:write", True),
        ("admin", "publish:any.thing", True),
        ("admin", "admin", True),
        ("keys:write", "admin", False),
    ],
)
def test_a_scope_covers_what_it_contains(held: str, wanted: str, covered: bool) -> None:
    """Patterns contain patterns, `:write` has the word without it, `admin` has all."""
    assert Scopes((held,)).cover(wanted) is covered


def test_a_kind_is_had_with_any_pattern() -> None:
    """Before it is known which topic is asked for."""
    assert Scopes(("read:a",)).have("read")
    assert not Scopes(("read:a", "clients")).have("publish")
    assert Scopes(("admin",)).have("presence")


def test_the_patterns_of_a_kind_are_the_grants_of_an_identity() -> None:
    """Those of `admin` are all topics."""
    assert patterns_of(("publish:a", "read:b.#", "clients:write", "publish:c"), "publish") == ("a", "c")
    assert patterns_of(("admin", "read:b"), "read") == ("#",)
