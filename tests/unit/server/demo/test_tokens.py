"""The demo's tokens: good for a while, and with the secret of their server only."""

from __future__ import annotations

import pytest

from headgate.errors import Unauthorized
from headgate_server.demo import tokens as demo_tokens
from headgate_server.demo.tokens import DemoTokens

SECRET = bytes(range(32))


def test_a_token_is_good_with_its_own_secret_only() -> None:
    """The server that issued it may have ended; another secret makes it a stranger's."""
    token = DemoTokens(lambda: SECRET).issue("ana")
    assert DemoTokens(lambda: SECRET).verify(token) == "ana"
    with pytest.raises(Unauthorized, match="not one of ours"):
        DemoTokens(lambda: SECRET[::-1]).verify(token)


def test_a_token_expires(monkeypatch: pytest.MonkeyPatch) -> None:
    """One issued longer ago than its lifetime is refused, and the refusal says how to get a new one."""
    tokens = DemoTokens(lambda: SECRET)
    token = tokens.issue("ana")
    monkeypatch.setattr(demo_tokens, "TOKEN_LIFETIME_S", -1)
    with pytest.raises(Unauthorized, match="expired"):
        tokens.verify(token)
