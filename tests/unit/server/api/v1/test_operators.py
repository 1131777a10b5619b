"""Keys, pauses and namespaces over /api/v1, on a small Redis in this process."""

from collections.abc import Callable
from typing import Any

import pytest
from flask.testing import FlaskClient
from structlog.testing import capture_logs

from headgate.auth.identity import Identity
from headgate.redis import api_keys
from headgate.settings.settings import Settings
from headgate_server.api.v1.services import Services
from tests.support.api_client import api_client
from tests.support.recording_gate import RecordingGate
from tests.support.small_redis import SmallRedis

NOW_S = 1_800_000_000.0
As = Callable[..., FlaskClient]


@pytest.fixture
def server() -> SmallRedis:
    return SmallRedis()


@pytest.fixture
def with_scopes(gate: RecordingGate, server: SmallRedis) -> As:
    """Make a client for a caller with a key with scopes, for some namespaces, that ends at some time."""

    def make(*scopes: str, **more: Any) -> FlaskClient:
        gate.identity = Identity("\0key:k1", scopes=scopes, **more)
        return api_client(Services(gate, Settings(namespaces=("notifications", "other")), server.client, lambda: NOW_S))

    return make


def test_a_key_is_made_listed_and_revoked(with_scopes: As, server: SmallRedis) -> None:
    """Its secret is in the first answer only; each step is audited with the name of the key that did it."""
    client = with_scopes("keys:write", "publish:orders.#", "clients", namespaces=("other",))
    wanted = {"name": "billing", "scopes": ["publish:orders.*", "clients"], "namespaces": ["other"], "ttl_s": 60.0}
    with capture_logs() as lines:
        made = client.post("/api/v1/keys", json=wanted)
        assert made.status_code == 201
        key, secret = made.get_json()["key"], made.get_json()["secret"]
        assert secret.startswith(f"hgk_{key['id']}_")
        assert (key["scopes"], key["namespaces"], key["created_by"]) == (["publish:orders.*", "clients"], ["other"], "key k1")
        assert key["expires"] == key["created"] + 60
        listed = client.get("/api/v1/keys")
        assert listed.get_json() == {"keys": [key]}
        assert secret.rpartition("_")[2] not in listed.text
        assert [client.delete(f"/api/v1/keys/{key['id']}").status_code for _ in range(2)] == [204, 404]
    assert [(line["event"], line["by"]) for line in lines] == [("key made", "key k1"), ("key revoked", "key k1")]
    assert api_keys.find_all(server.client()) == []


@pytest.mark.parametrize(
    ("wanted", "status", "told"),
    [
        *(({"scopes": [scope]}, 403, scope) for scope in ("admin", "publish:#", "clients:write")),
        *(({"namespaces": [name]}, 422, "/namespaces/0") for name in ("notifications", "*", "a b")),
        ({"namespaces": None}, 422, "/namespaces"),
        *(({"ttl_s": ttl_s}, 422, "/ttl_s") for ttl_s in (101, 60.5, "60", True, 1e300, None)),
        *(({"scopes": scopes}, 422, "/scopes") for scopes in (["everything"], [])),
        ({"name": " a"}, 422, "/name"),
    ],
)
def test_no_key_makes_one_that_may_do_more_or_longer(
    with_scopes: As, server: SmallRedis, wanted: dict[str, Any], status: int, told: str
) -> None:
    """403 with the scope, 422 with the place in the body; nothing is made."""
    client = with_scopes("keys:write", "publish:orders.#", "clients", namespaces=("other",), expires_at=NOW_S + 100)
    body = {"name": "a", "scopes": ["publish:orders.1", "clients"], "namespaces": ["other"], "ttl_s": 100, **wanted}
    answer = client.post("/api/v1/keys", json=body)
    assert answer.status_code == status, answer.text
    problem = answer.get_json()
    assert problem["scope" if status == 403 else "errors"] == told or problem["errors"][0]["pointer"] == told
    assert api_keys.find_all(server.client()) == []


@pytest.mark.parametrize(("of_maker", "of_key"), [(("notifications", "other"), ["notifications"]), (None, None)])
def test_a_key_that_names_no_namespace_is_for_none_that_its_maker_may_not_enter(
    with_scopes: As, of_maker: tuple[str, ...] | None, of_key: list[str] | None
) -> None:
    """The first of each gateway is another one elsewhere. Only a maker for that one makes such a key."""
    client = with_scopes("keys:write", "read:#", namespaces=of_maker)
    made = client.post("/api/v1/keys", json={"name": "a", "scopes": ["read:#"]})
    assert (made.status_code, made.get_json()["key"]["namespaces"]) == (201, of_key)


def test_an_admin_makes_any_key_but_for_what_is_no_name_of_a_namespace(with_scopes: As) -> None:
    """For every namespace, without an end; one of another gateway may be elsewhere. The fault of a name has its place."""
    client = with_scopes("admin", namespaces=("*",))
    wanted = {"name": "console", "scopes": ["admin"]}
    for namespaces in (["*"], ["elsewhere"]):
        answer = client.post("/api/v1/keys", json={**wanted, "namespaces": namespaces})
        key = answer.get_json()["key"]
        assert (answer.status_code, key["namespaces"], key["expires"]) == (201, namespaces, None)
    for name in ("", "a b", "\u00e9", "*a", "x" * 65):
        answer = client.post("/api/v1/keys", json={**wanted, "namespaces": ["other", name]})
        assert (answer.status_code, answer.get_json()["errors"][0]["pointer"]) == (422, "/namespaces/1"), name


def test_what_is_paused_is_listed_and_resumed(with_scopes: As, server: SmallRedis) -> None:
    """A later pause gives another end; a namespace has its name after a colon."""
    client = with_scopes("pauses:write", namespaces=("*",))
    assert client.put("/api/v1/pauses/connects", json={}).get_json() == {"what": "connects", "left_s": None}
    assert client.put("/api/v1/pauses/namespace:shop", json={"for_s": 60}).status_code == 200
    assert client.get("/api/v1/pauses").get_json()["pauses"] == [
        {"what": "connects", "left_s": None},
        {"what": "namespace:shop", "left_s": 60},
    ]
    assert [client.delete("/api/v1/pauses/connects").status_code for _ in range(2)] == [204, 404]
    for what in ("everything", "namespace:a%20b", "namespace:"):
        assert client.put(f"/api/v1/pauses/{what}", json={}).status_code == 404


def test_one_who_may_look_may_not_change(with_scopes: As) -> None:
    """Pauses and keys."""
    client = with_scopes("pauses", "keys")
    assert [client.get(f"/api/v1/{path}").status_code for path in ("pauses", "keys")] == [200, 200]
    assert client.put("/api/v1/pauses/connects", json={}).get_json()["scope"] == "pauses:write"
    assert client.delete("/api/v1/keys/0123456789").get_json()["scope"] == "keys:write"


def test_without_redis_it_says_so(with_scopes: As, server: SmallRedis) -> None:
    """503, to be tried again."""
    client = with_scopes("pauses")
    server.up = False
    answer = client.get("/api/v1/pauses")
    assert (answer.status_code, answer.headers["Retry-After"], answer.get_json()["code"]) == (503, "1", "bus_unavailable")


def test_an_act_has_connections_that_reads_cannot_take(gate: RecordingGate) -> None:
    """Readers that hold all of theirs, or wait for a Redis without an answer, keep no operator from acting."""
    gate.identity = Identity("\0key:k1", scopes=("pauses:write",), namespaces=("*",))
    lanes = [SmallRedis(), SmallRedis()]
    opened = iter(lanes)
    client = api_client(Services(gate, Settings(), lambda: next(opened).client()))
    assert client.get("/api/v1/pauses").status_code == 200
    lanes[0].up = False
    assert client.get("/api/v1/pauses").status_code == 503
    assert client.put("/api/v1/pauses/connects", json={}).status_code == 200
    assert client.delete("/api/v1/pauses/connects").status_code == 204
    assert list(opened) == []
