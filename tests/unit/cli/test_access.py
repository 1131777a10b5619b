"""`headgate token` and `headgate revoke`: a token that the same settings accept, and one clear line for each fault."""

from __future__ import annotations

import jwt
import pytest
from click.testing import CliRunner, Result

from headgate.auth.tokens import Tokens
from headgate.cli.main import main
from headgate.settings import Settings

SECRET = "a secret of the tests, 0123456789abcdef"


def run(*arguments: str, secret: str | None = SECRET) -> Result:
    return CliRunner().invoke(main, ["token", *arguments], env={"HEADGATE_TOKEN_SECRET": secret, "HEADGATE_PORT": "no port"})


def test_a_token_says_who_may_do_what_and_for_how_long() -> None:
    """Only the settings of tokens count: a fault in another one is not its business."""
    result = run("--user", "ana", "--subscribe", "orders.#", "--publish", "chat.{sub}", "--namespace", "shop", "--ttl", "15m")
    assert (result.exit_code, result.stderr) == (0, "")

    tokens = Tokens.configured(Settings(token_secret=SECRET))
    assert tokens is not None
    identity = tokens.verify(result.stdout.strip())
    assert (identity.user, identity.subscribe, identity.publish) == ("ana", ("orders.#",), ("chat.ana",))
    assert identity.namespaces == ("shop",)


@pytest.mark.parametrize(
    ("arguments", "secret", "says"),
    [
        (("--user", "ana"), None, "no secret to sign with"),
        (("--user", "ana"), "weak", "HEADGATE_TOKEN_SECRET"),
        (("--user", "ana"), "weak", "at least 32 bytes"),
        (("--user", "ana", "--kid", "another"), SECRET, "no key 'another'"),
        (("--user", "a.b", "--subscribe", "{sub}"), SECRET, "{sub} stands for one word"),
        (("--user", "a", "--subscribe", "a..b"), SECRET, "a granted pattern is not a pattern"),
    ],
)
def test_a_token_that_cannot_be_made_is_one_clear_line(arguments: tuple[str, ...], secret: str | None, says: str) -> None:
    """Exit code 1; the secret is not shown."""
    result = run(*arguments, secret=secret)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("headgate: ")
    assert says in result.stderr
    assert "Traceback" not in result.stderr
    assert SECRET not in result.stderr


@pytest.mark.parametrize("asked", [(), ("audit",), ("notifications", "audit")])
def test_a_token_names_the_namespaces_that_were_asked_for(asked: tuple[str, ...]) -> None:
    """`--namespace`, once for each; without it the token has no such claim, and is for the gateway's first."""
    words = [word for name in asked for word in ("--namespace", name)]
    result = run("--user", "ana", *words)
    claims = jwt.decode(result.stdout.strip(), SECRET, ["HS256"], audience="headgate")
    assert claims.get("namespaces") == (list(asked) or None)


@pytest.mark.parametrize("arguments", [(), ("--user", "a", "--token-id", "b")])
def test_a_revocation_names_either_a_user_or_a_token(arguments: tuple[str, ...]) -> None:
    """It is refused before Redis is asked: nobody listens at the address."""
    result = CliRunner().invoke(main, ["revoke", "--redis", "redis://127.0.0.1:1", *arguments])
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("headgate: ")
    assert "either a user or a token id" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("arguments", [(), ("--user", "ana", "--ttl", "soon")])
def test_wrong_usage_is_exit_code_2(arguments: tuple[str, ...]) -> None:
    """As every command line does."""
    assert run(*arguments).exit_code == 2
