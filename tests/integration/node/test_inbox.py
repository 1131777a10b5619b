"""Inboxes over a gateway's own doors: a page reads and changes the inbox of its user, a key with the scope any inbox."""

import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from typing import Any

import jwt
import pytest

from headgate.redis.embedded import EmbeddedRedis, start_private_redis
from headgate.services.inbox import Inbox
from headgate.services.publisher import Publisher
from tests.support.gateway_process import GatewayProcess, StartGateway
from tests.support.raw_client import RawClient

SECRET = "canary-secret-0123456789abcdefghijklmnop"
ADMIN_KEY = "an-admin-key-of-forty-characters-3141592"


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedRedis]:
    with start_private_redis(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture(scope="module")
def gateways(start_module_gateway: StartGateway, redis: EmbeddedRedis) -> tuple[GatewayProcess, GatewayProcess]:
    settings = {
        "HEADGATE_REDIS_URL": redis.url,
        "HEADGATE_TOKEN_SECRET": SECRET,
        "HEADGATE_ADMIN_KEY": ADMIN_KEY,
        "HEADGATE_ANONYMOUS_SUBSCRIBE": "news.#",
    }
    return start_module_gateway(settings), start_module_gateway(settings)


@pytest.fixture
def inbox(redis: EmbeddedRedis) -> Iterator[Inbox]:
    with closing(Publisher(redis.url)) as publisher:
        yield Inbox(publisher)


@pytest.fixture
def joined() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def token(user: str) -> str:
    return jwt.encode({"sub": user, "aud": "headgate", "exp": time.time() + 600}, SECRET, "HS256")


def join(stack: ExitStack, gateway: GatewayProcess, user: str | None) -> RawClient:
    client = stack.enter_context(RawClient(gateway.url, {} if user is None else {"token": token(user)}))
    client.wait_for(lambda: client.named("welcome"), "a welcome")
    return client


def ask(gateway: GatewayProcess, method: str, query: str, bearer: str, body: Any = None) -> tuple[int, Any]:
    return gateway.ask(f"/api/v1/inbox{query}", body, bearer, method)


def test_what_one_page_reads_is_read_at_every_page_of_the_user(
    gateways: tuple[GatewayProcess, GatewayProcess], inbox: Inbox, joined: ExitStack
) -> None:
    """On another gateway, as an event of the log; and for a page that comes later."""
    [item] = inbox.send("ana", "orders.failed", {"some_field": 7})
    first, second = (join(joined, gateway, "ana") for gateway in gateways)
    second.request("subscribe", {"pattern": "users.ana.inbox.#"})

    listed = first.request("inbox", {})
    assert (listed["unread"], [each["at"] for each in listed["items"]]) == (1, [item.offset])
    assert listed["items"][0]["data"] == {"some_field": 7}
    change = {"op": "read", "ids": [listed["items"][0]["id"]]}
    receipt = first.request("publish", {"topic": "users.ana.inbox", "data": change})

    assert receipt["ok"]
    [(topic, data, meta)] = second.wait_for_events(1)
    assert (topic, data, meta["id"]) == ("users.ana.inbox", change | {"unread": 0}, receipt["id"])
    assert join(joined, gateways[1], "ana").request("inbox", {})["unread"] == 0


def test_nothing_of_another_user_can_be_read_or_changed(
    gateways: tuple[GatewayProcess, GatewayProcess], inbox: Inbox, joined: ExitStack
) -> None:
    """Whether that user has an inbox or not, the answer is the same."""
    inbox.send("cleo", "secret", 1, "s-1")
    page = join(joined, gateways[0], "ben")
    for user in ("cleo", "nobody"):
        topic = f"users.{user}.inbox"
        assert page.request("publish", {"topic": topic, "data": {"op": "read_all"}})["error"]["code"] == "forbidden"
        assert page.request("publish", {"topic": f"{topic}.secret", "data": 1})["error"]["code"] == "forbidden"
        assert page.request("subscribe", {"pattern": f"{topic}.#"})["error"]["code"] == "forbidden"
        assert ask(gateways[0], "GET", f"?user={user}", token("ben"))[0] == 403
        assert ask(gateways[0], "POST", "", token("ben"), {"op": "read_all", "user": user})[0] == 403
    assert page.request("inbox", {})["items"] == []
    assert page.request("inbox", {"user": "cleo"})["error"]["code"] == "invalid_request"
    assert join(joined, gateways[0], None).request("inbox", {})["error"]["code"] == "forbidden"
    assert inbox.page("cleo").unread == 1


def test_over_http_a_user_has_its_own_and_a_key_any(gateways: tuple[GatewayProcess, GatewayProcess], inbox: Inbox) -> None:
    """Each change is answered with its receipt, and each fault with the allowed values."""
    inbox.send(["dan", "eli"], "news", "hello", "n-1")
    gateway = gateways[0]
    status, shown = ask(gateway, "GET", "?limit=5", token("dan"))
    assert (status, shown["unread"], shown["items"][0]["id"]) == (200, 1, "news/n-1")

    status, receipt = ask(gateway, "POST", "", token("dan"), {"op": "read", "ids": ["news/n-1"]})
    assert (status, inbox.page("dan").unread, inbox.page("eli").unread) == (200, 0, 1)
    assert receipt["offset"] == inbox.page("dan").offset
    assert ask(gateway, "POST", "", ADMIN_KEY, {"op": "archive", "ids": ["news/n-1"], "user": "eli"})[0] == 200
    assert ask(gateway, "GET", "?user=eli", ADMIN_KEY)[1]["items"] == []
    assert ask(gateway, "GET", "?user=eli&archived=true", ADMIN_KEY)[1]["items"][0]["archived"]

    assert ask(gateway, "POST", "", token("dan"), {"op": "mute", "pattern": "news.#", "channels": ["page"]})[0] == 200
    assert ask(gateway, "POST", "", ADMIN_KEY, {"op": "mute", "pattern": "chat", "channels": ["mail"], "user": "dan"})[0] == 200
    assert ask(gateway, "POST", "", token("eli"), {"op": "unmute", "pattern": "news.#", "user": "dan"})[0] == 403
    assert ask(gateway, "GET", "", token("dan"))[1]["mutes"] == {"chat": ["mail"], "news.#": ["page"]}
    status, problem = ask(gateway, "POST", "", token("dan"), {"op": "mute", "pattern": "news.#", "ids": ["news/n-1"]})
    assert (status, "mute: expected pattern and channels, got ids, pattern" in problem["detail"]) == (400, True)
    status, problem = ask(gateway, "POST", "", token("dan"), {"op": "mute", "pattern": "news.#.x#", "channels": ["page"]})
    assert (status, "pattern: expected a pattern" in problem["detail"]) == (400, True)
    assert ask(gateway, "POST", "", token("dan"), {"op": "mute", "pattern": "news.#", "channels": ["sms"]})[0] == 422

    status, problem = ask(gateway, "POST", "", token("dan"), {"op": "read", "ids": ["news/none"]})
    assert (status, "the inbox has no item news/none" in problem["detail"]) == (400, True)
    assert ask(gateway, "POST", "", token("dan"), {"op": "read"})[0] == 400
    status, problem = ask(gateway, "GET", "", ADMIN_KEY)
    assert (status, "expected a name" in problem["detail"]) == (400, True)


def test_over_http_a_page_is_not_older_than_asked_for(gateways: tuple[GatewayProcess, GatewayProcess], inbox: Inbox) -> None:
    """Another gateway may have shown it. A page without it is refused, and may be asked for again."""
    [item] = inbox.send("ira", "news", "hello", "n-1")

    def read(offset: int, epoch: str = item.epoch) -> tuple[int, Any]:
        return ask(gateways[1], "GET", f"?epoch={epoch}&offset={offset}", token("ira"))

    def asked_by_a_page(offset: int) -> Any:
        body = {"token": token("ira"), "name": "inbox", "body": {"epoch": item.epoch, "offset": offset}}
        return gateways[1].ask("/api/v1/request", body)[1]

    assert asked_by_a_page(item.offset)["unread"] == 1
    assert asked_by_a_page(item.offset + 100)["error"]["code"] == "bus_unavailable"
    status, page = read(item.offset)
    assert (status, page["unread"], page["offset"] >= item.offset) == (200, 1, True)
    status, problem = read(page["offset"] + 100)
    assert (status, problem["code"]) == (503, "bus_unavailable")
    status, problem = read(item.offset, "0123456789abcdef")
    assert (status, "the log does not know it" in problem["detail"]) == (400, True)
    status, problem = ask(gateways[1], "GET", f"?offset={item.offset}", token("ira"))
    assert (status, "expected both or neither" in problem["detail"]) == (400, True)
