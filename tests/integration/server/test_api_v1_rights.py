"""A key's rights beyond its namespaces, and a caller's price for work: every operation of the table, on a real Redis."""

from typing import Any, NamedTuple, cast

import pytest
from flask.testing import FlaskClient

from headgate.auth.api_keys import new_key
from headgate.auth.identity import Identity
from headgate.auth.scopes import ADMIN, PLAIN, WITH_PATTERN
from headgate.consumers.work.store import Store, dead
from headgate.consumers.work.task import Task
from headgate.diagnosis import tracing
from headgate.events.event import Event
from headgate.redis import api_keys
from headgate.redis.client import Client, call
from headgate.redis.keys import NAMESPACES
from headgate.runtime.shared_rates import SharedRates
from headgate.services.clients import Clients, ClientsPage, Reached
from headgate.services.publisher import PresentUser, Publisher
from headgate.settings.settings import Settings
from headgate_server.api.v1.operation import ANYONE, Cost
from headgate_server.api.v1.services import Services
from headgate_server.api.v1.table import OPERATIONS
from headgate_server.app import create_app
from tests.support.api_client import api_client
from tests.support.recording_gate import RecordingGate
from tests.support.unstarted_gateway import UnstartedGateway

ADMIN_KEY = "an-admin-key-of-forty-characters-3141592"
# All that a key can have but `admin`.
EVERY_SCOPE = (*(f"{kind}:#" for kind in WITH_PATTERN), *(scope for scope in PLAIN if scope != ADMIN))
HERE, THERE = "notifications", "other"


class Site(NamedTuple):
    """A gateway of two namespaces, and a maker of keys for it."""

    client: FlaskClient
    redis: Client

    def ask(self, key: str, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        headers = {"Authorization": f"Bearer {key}"}
        answer = self.client.open(f"/api/v1{path}", method=method, json=body, headers=headers)
        return answer.status_code, answer.get_json() if answer.data else None

    def key(self, *scopes: str, **more: Any) -> str:
        made = new_key("test", scopes, **more)
        api_keys.add(self.redis, made.stored)
        return made.text


@pytest.fixture
def site(unstarted_gateway: UnstartedGateway, redis_url: str, redis_client: Client) -> Site:
    settings = Settings(redis_url=redis_url, admin_key=ADMIN_KEY, namespaces=(HERE, THERE), read_per_s=25_000)
    served(redis_client, HERE, THERE)
    return Site(create_app(settings, gate=unstarted_gateway(settings)).test_client(), redis_client)


def served(redis: Client, *namespaces: str) -> None:
    """Have namespaces known as those that gateways serve. None of them is there to answer."""
    for each in namespaces:
        call(redis, "ZADD", NAMESPACES, 1_800_000_000, each)


def id_of(key: str) -> str:
    return key.split("_")[1]


# Each operation, asked by a key with every scope for THERE alone, about what belongs to HERE, to all, or to none.
BEYOND: dict[str, tuple[str, Any, int]] = {
    "publishEvent": ("/events", {"topic": "a", "data": 1, "namespace": HERE}, 401),
    "publishBatch": ("/events/batch", {"events": [{"topic": "a", "data": 1}], "namespace": HERE}, 401),
    "listEvents": (f"/events?namespace={HERE}", None, 401),
    "getEvent": (f"/events/1?namespace={HERE}", None, 401),
    "checkReceipt": (f"/receipts?epoch=0123456789abcdef&offset=1&namespace={HERE}", None, 401),
    "traceEvent": (f"/events/1/trace?namespace={HERE}", None, 401),
    "listMembers": (f"/presence?topic=a&namespace={HERE}", None, 401),
    "readInbox": (f"/inbox?user=ana&namespace={HERE}", None, 401),
    "changeInbox": (f"/inbox?namespace={HERE}", {"op": "read_all", "user": "ana"}, 401),
    "getNamespace": (f"/namespaces/{HERE}", None, 404),
    "listClients": (f"/clients?namespace={HERE}", None, 403),
    # No client is connected here: tests/unit/node/population/test_client_list.py has clients of another namespace.
    "getClient": ("/clients/s1", None, 404),
    "disconnectClient": ("/clients/s1", None, 404),
    "revokeUser": ("/users/ana/revocation", {}, 403),
    "liftRevocation": ("/users/ana/revocation", None, 403),
    "revokeToken": ("/tokens/t1/revocation", {}, 403),
    "regrantUser": ("/users/ana/grants", {"subscribe": ["#"]}, 403),
    "listConsumers": (f"/consumers?namespace={HERE}", None, 401),
    "getConsumer": (f"/consumers/mail?namespace={HERE}", None, 401),
    "removeConsumer": (f"/consumers/mail?namespace={HERE}", None, 401),
    "listDeadLetters": (f"/consumers/mail/dead-letters?namespace={HERE}", None, 401),
    "getDeadLetter": (f"/consumers/mail/dead-letters/1-1?namespace={HERE}", None, 401),
    "retryDeadLetters": (f"/consumers/mail/dead-letters/retry?namespace={HERE}", {"ids": "all"}, 401),
    "dropDeadLetters": (f"/consumers/mail/dead-letters/drop?namespace={HERE}", {"ids": "all"}, 401),
    "pause": (f"/pauses/namespace:{HERE}", {}, 403),
    "resume": (f"/pauses/namespace:{HERE}", None, 403),
    "makeKey": ("/keys", {"name": "a", "scopes": ["clients"], "namespaces": [HERE]}, 422),
    "revokeKey": ("/keys/OF_HERE", None, 403),
}
# Requests without a namespace, where the answer holds nothing of HERE (tests below), or is for anyone.
WITHIN = {"disconnectUser", "sendToClient", "listNamespaces", "listPauses", "listKeys"}


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda each: each.name)
def test_a_key_of_one_namespace_reaches_no_other(site: Site, operation: Any) -> None:
    """Whatever scopes it has, a new row without a check fails here."""
    if operation.scope == ANYONE or operation.name in WITHIN:
        return
    path, body, status = BEYOND[operation.name]
    path = path.replace("OF_HERE", id_of(site.key("clients", namespaces=[HERE])))
    key = site.key(*EVERY_SCOPE, namespaces=[THERE])
    before = sorted(call(site.redis, "KEYS", "hg:*"))
    assert site.ask(key, operation.method, path, body)[0] == status
    assert sorted(call(site.redis, "KEYS", "hg:*")) == before


@pytest.mark.parametrize("what", ["connects", "publishes"])
def test_what_stops_every_namespace_wants_a_key_for_every_namespace(site: Site, what: str) -> None:
    """The refusal names a missing one, and the cure; a key for both, or for all, may."""
    status, problem = site.ask(site.key("pauses:write", namespaces=[THERE]), "PUT", f"/pauses/{what}", {})
    assert (status, problem["code"]) == (403, "forbidden")
    assert (
        problem["detail"] == f"this reaches namespaces that the key is not for ({HERE}); expected a key for them, or for all (*)"
    )
    assert site.ask(site.key("pauses:write", namespaces=[THERE]), "DELETE", f"/pauses/{what}")[0] == 403
    for namespaces in ([HERE, THERE], ["*"]):
        assert site.ask(site.key("pauses:write", namespaces=namespaces), "PUT", f"/pauses/{what}", {})[0] == 200
    assert site.ask(ADMIN_KEY, "DELETE", f"/pauses/{what}")[0] == 204


def test_a_user_is_revoked_by_a_key_for_every_namespace_of_the_redis(site: Site) -> None:
    """Also for one that another gateway serves. Where there is one namespace, a key without names is for all that there is."""
    both = site.key("users:write", namespaces=[HERE, THERE])
    assert site.ask(both, "PUT", "/users/ana/revocation", {})[0] == 200
    assert site.ask(both, "DELETE", "/users/ana/revocation")[0] == 204
    served(site.redis, "third")
    status, problem = site.ask(both, "PUT", "/users/ana/revocation", {})
    assert (status, problem["name"]) == (403, "third")
    assert site.ask(site.key("users:write", namespaces=["*"]), "PUT", "/users/ana/revocation", {})[0] == 200


def test_a_key_without_names_may_all_where_there_is_one_namespace(
    unstarted_gateway: UnstartedGateway, redis_url: str, redis_client: Client
) -> None:
    """The usual site loses nothing by the rule above."""
    settings = Settings(redis_url=redis_url, namespaces=(HERE,))
    site = Site(create_app(settings, gate=unstarted_gateway(settings)).test_client(), redis_client)
    key = site.key("users:write", "pauses:write", "keys:write")
    assert site.ask(key, "PUT", "/users/ana/revocation", {})[0] == 200
    assert site.ask(key, "PUT", "/pauses/connects", {})[0] == 200
    assert site.ask(key, "DELETE", f"/keys/{id_of(site.key('users:write'))}")[0] == 204


@pytest.mark.parametrize(
    ("scopes", "namespaces", "status"),
    [
        ((ADMIN,), None, 403),
        ((ADMIN,), [HERE], 403),
        (("pauses",), [HERE], 403),
        (("clients:write",), [HERE], 403),
        (("read:#",), [HERE], 403),
        (("clients",), ["*"], 403),
        (("clients",), [HERE, THERE], 403),
        (("clients",), [THERE], 403),
        (("clients",), None, 403),
        (("clients", "read:orders.1"), [HERE], 204),
        (("keys:write",), [HERE], 204),
    ],
)
def test_no_key_ends_a_greater_one(site: Site, scopes: tuple[str, ...], namespaces: list[str] | None, status: int) -> None:
    """Neither one that may do more, nor one that may do so elsewhere; nor does it see that of other namespaces."""
    key = site.key("keys:write", "clients", "read:orders.#", namespaces=[HERE])
    other = id_of(site.key(*scopes, namespaces=namespaces or ()))
    assert site.ask(key, "DELETE", f"/keys/{other}")[0] == status
    assert (api_keys.find(site.redis, other) is None) is (status == 204)
    shown = {each["id"] for each in site.ask(key, "GET", "/keys")[1]["keys"]}
    assert (other in shown) is (namespaces == [HERE] and ADMIN not in scopes and status == 403)
    assert id_of(key) in shown


def test_a_key_for_every_namespace_makes_and_ends_its_like(site: Site) -> None:
    """`*` is all of them, also those that this gateway does not serve."""
    key = site.key("keys:write", "clients", namespaces=["*"])
    for wanted in (["*"], ["elsewhere"], None):
        status, made = site.ask(key, "POST", "/keys", {"name": "a", "scopes": ["clients"], "namespaces": wanted})
        assert (status, made["key"]["namespaces"]) == (201, wanted)
        assert site.ask(key, "DELETE", f"/keys/{made['key']['id']}")[0] == 204


def test_lists_hold_what_is_of_the_keys_namespaces(site: Site) -> None:
    """Namespaces and pauses; every key may see the pauses for all."""
    for what in ("connects", f"namespace:{HERE}", f"namespace:{THERE}"):
        site.ask(ADMIN_KEY, "PUT", f"/pauses/{what}", {})
    key = site.key(*EVERY_SCOPE, namespaces=[THERE])
    assert [each["what"] for each in site.ask(key, "GET", "/pauses")[1]["pauses"]] == ["connects", f"namespace:{THERE}"]
    assert [each["name"] for each in site.ask(key, "GET", "/namespaces")[1]["namespaces"]] == [THERE]
    assert call(site.redis, "ZCARD", NAMESPACES) == 2


# -- the prices for a caller -----------------------------------------------------------------------------------------------

EVENTS, LETTERS, KEYS, MEMBERS, CONSUMERS = 2500, 250, 350, 2500, 25


class Counted(SharedRates):
    """Rates that keep how much was counted."""

    def __init__(self) -> None:
        super().__init__("read", 1.0, 1_000_000)
        self.reads = 0

    def spend(self, name: str, now_s: float, count: int = 1) -> float:
        self.reads += count
        return super().spend(name, now_s, count)

    def charge(self, name: str, now_s: float, count: int = 1) -> None:
        self.reads += count
        super().charge(name, now_s, count)


class Asked:
    """Stands for the gateways, with many clients."""

    def page(self, *words: Any, within: Any) -> ClientsPage:
        return ClientsPage((), 2500, None, ())

    def client(self, session: str, within: Any) -> None:
        return None

    def disconnect(self, **wish: Any) -> Reached:
        return Reached(2500 if "user" in wish else 1, ())

    def send(self, *words: Any, within: Any) -> bool:
        return True

    def regrant(self, user: str, **wish: Any) -> Reached:
        return Reached(2500, ())


# For each operation a request, and the reads that it costs on a site with so many events, letters, keys, members, consumers. An
# absent one costs as much as the search for it.
PRICES: dict[str, list[tuple[str, Any, int]]] = {
    "publishEvent": [],  # by `publish_per_s`, in tests/unit/server/api/v1/test_publishing.py
    "publishBatch": [],
    "listEvents": [("/events", None, 1), ("/events?since=1", None, 2)],
    "getEvent": [
        ("/events/2400", None, 1),
        ("/events/999999", None, 1),  # an absent offset, at once
        ("/events/none", None, 25),
        ("/events/marked-0", None, 25),
        ("/events/marked-0?topic=orders.0", None, 1),  # by the index
        ("/events/marked-2499?topic=orders.2499", None, 1),
        ("/events/none?topic=orders.1", None, 25),
    ],
    "checkReceipt": [("/receipts?epoch=0123456789abcdef&offset=1", None, 1)],
    # Of a present one also the names of keys, and a page of the letters of each consumer, so three of one.
    "traceEvent": [("/events/999999/trace", None, 1), ("/events/none/trace", None, 25), ("/events/2400/trace", None, 28)],
    "listMembers": [("/presence?topic=room&limit=1", None, 3), ("/presence?topic=room&limit=1000", None, 10)],
    "readInbox": [("/inbox?user=ana&limit=100", None, 1)],
    "changeInbox": [("/inbox", {"op": "read_all", "user": "ana"}, 1)],
    "listNamespaces": [("/namespaces", None, 1)],
    "getNamespace": [("/namespaces/notifications", None, 1)],
    "listClients": [("/clients?limit=1", None, 3)],
    "getClient": [("/clients/s1", None, 1)],
    "disconnectClient": [("/clients/s1", None, 1)],
    "sendToClient": [("/clients/s1/events", {"topic": "a", "data": 1}, 1)],
    "disconnectUser": [("/users/ana/clients", None, 3)],
    "revokeUser": [("/users/ana/revocation", {}, 1)],
    "liftRevocation": [("/users/ana/revocation", None, 1)],
    "revokeToken": [("/tokens/t1/revocation", {}, 1)],
    "regrantUser": [("/users/ana/grants", {"subscribe": ["#"]}, 3)],
    "listConsumers": [("/consumers", None, 3)],
    "getConsumer": [("/consumers/mail0", None, 1)],
    "listDeadLetters": [
        ("/consumers/mail0/dead-letters?limit=100", None, 1),
        ("/consumers/mail2/dead-letters?limit=100", None, 2),  # 60 of 2 KiB
    ],
    "getDeadLetter": [("/consumers/mail0/dead-letters/1-1", None, 1)],
    "retryDeadLetters": [("/consumers/mail0/dead-letters/retry", {"ids": ["1-1"]}, 1)],
    "dropDeadLetters": [("/consumers/mail0/dead-letters/drop", {"ids": "all"}, 3)],
    "removeConsumer": [("/consumers/mail1", None, 1)],
    "listPauses": [("/pauses", None, 1)],
    "pause": [("/pauses/connects", {}, 1)],
    "resume": [("/pauses/connects", None, 1)],
    "listKeys": [("/keys", None, 4)],
    "makeKey": [("/keys", {"name": "a", "scopes": ["clients"]}, 1)],
    "revokeKey": [("/keys/0123456789", None, 1)],
    "getHealth": [("/health", None, 0)],
    "getProblem": [("/problems/forbidden", None, 0)],
    "getDocument": [("/openapi.json", None, 0)],
}


class LargeGate(RecordingGate):
    """The gateway of a site where much is there."""

    def events(
        self, pattern: str, first: int = 1, last: int | None = None, namespace: str | None = None
    ) -> tuple[str, list[Event], int | None]:
        return "0123456789abcdef", [], None


def fill(redis: Client, url: str) -> None:
    """Put so much into the log, and around it."""
    with Publisher(url, timeout_s=30) as publisher:
        for begin in range(0, EVENTS, 250):
            numbers = range(begin, begin + 250)
            publisher.publish_many([(f"orders.{number}", number, f"marked-{number}") for number in numbers])
        epoch = publisher.publish("orders.0", 0, id="marked-0").epoch
    for number in range(CONSUMERS):
        store = Store(redis, "", HERE, f"mail{number}", 65536)
        store.open("new")
        if not number:
            tasks = [Task(epoch, each + 1, "orders.1", f"id{each}", 1, b"1") for each in range(LETTERS)]
            store.settle([dead(task, "rejected", "no such address", LETTERS) for task in tasks])
        if number == 2:
            tasks = [Task(epoch, each + 1, "orders.1", f"id{each}", 1, b'"%b"' % (b"x" * 2048)) for each in range(60)]
            store.settle([dead(task, "rejected", "no such address", LETTERS) for task in tasks])
    for _ in range(KEYS):
        api_keys.add(redis, new_key("test", ["clients"]).stored)


def test_every_operation_is_paid_for_by_its_work(redis_url: str, redis_client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many reads as the examined events need, also for an absent one. Operations of price one move little in any case."""
    # A trace that is late leaves out a part of its work.
    monkeypatch.setattr(tracing, "DEADLINE_S", 60.0)
    assert set(PRICES) == {operation.name for operation in OPERATIONS}
    fill(redis_client, redis_url)
    gate = LargeGate(identity=Identity("\0key:k1", scopes=(ADMIN,), namespaces=("*",)))
    gate.present = [PresentUser(f"user{number}", 1, 1, None) for number in range(MEMBERS)]
    reads = Counted()
    client = api_client(Services(gate, Settings(redis_url=redis_url), clients=cast(Clients, Asked())), reads)

    def sent_bytes() -> int:
        return int(call(redis_client, "INFO", "stats")["total_net_output_bytes"])

    own_bytes = -sent_bytes() + sent_bytes()
    for operation in OPERATIONS:
        for path, body, price in PRICES[operation.name]:
            reads.reads, before = 0, sent_bytes()
            answer = client.open(f"/api/v1{path}", method=operation.method, json=body)
            moved_bytes = sent_bytes() - before - own_bytes
            assert answer.status_code in (200, 201, 204, 404), answer.text
            assert reads.reads == price, (operation.name, path)
            limit_bytes = 128 * 1024 * max(1, price)
            assert moved_bytes < (4096 if operation.cost in (Cost.REQUEST, Cost.NOTHING) else limit_bytes), (operation.name, path)
    assert client.get("/api/v1/events/marked-0?topic=orders.0").get_json()["id"] == "marked-0"


def test_who_has_looked_through_the_log_waits_before_the_next_read(redis_url: str, redis_client: Client) -> None:
    """The work of a search is owed. It keeps no caller from acting, and another caller owes nothing."""
    fill(redis_client, redis_url)
    gate = LargeGate(identity=Identity("\0key:k1", scopes=("read:#", "pauses:write"), namespaces=("*",)))
    client = api_client(Services(gate, Settings(redis_url=redis_url)), SharedRates("read", 0.1, 10))
    assert client.get("/api/v1/events/none").status_code == 404
    answer = client.get("/api/v1/events/1")
    assert (answer.status_code, answer.get_json()["code"]) == (429, "limit_reached")
    # Some 160 s, of which an answer says a minute at most.
    assert answer.headers["Retry-After"] == "60"
    assert client.put("/api/v1/pauses/connects", json={}).status_code == 200
    gate.identity = Identity("ben", ("#",))
    assert client.get("/api/v1/events/1").status_code == 200
