"""`headgate token`: a token that the same settings accept, and one clear line for each fault."""

import jwt
import pytest
from click.testing import CliRunner, Result

from headgate.auth.tokens import Tokens
from headgate.cli.main import main
from headgate.settings.settings import Settings

SECRET = "a secret of the tests, 0123456789abcdef"


def run(*arguments: str, secret: str | None = SECRET) -> Result:
    return CliRunner().invoke(main, ["token", *arguments], env={"HEADGATE_TOKEN_SECRET": secret, "HEADGATE_PORT": "no port"})


def test_a_token_says_who_may_do_what_and_for_how_long() -> None:
    """Only the settings of tokens count, and a fault in another one is not its business."""
    grants = ("--subscribe", "orders.#", "--publish", "chat.{sub}", "--namespace", "shop", "--namespace", "b")
    result = run("--user", "ana", *grants, "--ttl", "15m")
    assert (result.exit_code, result.stderr) == (0, "")

    tokens = Tokens.configured(Settings(token_secret=SECRET))
    assert tokens is not None
    claims = jwt.decode(run("--user", "ana").stdout.strip(), SECRET, ["HS256"], audience="headgate")
    assert "namespaces" not in claims  # it is for the gateway's first
    identity = tokens.verify(result.stdout.strip())
    assert (identity.user, identity.subscribe, identity.publish) == ("ana", ("orders.#", "users.ana.#"), ("chat.ana",))
    assert identity.namespaces == ("shop", "b")


@pytest.mark.parametrize(
    ("arguments", "secret", "says"),
    [
        (("--user", "ana"), None, "no secret to sign with"),
        (("--user", "ana"), "weak", "HEADGATE_TOKEN_SECRET"),
        (("--user", "ana"), "weak", "at least 32 bytes"),
        (("--user", "ana", "--kid", "another"), SECRET, "no key 'another'"),
        (("--user", "a\nb", "--subscribe", "{sub}"), SECRET, "none of them a control character"),
        (("--user", "a", "--subscribe", "a..b"), SECRET, "not a pattern: subscribe, words are ASCII letters"),
    ],
)
def test_a_token_that_cannot_be_made_is_one_clear_line(arguments: tuple[str, ...], secret: str | None, says: str) -> None:
    result = run(*arguments, secret=secret)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("headgate: ")
    assert says in result.stderr
    assert "Traceback" not in result.stderr
    assert SECRET not in result.stderr
