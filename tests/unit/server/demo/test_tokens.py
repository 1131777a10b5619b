"""The demo's tokens: good for a while, with the secret of their server only, and for the orders."""

from typing import Any

import pytest

from headgate.auth.identity import Handshake
from headgate.errors import Unauthorized
from headgate.settings.settings import Settings
from headgate_server.demo import tokens as tokens_module
from headgate_server.demo.tokens import demo_authenticator, demo_tokens, issue

SECRET = bytes(range(32))


def test_a_token_is_good_with_its_own_secret_only() -> None:
    """The server that issued it may have ended; a server with another secret refuses it."""
    token = issue(demo_tokens(lambda: SECRET)(), "ana")
    assert demo_tokens(lambda: SECRET)().verify(token).user == "ana"
    with pytest.raises(Unauthorized, match="signature"):
        demo_tokens(lambda: SECRET[::-1])().verify(token)


def test_a_token_expires(monkeypatch: pytest.MonkeyPatch) -> None:
    """One issued longer ago than its lifetime is refused."""
    monkeypatch.setattr(tokens_module, "TOKEN_LIFETIME_S", -1)
    tokens = demo_tokens(lambda: SECRET)()
    with pytest.raises(Unauthorized, match="expired"):
        tokens.verify(issue(tokens, "ana"))


def test_the_authenticator_grants_orders_and_the_users_own_messages() -> None:
    """A pattern in a grant is allowed, and nothing beyond. There are neither another user's messages nor publishing."""
    tokens = demo_tokens(lambda: SECRET)
    found = demo_authenticator(tokens, Settings())(Handshake("notifications", {"token": issue(tokens(), "ana")}, {}))
    assert found is not None
    ana = found.with_own_topics()
    assert ana.user == "ana"
    assert all(map(ana.may_subscribe, ("orders.#", "orders.*.shipped", "users.ana.#")))
    assert not any(map(ana.may_subscribe, ("#", "users.ben.#", "users.#", "*.42.shipped")))
    assert not ana.may_publish("orders.42.shipped")


@pytest.mark.parametrize("auth", [{}, {"token": ""}, {"token": "forged"}, {"token": 7}], ids=str)
@pytest.mark.parametrize("dev", [False, True])
def test_the_authenticator_refuses_bad_tokens(auth: dict[str, Any], dev: bool) -> None:
    """Development lets a client without a token in, but none with a bad one."""
    authenticate = demo_authenticator(demo_tokens(lambda: SECRET), Settings(dev=dev))
    if dev and not auth:
        identity = authenticate(Handshake("notifications", auth, {}))
        assert identity is not None
        assert identity.may_subscribe("#")
    else:
        with pytest.raises(Unauthorized):
            authenticate(Handshake("notifications", auth, {}))
