"""Identity: what a client may do is exactly what its grants contain, and nothing by default."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from headgate.errors import InvalidPattern
from headgate.identity import Handshake, Identity


def test_an_identity_may_do_nothing_by_default() -> None:
    """A forgotten grant denies."""
    nobody = Identity("nobody")
    assert not nobody.may_subscribe("orders.42")
    assert not nobody.may_subscribe("#")
    assert not nobody.may_publish("orders.42")


@pytest.mark.parametrize(
    ("pattern", "allowed"),
    [
        ("orders.42.shipped", True),
        ("orders.*.shipped", True),
        ("orders.#", True),
        ("orders", True),
        ("users.ana", True),
        ("users.*", False),
        ("users.ana.mail", False),
        ("*.42.shipped", False),
        ("#", False),
        ("#.orders", False),
        ("orders2.x", False),
    ],
)
def test_a_subscription_is_allowed_only_if_a_grant_contains_the_whole_pattern(pattern: str, allowed: bool) -> None:
    """Pattern in pattern: a wildcard that also reaches outside the grant is refused whole."""
    assert Identity("ana", subscribe=("orders.#", "users.ana")).may_subscribe(pattern) is allowed


def test_grants_to_subscribe_and_to_publish_are_apart() -> None:
    """Reading does not imply writing, nor the other way round."""
    reader, writer = Identity("r", subscribe=("orders.#",)), Identity("w", publish=("orders.#",))
    assert (reader.may_subscribe("orders.1"), reader.may_publish("orders.1")) == (True, False)
    assert (writer.may_subscribe("orders.1"), writer.may_publish("orders.1")) == (False, True)


def test_grants_are_not_joined() -> None:
    """Two grants that together would cover a pattern do not: each is asked alone, so that the answer is easy to foresee."""
    both = Identity("ana", subscribe=("orders.*", "orders"))
    assert both.may_subscribe("orders.*")
    assert not both.may_subscribe("orders.#")


@pytest.mark.parametrize("grants", [{"subscribe": ("orders..x",)}, {"publish": ("orders.a*",)}, {"subscribe": ("",)}])
def test_a_grant_that_is_no_pattern_is_refused_at_once(grants: dict[str, Any]) -> None:
    """A mistake in an authenticator shows at the first connect, not as a puzzling refusal later."""
    with pytest.raises(InvalidPattern):
        Identity("ana", **grants)


def test_an_identity_cannot_be_changed() -> None:
    """Nothing can widen the grants of a live connection behind the gateway's back."""
    with pytest.raises(dataclasses.FrozenInstanceError):
        Identity("ana").subscribe = ("#",)  # type: ignore[misc]


@pytest.mark.parametrize(
    ("auth", "token"),
    [({"token": "abc"}, "abc"), ({}, None), ({"token": None}, None), ({"token": 7}, None), ({"token": ["abc"]}, None)],
)
def test_a_handshakes_token_is_a_string_or_absent(auth: dict[str, object], token: str | None) -> None:
    """An authenticator never sees a token of another type."""
    assert Handshake("notifications", auth, {}).token == token


def test_a_handshake_does_not_show_the_request_headers() -> None:
    """The WSGI environment holds cookies and the Authorization header."""
    assert "hunter2" not in repr(Handshake("notifications", {}, {"HTTP_COOKIE": "session=hunter2"}))
