"""`headgate token` and `headgate revoke`: a token that the same settings accept, and one clear line for each fault."""

from typing import Any

import jwt
import pytest
from click.testing import CliRunner, Result

from headgate.auth.tokens import Tokens
from headgate.cli.main import main
from headgate.services.clients import Reached
from headgate.settings.settings import Settings

SECRET = "a secret of the tests, 0123456789abcdef"


def run(*arguments: str, secret: str | None = SECRET) -> Result:
    return CliRunner().invoke(main, ["token", *arguments], env={"HEADGATE_TOKEN_SECRET": secret, "HEADGATE_PORT": "no port"})


def test_a_token_says_who_may_do_what_and_for_how_long() -> None:
    """Only the settings of tokens count, and a fault in another one is not its business."""
    result = run("--user", "ana", "--subscribe", "orders.#", "--publish", "chat.{sub}", "--namespace", "shop", "--ttl", "15m")
    assert (result.exit_code, result.stderr) == (0, "")

    tokens = Tokens.configured(Settings(token_secret=SECRET))
    assert tokens is not None
    identity = tokens.verify(result.stdout.strip())
    assert (identity.user, identity.subscribe, identity.publish) == ("ana", ("orders.#", "users.ana.#"), ("chat.ana",))
    assert identity.namespaces == ("shop",)


@pytest.mark.parametrize(
    ("arguments", "secret", "says"),
    [
        (("--user", "ana"), None, "no secret to sign with"),
        (("--user", "ana"), "weak", "HEADGATE_TOKEN_SECRET"),
        (("--user", "ana"), "weak", "at least 32 bytes"),
        (("--user", "ana", "--kid", "another"), SECRET, "no key 'another'"),
        (("--user", "a\nb", "--subscribe", "{sub}"), SECRET, "none of them a control character"),
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


class Clients:
    """Two clients of which it notes the wishes; `silent` are the gateways that do not answer."""

    silent: tuple[str, ...] = ()
    wishes: list[tuple[str, dict[str, Any]]] = []  # noqa: RUF012  # emptied before each test

    def __init__(self, redis_url: str | None) -> None:
        """There is nothing to open."""

    def regrant(self, user: str, **wish: Any) -> Reached:
        self.wishes.append((user, wish))
        return Reached(2, self.silent)

    def close(self) -> None:
        """There is nothing to close."""


@pytest.fixture
def clients(monkeypatch: pytest.MonkeyPatch) -> type[Clients]:
    monkeypatch.setattr("headgate.services.clients.Clients", Clients)
    monkeypatch.setattr(Clients, "silent", ())
    Clients.wishes.clear()
    return Clients


@pytest.mark.parametrize(
    ("words", "subscribe", "publish"),
    [
        ((), None, None),
        (("--nothing",), (), ()),
        (("--subscribe", "a.#", "--subscribe", "b"), ("a.#", "b"), ()),
        (("--publish", "c"), (), ("c",)),
    ],
)
def test_a_regrant_without_patterns_asks_the_source_and_one_with_patterns_sets_them(
    clients: type[Clients], words: tuple[str, ...], subscribe: object, publish: object
) -> None:
    """No pattern is not the same as none at all."""
    result = CliRunner().invoke(main, ["regrant", "ana", "--for", "2h", *words])
    assert (result.stdout, result.exit_code) == ("checked the grants of 2 clients again\n", 0)
    ((user, wish),) = clients.wishes
    assert (user, wish["subscribe"], wish["publish"], wish["for_s"]) == ("ana", subscribe, publish, 7200)


def test_a_regrant_that_a_gateway_has_not_answered_is_a_fault(clients: type[Clients], monkeypatch: pytest.MonkeyPatch) -> None:
    """Its clients may have the old grants."""
    monkeypatch.setattr(clients, "silent", ("web1/7",))
    result = CliRunner().invoke(main, ["regrant", "ana"])
    assert (result.stderr, result.exit_code) == ("headgate: web1/7 did not answer in time\n", 1)
    assert CliRunner().invoke(main, ["regrant", "ana", "--nothing", "--publish", "a"]).exit_code == 2
