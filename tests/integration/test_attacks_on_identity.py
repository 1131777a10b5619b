"""Attacks on who one is: names chosen to be wildcards, namespaces that were not granted, secrets that reach a log."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.gateway_process import GatewayProcess, StartGateway
from tests.raw_client import RawClient

ROOT = str(Path(__file__).parents[2])

Join = Callable[..., RawClient]


@pytest.fixture(scope="module")
def sign_up(start_module_gateway: StartGateway) -> GatewayProcess:
    """A gateway with two namespaces around an application whose users choose their names."""
    settings = {"PYTHONPATH": ROOT, "HEADGATE_NAMESPACES": "notifications,audit"}
    return start_module_gateway(settings, "tests.integration.sign_up_app:app")


@pytest.fixture
def join() -> Iterator[Join]:
    """Connect clients that leave with the test: `join(gateway, token, namespace, subscriptions=…)`."""
    with ExitStack() as joined:

        def join(gateway: GatewayProcess, token: str | None, namespace: str = "notifications", **auth: Any) -> RawClient:
            body = {**auth, **({"token": token} if token is not None else {})}
            client = joined.enter_context(RawClient(gateway.url, body, namespace))
            client.wait_for(lambda: client.named("welcome") or client.refusal or client.closed, "an answer to CONNECT")
            return client

        yield join


def signed_up(name: str, **options: Any) -> str:
    return json.dumps({"name": name, **options})


# Names and grants ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "own", "everyones"),
    [
        ("ana", True, False),
        ("a.b", False, False),
        ("ana@example.com", False, False),
        ("x*", False, False),
    ],
)
def test_every_user_has_own_topics_without_a_grant_and_nobody_elses(
    sign_up: GatewayProcess, join: Join, name: str, own: bool, everyones: bool
) -> None:
    """The gateway grants them itself, for an application's authenticator as for a token."""
    asked = [{"pattern": pattern} for pattern in (f"users.{name}.#", "users.ben.#", "users.*.#", "users.#", "orders.1")]
    client = join(sign_up, signed_up(name), subscriptions=asked)
    assert [entry["ok"] for entry in client.welcome["subscriptions"]] == [own, everyones, everyones, everyones, True]


@pytest.mark.parametrize("by_hand", [False, True])
@pytest.mark.parametrize("name", ["*", "#", "*.x", "ana.#"])
def test_a_user_who_chose_a_wildcard_for_a_name_is_not_let_in(
    sign_up: GatewayProcess, join: Join, name: str, by_hand: bool
) -> None:
    """Whether or not the authenticator puts the name into a grant by itself: `users.*.#` would be everybody's."""
    client = join(sign_up, signed_up(name, by_hand=by_hand), subscriptions=[{"pattern": "users.ben.#"}])
    assert client.refusal["data"]["code"] == "invalid_pattern"
    assert not client.named("welcome")


def test_an_authenticator_that_grants_one_text_lets_nobody_in_and_the_log_says_why(sign_up: GatewayProcess, join: Join) -> None:
    """`subscribe="ab"` would grant `a` and `b`."""
    client = join(sign_up, signed_up("ana", one_text=True))
    assert client.refusal["data"]["reason"] == "authenticator_failed"
    sign_up.wait_for_line(r"expected a list or tuple of patterns, got str 'ab'")
