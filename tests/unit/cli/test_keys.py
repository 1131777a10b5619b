"""`headgate keys`: a key is shown once, listed without its secret, and revoked. On a small Redis in this process."""

import json
from collections.abc import Iterator, MutableMapping
from typing import Any

import pytest
from click.testing import CliRunner, Result
from structlog.testing import capture_logs

from headgate.cli.main import main
from headgate.redis import api_keys
from headgate.redis.api_keys import StoredKey
from tests.support.small_redis import SmallRedis

Lines = list[MutableMapping[str, Any]]


@pytest.fixture
def audited(monkeypatch: pytest.MonkeyPatch) -> Iterator[Lines]:
    """The lines of the log, which is not set up for this process for good."""
    monkeypatch.setattr("headgate.runtime.logging.configure", lambda level: None)
    with capture_logs() as lines:
        yield lines


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["keys", *arguments])


def test_a_key_is_shown_once_listed_and_revoked(server: SmallRedis, audited: Lines) -> None:
    """The key is all of standard output; no list has it; after the end there is none."""
    made = run("create", "billing", "--scope", "publish:orders.#", "--scope", "clients", "--namespace", "*", "--ttl", "7d")
    assert made.exit_code == 0, made.output
    key = made.stdout.strip()
    (stored,) = api_keys.find_all(server.client())
    assert key.startswith(f"hgk_{stored.id}_")
    listed = run("list")
    assert listed.stdout.startswith(f"{stored.id} billing; publish:orders.# clients; namespaces *; expires ")
    told = json.loads(run("list", "--json").stdout)
    assert (told["id"], told["scopes"], told["expires"]) == (stored.id, ["publish:orders.#", "clients"], stored.expires_s)
    secret = key.rpartition("_")[2]
    assert not any(part in listed.output + json.dumps(told) for part in (secret, stored.sha256))
    assert run("revoke", key).stdout == f"revoked key {stored.id} (billing)\n"
    assert [(line["event"], line["key"]) for line in audited] == [("key made", stored.id), ("key revoked", stored.id)]
    assert secret not in repr(audited)
    again = run("revoke", stored.id)
    assert (again.exit_code, again.stderr) == (1, f"headgate: there is no key {stored.id} (any more)\n")
    assert run("list").stderr == "there are no keys\n"


def test_an_expired_key_is_listed_as_one(server: SmallRedis) -> None:
    """It stays until it is revoked."""
    api_keys.add(server.client(), StoredKey("k1", "old", ("read:x",), "", 0, expires_s=1))
    assert run("list").stdout == "k1 old; read:x; expired 1970-01-01T00:00:01+00:00\n"


def test_a_key_as_json_has_what_a_program_needs(server: SmallRedis, audited: Lines) -> None:
    told = json.loads(run("create", "board", "--scope", "read:#", "--json").stdout)
    assert told["key"].startswith(f"hgk_{told['id']}_")
    assert (told["name"], told["namespaces"], told["expires"]) == ("board", None, None)
