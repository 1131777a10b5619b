"""`headgate who-can`: every grant, key and consumer that may see a pattern. On a small Redis, with files of the test's own."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from headgate.auth.regrants import store
from headgate.cli.main import main
from headgate.redis.api_keys import StoredKey, add
from tests.support.small_redis import SmallRedis

SECRET = "a secret of the tests, 0123456789abcdef"
FILE = """
[settings]
namespaces = "shop,chat"
anonymous_subscribe = "news.#,orders.*.public"

[consumers.on-call]
type = "webhook"
patterns = ["orders.*.failed"]
url = "https://example.com/"
secret = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3"

[consumers.archive]
type = "webhook"
patterns = ["orders.#", "stock.#"]
url = "https://example.com/"
secret = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3"

[consumers.talk]
type = "webhook"
namespace = "chat"
patterns = ["#"]
url = "https://example.com/"
secret = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3"
"""


@pytest.fixture
def redis(server: SmallRedis, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> SmallRedis:
    """The Redis that the command finds, in a folder with the file above."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "headgate.toml").write_text(FILE)
    return server


def run(*words: str, **environment: str) -> Result:
    return CliRunner().invoke(main, ["who-can", *words], env=environment)


def seers(*words: str, **environment: str) -> list[tuple[str, str, list[str], str]]:
    result = run("--json", *words, **environment)
    assert result.exit_code == 0, result.stderr
    found = [json.loads(line) for line in result.stdout.splitlines()]
    return [(each["kind"], each["name"], each["patterns"], each["sees"]) for each in found]


def test_grants_keys_and_consumers_are_listed_with_what_they_see(redis: SmallRedis) -> None:
    """All of the pattern, or a part of it; those that see nothing of it are not there."""
    store(redis.client(), "ana", ("orders.7.failed", "a.#"), ("orders.#",), 60)
    store(redis.client(), "ben", ("#",), (), 60)
    store(redis.client(), "eve", ("a.#",), (), 60)
    for key_id, scopes, namespaces in (
        ("k1", ("read:orders.#", "publish:#"), None),
        ("k2", ("publish:orders.#", "clients"), None),
        ("k3", ("admin",), ("chat",)),
        ("k4", ("read:#",), ("chat",)),
        ("k5", ("read:orders.*.failed",), ("*",)),
    ):
        add(redis.client(), StoredKey(key_id, "a service", scopes, "", 0, namespaces=namespaces))
    assert seers("orders.*.failed") == [
        ("regrant", "ana", ["orders.7.failed"], "part"),
        ("regrant", "ben", ["#"], "all"),
        ("key", "k1 (a service)", ["orders.#"], "all"),
        ("key", "k3 (a service)", ["#"], "all"),
        ("key", "k5 (a service)", ["orders.*.failed"], "all"),
        ("consumer", "on-call", ["orders.*.failed"], "all"),
        ("consumer", "archive", ["orders.#"], "all"),
    ]


def test_the_operators_key_is_listed_and_an_expired_one_is_not(redis: SmallRedis) -> None:
    """The first sees everything over HTTP, the second nothing any more."""
    add(redis.client(), StoredKey("k1", "a service", ("read:x",), "", 0, expires_s=1))
    assert seers("x", HEADGATE_ADMIN_KEY=SECRET.replace(" ", "-")) == [("key", "HEADGATE_ADMIN_KEY", ["#"], "all")]


def test_the_anonymous_see_what_the_settings_let_them(redis: SmallRedis) -> None:
    """In their namespaces; in development everything."""
    assert seers("orders.1.public")[0] == ("anonymous", "anyone without a token", ["orders.*.public"], "all")
    assert seers("orders.#")[0] == ("anonymous", "anyone without a token", ["orders.*.public"], "part")
    assert [kind for kind, *_ in seers("orders.1.public", "--namespace", "chat")] == ["consumer"]
    assert seers("a", HEADGATE_DEV="1", HEADGATE_ANONYMOUS_SUBSCRIBE="")[0][:2] == (
        "development",
        "anyone who reaches the gateway",
    )


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("users.ana.mail", ("own topics", "ana", ["users.ana.#"], "all")),
        ("users.ana.#", ("own topics", "ana", ["users.ana.#"], "all")),
        ("users.*.mail", ("own topics", "every user", ["users.*.#"], "part")),
        ("#", ("own topics", "every user", ["users.*.#"], "part")),
    ],
)
def test_users_see_the_topics_of_their_own(redis: SmallRedis, pattern: str, expected: tuple[Any, ...]) -> None:
    """Of a pattern over several users each sees a part."""
    assert expected in seers(pattern)


def test_what_only_a_login_shows_is_said(redis: SmallRedis) -> None:
    """There is no list of the tokens that were signed."""
    assert ("token", "anyone with a token whose `subscribe` covers it", [], "claims") in seers("x", HEADGATE_TOKEN_SECRET=SECRET)
    result = run("stock.1")
    assert result.stdout == "consumer: archive: all of it through stock.#\n"
    assert "authenticator decides at each login" in result.stderr


def test_it_works_without_a_file_and_without_consumers(redis: SmallRedis, tmp_path: Path) -> None:
    """The environment has the settings then."""
    (tmp_path / "headgate.toml").write_text('[settings]\nanonymous_subscribe = "a"\n')
    assert seers("a") == [("anonymous", "anyone without a token", ["a"], "all")]
    (tmp_path / "headgate.toml").unlink()
    assert seers("a", HEADGATE_ANONYMOUS_SUBSCRIBE="a") == [("anonymous", "anyone without a token", ["a"], "all")]
