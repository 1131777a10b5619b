"""A real Redis Cluster: publishers, consumers, revocations and the registry, while slots move and nodes fail."""

import itertools
import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from headgate import BusRefused, BusUnavailable, NotDurable, Publisher
from headgate.auth.repair import read_revoked
from headgate.cli.doctor import check
from headgate.consumers.work.groups import Groups
from headgate.consumers.work.store import Store
from headgate.redis.bounded import NewestReceipts
from headgate.redis.client import Client, at, call, call_at, call_many, check_server, describe_server, open_client, primaries
from headgate.redis.cluster import slot_of
from headgate.redis.functions import LOG_LIBRARY
from headgate.redis.keys import REVOKED, log_key, questions_channel
from headgate.redis.lineage import Fate
from headgate.redis.questions import UNREGISTERED, answer, ask, read_question
from headgate.redis.registry import living
from headgate.redis.subscriber_link import SubscriberLink
from tests.support.checkout import ROOT
from tests.support.clusters import Cluster, start_cluster
from tests.support.redis_process import Server
from tests.support.redis_server import DEADLINE_S
from tests.support.registered import register

_numbers = itertools.count()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three primaries, each with a replica."""
    with start_cluster(tmp_path_factory.mktemp("cluster") / "site", 3, 1) as site:
        yield site


@pytest.fixture
def client(cluster: Cluster) -> Iterator[Client]:
    """A client of the Cluster."""
    with open_client(cluster.url, timeout_s=DEADLINE_S) as client:
        yield client


@pytest.fixture
def namespace() -> str:
    """A namespace that no other test has."""
    return f"shop{next(_numbers)}"


@pytest.fixture
def publisher(cluster: Cluster, namespace: str) -> Iterator[Publisher]:
    """A publisher to it, which tries for as long as a slow machine may need."""
    with Publisher(cluster.url, namespace=namespace, timeout_s=DEADLINE_S) as publisher:
        yield publisher


def spread(cluster: Cluster) -> list[str]:
    """Return one new namespace on each primary."""
    return [cluster.namespaces_on(node, 1, f"on{next(_numbers)}-")[0] for node in cluster.nodes if node.is_primary]


def test_commands_go_to_the_owner_and_replies_keep_their_order(cluster: Cluster, client: Client) -> None:
    """Commands of one call to three nodes. Each runs where its key is, one without a key after the one before it."""
    names = spread(cluster)
    values = [(("SET", f"{{{name}}}", name), ("WAIT", 0, 1), ("GET", f"{{{name}}}")) for name in names]

    replies = call_many(client, [command for each in values for command in each])

    assert replies[2::3] == [name.encode() for name in names]
    assert len(primaries(client)) == len(names)
    assert {call(at(client, name), "INFO", "server")["tcp_port"] for name in names} == {
        call(server, "INFO", "server")["tcp_port"] for server in primaries(client)
    }
    assert call_at(client, names[1], "INFO", "server")["tcp_port"] == cluster.owner(names[1]).port


@pytest.mark.parametrize("at_once", [False, True])
def test_a_moved_slot_is_followed(cluster: Cluster, client: Client, namespace: str, at_once: bool) -> None:
    """MOVED, so nothing has run, and the command goes to the new owner, with the WAIT after it."""
    if at_once and not cluster.can_move_at_once():
        pytest.skip("this server moves slots key by key only")
    key = log_key(namespace)
    source = cluster.owner(key)
    target = cluster.another(source)
    assert call_many(client, [("RPUSH", key, "a"), ("RPUSH", key, "b")]) == [1, 2]

    (cluster.move_at_once if at_once else cluster.move)(slot_of(key), target)

    assert call_many(client, [("RPUSH", key, "c"), ("WAIT", 0, 1), ("LRANGE", key, 0, -1)])[2] == [b"a", b"b", b"c"]
    assert cluster.owner(key) is target
    (cluster.move_at_once if at_once else cluster.move)(slot_of(key), source)
    assert call(client, "LLEN", key) == 3


def test_a_publisher_follows_a_slot_that_moves_key_by_key(cluster: Cluster, publisher: Publisher, namespace: str) -> None:
    """While its keys are on two nodes an event is waited with, not written to a second log; the library is loaded there."""
    before = publisher.publish("a", 1, id="x")
    source = cluster.owner_of_namespace(namespace)
    target = cluster.another(source)
    target.call("FUNCTION", "FLUSH")
    receipts: list[Any] = []
    with cluster.moving(slot_of(log_key(namespace)), target) as move:
        with Publisher(cluster.url, namespace=namespace, timeout_s=0.3) as impatient:
            for code in ("TRYAGAIN", "ASK"):  # an absent key might be on the other node; the log is
                with pytest.raises(BusUnavailable, match="taking over this namespace") as caught:
                    impatient.publish("a", 2)
                assert caught.value.redis_code == code
                move.move_keys(*([log_key(namespace)] if code == "TRYAGAIN" else []))
        waiting = threading.Thread(target=lambda: receipts.append(publisher.publish_many([("a", 3, "y"), ("a", 4, "z")])))
        waiting.start()
    waiting.join(DEADLINE_S)

    assert [receipt.offset for receipt in receipts[0]] == [2, 3]
    assert publisher.check(before) is Fate.IN_LOG
    assert publisher.publish("a", 1, id="x").duplicate
    assert publisher.publish("a", 3, id="y").offset == 2
    assert cluster.owner_of_namespace(namespace) is target


def test_a_new_connection_to_a_node_reports_the_newest_receipts(cluster: Cluster, publisher: Publisher, namespace: str) -> None:
    """The node that wrote the epoch does not remember one of them; to the others they say nothing."""
    before, newest = publisher.publish("a", 1), NewestReceipts()
    newest.note(before.epoch, before.offset + 1)
    with open_client(cluster.url, newest=newest) as client:
        for server in primaries(client):
            call(server, "PING")
    after = publisher.publish("a", 2)

    assert (after.offset, after.epoch == before.epoch) == (2, False)
    assert publisher.check(before) is Fate.IN_LOG


def test_receipts_tell_of_replicas_also_after_a_move(cluster: Cluster, publisher: Publisher, namespace: str) -> None:
    """WAIT goes where the event went."""
    assert publisher.publish("a", 1, durable="replica").replicas == 1
    cluster.move(slot_of(log_key(namespace)), cluster.another(cluster.owner_of_namespace(namespace)))
    receipts = publisher.publish_many([("a", 2), ("a", 3)], durable="replica")
    assert [receipt.replicas for receipt in receipts] == [1, 1]
    with Publisher(cluster.url, namespace=namespace, timeout_s=0.5) as publisher_of_two, pytest.raises(NotDurable):
        publisher_of_two.publish("a", 4, durable=2)


def test_revocations_live_at_one_node_and_reach_every_link(cluster: Cluster, client: Client, publisher: Publisher) -> None:
    """The set and the channel are those of `hg:revoked`; news are heard at every node."""
    links = [SubscriberLink(cluster.url, key=name) for name in [REVOKED, *spread(cluster)]]
    for link in links:
        link.connect()
        link.settimeout(DEADLINE_S)
        link.send(("SUBSCRIBE", REVOKED))
        assert link.read()[0][0] == b"subscribe"
    try:
        publisher.revoke(user="eve", for_s=60)
        assert [link.read()[0][2] for link in links] == [b"60 user:eve"] * len(links)
    finally:
        for link in links:
            link.close()
    assert [member for member, *_ in read_revoked(client)] == ["user:eve"]
    publisher.revoke(user="eve", for_s=0)
    assert read_revoked(client) == []


def test_a_group_goes_on_after_its_slot_moved(cluster: Cluster, client: Client, publisher: Publisher, namespace: str) -> None:
    """Work, acknowledgements and the wait for more lead to the new owner."""
    store = Store(client, cluster.url, namespace, "mail", 65536)
    publisher.publish("a", 1)
    store.open("oldest")
    page = store.take(10, 60_000, 100, lambda _: True)
    assert page is not None
    store.acknowledge(page.epoch, [page.work[0].task.offset])
    store.confirm()
    source = cluster.owner_of_namespace(namespace)
    groups = Groups(open_client(cluster.url), namespace)
    assert groups.names() == ["mail"]

    cluster.move(slot_of(log_key(namespace)), cluster.another(source))

    assert groups.names() == ["mail"]  # the former owner would know no name
    publisher.publish("a", 2)
    with pytest.raises(BusUnavailable):  # the connection was made before the move
        store.wait(1, DEADLINE_S)
    store.wait(1, DEADLINE_S)
    page = store.take(10, 60_000, 100, lambda _: True)
    assert page is not None
    assert [leased.task.offset for leased in page.work] == [2]
    store.acknowledge(page.epoch, [2])
    store.confirm()
    assert [status.name for status in Groups(client, namespace).statuses()] == ["mail"]
    assert store.take(10, 60_000, 100, lambda _: True).work == []  # type: ignore[union-attr]
    store.close()


def test_a_url_of_the_wrong_kind_is_one_clear_error(cluster: Cluster, tmp_path: Path) -> None:
    """A Cluster's node at a plain URL, and a Redis that is no Cluster at a Cluster's."""
    node = cluster.nodes[0]
    with pytest.raises(BusRefused, match=r"is a node of a Cluster: begin the URL with redis\+cluster://"):
        describe_server(node.url)
    other = next(name for name in spread(cluster) if cluster.owner(name) is not node)
    with pytest.raises(BusRefused, match=r"begin the URL with redis\+cluster://"):
        call(open_client(node.url), "GET", other)
    with Server(tmp_path / "alone") as alone, pytest.raises(BusRefused, match="is not a node of a Cluster: begin the URL"):
        describe_server(alone.url.replace("redis://", "redis+cluster://"))


READY = """
from gevent import monkey
monkey.patch_all()
import json, sys
from gevent import sleep
from headgate.node.gateway import Gateway
from headgate.settings.settings import Settings
gateways = [Gateway(Settings.read({"HEADGATE_REDIS_URL": url, "HEADGATE_NAMESPACES": sys.argv[1]})) for url in sys.argv[2:]]
for gateway in gateways:
    gateway.start()
def told(gateway):
    state = gateway.ready()
    return [state["ready"], state["namespaces"][sys.argv[1]].get("error"), state.get("revocations_error")]
while not all(told(gateway)[0] or all(told(gateway)[1:]) for gateway in gateways):
    sleep(0.01)
print(json.dumps([told(gateway) for gateway in gateways]))
sys.stdout.flush()
import os
os._exit(0)
"""


def test_a_gateway_that_cannot_serve_is_not_ready_and_says_why(cluster: Cluster, tmp_path: Path) -> None:
    """While it runs, another kind of Redis than the URL says, or nothing there."""
    other = next(node for node in cluster.nodes if node.is_primary and node is not cluster.owner(REVOKED))
    namespace = cluster.namespaces_on(cluster.another(other), 1)[0]
    with Server(tmp_path / "alone") as alone:
        urls = [other.url, alone.url.replace("redis:", "redis+cluster:"), "redis+cluster://127.0.0.1:1,127.0.0.1:2"]
        done = subprocess.run(
            [sys.executable, "-c", READY, namespace, *urls], capture_output=True, text=True, timeout=DEADLINE_S, check=True
        )
    for (ready, *reasons), expected in zip(
        json.loads(done.stdout.splitlines()[-1]),
        (
            "is a node of a Cluster: begin the URL with redis+cluster://",
            "is not a node of a Cluster",
            "none of its nodes answers",
        ),
        strict=True,
    ):
        assert not ready
        assert all(expected in reason for reason in reasons), reasons


def test_check_tells_of_each_node(cluster: Cluster) -> None:
    """`headgate check --load` loads the libraries at every primary."""
    said = CliRunner().invoke(check, ["--redis", cluster.url, "--load"])
    assert said.exit_code == 0, said.output
    assert f"found: Valkey {check_server(open_client(cluster.url))[1]} at the Cluster of" in said.output.replace(
        "Redis", "Valkey"
    )
    for node in cluster.nodes[:3]:
        assert f"127.0.0.1:{node.port}: role: primary with 1 replica(s)" in said.output
        assert {found[1] for found in node.call("FUNCTION", "LIST")} == {b"headgate", b"headgate_consumers", b"headgate_presence"}
    assert "warning" not in said.output


def test_tail_prints_logged_and_plain_messages_wherever_the_slot_moves(cluster: Cluster, client: Client, namespace: str) -> None:
    """Those without an offset over their own channel."""
    command = [sys.executable, "-m", "headgate", "tail", "orders.#", "--namespace", namespace, "--redis", cluster.url]
    with ExitStack() as ends:
        tail = ends.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
        ends.callback(tail.kill)
        assert tail.stdout is not None
        assert f"no gateway has ever served namespace {namespace!r}" in tail.stdout.readline()
        assert tail.stdout.readline() == f"listening to orders.# in {namespace}\n"
        publisher = ends.enter_context(Publisher(cluster.url, namespace=namespace))
        for number, topic in enumerate(("orders.1", "other", "orders.2"), 1):
            publisher.publish(topic, {"n": number})
        call(client, "PUBLISH", f"hg:{{{namespace}}}:orders.3", '{"data":3}')
        assert [tail.stdout.readline() for _ in range(3)] == [
            '1 orders.1 {"n":1}\n',
            '3 orders.2 {"n":3}\n',
            '- orders.3 {"data":3}\n',
        ]
        cluster.move(slot_of(log_key(namespace)), cluster.another(cluster.owner_of_namespace(namespace)))
        publisher.publish("orders.4", 4)
        assert tail.stdout.readline() == "4 orders.4 4\n"


def test_a_publisher_of_few_rights_finds_its_node(cluster: Cluster, client: Client, namespace: str) -> None:
    """Those of docs/operations/redis-users.md are enough. The error names a missing right to ask for the slots' owners."""
    LOG_LIBRARY.ensure_loaded(client)
    page = (ROOT / "docs/operations/redis-users.md").read_text()
    documented = re.findall(r"^user shop on >… (.*)$", page, re.MULTILINE)[0]
    further = "+cluster|slots +spublish +mget &hg:{notifications}/feed"
    assert all(right in page for right in further.split())
    rules = f"reset on >pw {documented} {further}".replace("notifications", namespace).split()
    url = cluster.url.replace("://", "://shop:pw@")
    for node in cluster.nodes:
        node.call("ACL", "SETUSER", "shop", *rules, "-cluster|slots")
    with Publisher(url, namespace=namespace, timeout_s=DEADLINE_S) as publisher:
        with pytest.raises(BusRefused, match=r"no permission .*cluster\|slots"):
            publisher.publish("a", 1)
        for node in cluster.nodes:
            node.call("ACL", "SETUSER", "shop", "+cluster|slots")
        assert publisher.publish("a", 1, user="ana").offset == 1


def test_a_slot_that_no_node_owns_is_one_clear_error(cluster: Cluster, namespace: str) -> None:
    """Publishers of its namespaces get an error, and so does `headgate check`; other namespaces are published to."""
    slot = slot_of(log_key(namespace))
    owner = cluster.owner_of_slot(slot)
    primaries = [node for node in cluster.nodes if node.is_primary]
    for node in primaries:
        node.call("CLUSTER", "DELSLOTS", slot)
    try:
        with Publisher(cluster.url, namespace=namespace, timeout_s=0.2) as publisher:
            with pytest.raises(BusUnavailable, match=f"it is down for slot {slot}, which no node owns"):
                publisher.publish("a", 1)
            assert publisher.publish("a", 1, namespace=spread(cluster)[0]).offset == 1
        said = CliRunner().invoke(check, ["--redis", cluster.url])
        assert "warning: the Cluster is down for 1 of its 16384 slots" in said.output
    finally:
        owner.call("CLUSTER", "ADDSLOTS", slot)
    with Publisher(cluster.url, namespace=namespace, timeout_s=DEADLINE_S) as publisher:
        assert publisher.publish("a", 1).offset == 1


def test_a_question_reaches_every_process_that_listens_for_revocations(cluster: Cluster, client: Client, namespace: str) -> None:
    """Redis counts them where their links are, and the answers are on another node."""
    links = [SubscriberLink(cluster.url, DEADLINE_S, key=REVOKED) for _ in range(2)]

    def answer_one(link: SubscriberLink, gateway_id: str) -> None:
        question = None
        while question is None:
            for kind, _, message in link.read():
                question = read_question(message) if kind == b"message" else question
        answer(client, question, gateway_id, gateway_id, last=True)

    threads = []
    for link, gateway_id in zip(links, ("a:1", "b:1"), strict=True):
        link.connect()
        link.settimeout(DEADLINE_S)
        link.send(("SUBSCRIBE", questions_channel(0)))
        assert link.read()[0][:2] == [b"subscribe", questions_channel(0).encode()]
        threads.append(threading.Thread(target=answer_one, args=(link, gateway_id)))
        threads[-1].start()
    for gateway_id in ("a:1", "b:1", "gone:1"):
        register(client, gateway_id, [namespace])
    answers = ask(client, "k", {}, living(client) & {"a:1", "b:1", "gone:1"}, msgspec.json.decode, within_s=20)
    assert (sorted(answers.parts), answers.silent) == (["a:1", "b:1"], ("gone",))
    for thread, link in zip(threads, links, strict=True):
        thread.join()
        link.close()


def test_a_question_counts_its_receivers_where_the_slot_has_moved(cluster: Cluster, client: Client) -> None:
    """The former owner passes it on to the others, and counts none of them. The client has met no other sign of the move."""
    ask(client, "k", {}, (), msgspec.json.decode, within_s=0.01)
    cluster.move(slot_of(REVOKED), cluster.another(cluster.owner(REVOKED)))
    with closing(SubscriberLink(cluster.url, DEADLINE_S, key=REVOKED)) as link:
        link.connect()
        link.settimeout(DEADLINE_S)
        link.send(("SUBSCRIBE", questions_channel(0)))
        assert link.read()[0][0] == b"subscribe"
        assert ask(client, "k", {}, (), msgspec.json.decode, within_s=0.01).silent == (UNREGISTERED,)
