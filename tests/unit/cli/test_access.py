"""`headgate token`: a token that the gateway of the same settings takes."""

from __future__ import annotations

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
        (("--user", "ana", "--kid", "another"), SECRET, "another"),
    ],
)
def test_without_a_secret_there_is_one_clear_error(arguments: tuple[str, ...], secret: str | None, says: str) -> None:
    """Exit code 1; the secret is not shown."""
    result = run(*arguments, secret=secret)
    assert (result.exit_code, result.stdout) == (1, "")
    assert says in result.stderr
    assert SECRET not in result.stderr


@pytest.mark.parametrize("arguments", [(), ("--user", "ana", "--ttl", "soon")])
def test_wrong_usage_is_exit_code_2(arguments: tuple[str, ...]) -> None:
    """As every command line does."""
    assert run(*arguments).exit_code == 2
