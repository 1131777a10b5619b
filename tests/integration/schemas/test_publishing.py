"""Events are held against schemas wherever they are published, from Python, HTTP and pages; also with those of the registry."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from prometheus_client import REGISTRY

from headgate import Publisher, SchemaViolation
from headgate.errors import HeadgateError
from headgate.redis.client import Client, call
from headgate.redis.functions import ensure_loaded
from headgate.redis.keys import log_key
from headgate.services.schemas.documents import Documents
from headgate.services.schemas.registry import change_registry, read_registry, read_version
from tests.support.gateway_here import StartGatewayHere
from tests.support.redis_recipes import make_user, users
from tests.support.schema_files import texts, write

NUMBER, TEXT = {"type": "integer"}, {"type": "string"}


def push(client: Client, schemas: dict[str, object], namespace: str = "notifications") -> Documents:
    found = texts(schemas)
    change_registry(client, namespace, lambda _: found)
    return found


def events_in(client: Client) -> int:
    return int(call(client, "XLEN", log_key("notifications")))


def test_a_page_gets_the_error_and_it_is_counted(gateway_here: StartGatewayHere, redis_client: Client, tmp_path: Path) -> None:
    """Nothing is in the log; a good event is."""
    gateway = gateway_here(dev=True, schemas=str(write(tmp_path / "s", {"a.*.json": NUMBER})), schema_check="refuse")
    page = gateway.join()
    before = REGISTRY.get_sample_value("headgate_schema_violations_total", {"namespace": "notifications"}) or 0
    answer = page.request("publish", {"topic": "a.b", "data": "secret"})
    assert answer == {
        "ok": False,
        "error": {
            "code": "schema_violation",
            "message": """data for topic 'a.b' breaks the schema of 'a.*' at $: the value is not of type "integer\"""",
            "retry": False,
            "topic": "a.b",
            "pattern": "a.*",
            "path": "$",
            "reason": 'the value is not of type "integer"',
        },
    }
    assert events_in(redis_client) == 0
    assert page.request("publish", {"topic": "a.b", "data": 1})["ok"] is True
    assert events_in(redis_client) == 1
    assert REGISTRY.get_sample_value("headgate_schema_violations_total", {"namespace": "notifications"}) == before + 1


def test_two_who_write_at_once_both_have_their_way(redis_client: Client) -> None:
    """Each change is made to the version that it has seen, or made again."""
    names = [f"{number}.json" for number in range(8)]

    def add(name: str) -> None:
        done: HeadgateError | None = None
        for _ in range(8):  # each time at least one of the competitors gets through
            try:
                change_registry(redis_client, "notifications", lambda held: texts({**_values(held), name: NUMBER}))
                return
            except HeadgateError as error:
                done = error
        raise AssertionError(done)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(add, names))
    held = read_registry(redis_client, "notifications")
    assert held is not None
    assert list(held.texts) == names
    assert read_version(redis_client, "notifications") == held.version


def _values(held: Documents) -> dict[str, object]:
    return dict(held.texts)


def test_a_publisher_needs_no_more_rights_in_redis_to_read_schemas(redis_url: str, redis_client: Client) -> None:
    """Those of docs/operations/redis-users.md are enough."""
    push(redis_client, {"a.json": NUMBER})
    make_user(redis_client, "shop", users("operations/redis-users.md")["shop"])
    try:
        ensure_loaded(redis_client, log_key("notifications"))
        with Publisher(
            f"unix://shop:pass@{redis_url.removeprefix('unix://')}", schemas="redis", schema_check="refuse"
        ) as publisher:
            assert publisher.publish("a", 1).offset == 1
            with pytest.raises(SchemaViolation):
                publisher.publish("a", "x")
    finally:
        call(redis_client, "ACL", "DELUSER", "shop")
