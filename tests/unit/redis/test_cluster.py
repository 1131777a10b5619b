"""A Cluster's URL, the slot of a command, and the topology: which node is asked, when, and the use of its answer."""

import itertools
import threading
from dataclasses import replace
from typing import Any

import pytest

from headgate.errors import BusRefused, BusUnavailable, HeadgateError
from headgate.redis import cluster
from headgate.redis.client import call, database, open_client
from headgate.redis.cluster import Topology, is_cluster, key_of, read_slots, slot_of
from headgate.redis.connections import redacted_address
from headgate.settings.addresses.redis_url import Node, RedisKind, RedisUrl, read_url
from headgate.settings.settings import Settings
from tests.support.processes import in_child
from tests.support.redis_server import DEADLINE_S

A, B, C, D = (("a", 1), ("b", 2), ("c", 3), ("d", 4))
_names = itertools.count()


class Nodes:
    """Nodes that answer from a script: a list of (first, last, owner), or an error; `asked` says in which order."""

    def __init__(self, **answers: list[tuple[int, int, Node]] | HeadgateError) -> None:
        self.answers: dict[str, Any] = answers
        self.asked: list[str] = []

    def ask(self, node: Node) -> Any:
        self.asked.append(node[0])
        answer = self.answers.get(node[0], BusUnavailable(f"{node[0]} is silent"))
        if isinstance(answer, HeadgateError):
            raise answer
        return [[first, last, [owner[0].encode(), owner[1], b"id"]] for first, last, owner in answer]


def topology(nodes: Nodes, *seeds: Node) -> Topology:
    # A separate name, because a process remembers the nodes of each Cluster.
    address = RedisUrl(RedisKind.CLUSTER, False, (*seeds, (f"unknown{next(_names)}", 1)))
    return Topology(address, nodes.ask)


def test_a_child_that_is_forked_while_a_thread_asks_asks_itself() -> None:
    """It does not wait for the answer of a thread that it does not have."""
    asked, ended = threading.Event(), threading.Event()

    def ask(node: Node) -> Any:
        if threading.current_thread() is not threading.main_thread():
            asked.set()
            ended.wait(DEADLINE_S)
        return [[0, 16383, [b"a", 1, b"id"]]]

    cluster = Topology(RedisUrl(RedisKind.CLUSTER, False, ((f"unknown{next(_names)}", 1),)), ask)
    thread = threading.Thread(target=cluster.owner, args=(0,))
    thread.start()
    assert asked.wait(DEADLINE_S)
    answered = in_child(lambda: cluster.owner(0) == A)
    ended.set()
    thread.join()

    assert answered


@pytest.mark.parametrize(
    ("url", "plain"),
    [
        ("redis+cluster://a", "redis://a:6379/0"),
        ("redis+cluster://u:p%40@a:1,b:2/0?client_name=f", "redis://u:p%40@a:1/0?client_name=f"),
        ("rediss+cluster://a:7000/", "rediss://a:7000/0"),
        ("redis+cluster://[::1]:7000", "redis://[::1]:7000/0"),
    ],
)
def test_each_node_has_the_credentials_and_options_of_the_url(url: str, plain: str) -> None:
    """A plain URL of any node is made from the Cluster's."""
    assert is_cluster(url)
    assert Settings.read({"HEADGATE_REDIS_URL": url}).redis_url == url
    address = read_url(url)
    assert address.at(address.hosts[0]) == replace(read_url(plain), kind=RedisKind.NODE)


def test_an_address_shows_no_secret() -> None:
    url = "redis+cluster://u:hunter2@h1:1,h2:2"
    assert redacted_address(url) == "the Cluster of h1:1, h2:2"
    assert database(open_client(url)) == "the Cluster of h1:1, h2:2/0"


@pytest.mark.parametrize(
    ("command", "key"),
    [
        (("FCALL", "headgate_publish", 1, "hg:{n}:log", "t"), "hg:{n}:log"),
        (("XINFO", "STREAM", "k"), "k"),
        (("XGROUP", "CREATE", "k", "g", "$"), "k"),
        (("XREAD", "COUNT", 1, "BLOCK", 5, "STREAMS", "k", "0-0"), "k"),
        (("XREADGROUP", "GROUP", "streams", "c", "STREAMS", "k", ">"), "k"),
        (("GET", b"k"), b"k"),
        (("zadd", "k", 1, "m"), "k"),
        (("PUBLISH", "hg:revoked", "x"), "hg:revoked"),
        *((command, None) for command in (("WAIT", 1, 100), ("WAITAOF", 1, 0, 100), ("TIME",), ("INFO", "memory"))),
        *((command, None) for command in (("FUNCTION", "LOAD", "REPLACE", "code"), ("SCAN", 0, "MATCH", "x"))),
        (("FCALL_RO", "headgate_version", 0), None),
    ],
)
def test_a_command_goes_by_its_key(command: tuple[str | bytes | int, ...], key: str | bytes | None) -> None:
    """Its first one, which is not always its first word; some have none."""
    assert key_of(command) == key


def test_the_braces_of_a_key_are_its_slot() -> None:
    """All keys of a namespace share one."""
    assert slot_of("hg:{notifications}:log") == slot_of(b"hg:{notifications}:head") == slot_of("notifications")
    assert slot_of("123456789") == 0x31C3  # from the Cluster specification


def test_an_announced_host_that_is_unknown_is_that_of_the_node_asked() -> None:
    reply = [[at, at, [host, 7, b"id"], [b"replica", 8, b"id"]] for at, host in enumerate((b"", b"?", None, b"h"))]
    assert [owner for _, _, owner in read_slots(reply, A)] == [("a", 7), ("a", 7), ("a", 7), ("h", 7)]


@pytest.mark.parametrize("reply", [b"OK", 1, [1], [[1, 2]], [[1, 2, []]], None])
def test_an_answer_that_is_none_is_refused(reply: Any) -> None:
    """Some other server may answer."""
    with pytest.raises(BusRefused, match="a:1 does not say which node owns which slot"):
        read_slots(reply, A)


def test_the_topology_is_asked_once() -> None:
    """And again after a doubt only: another node, because one without contact to the others reports old news for ever."""
    nodes = Nodes(a=[(0, 99, A), (100, 199, B)])
    found = topology(nodes, A)
    assert [found.owner(slot) for slot in (0, 99, 100, 199)] == [A, A, B, B]
    assert found.primaries() == (A, B)
    assert nodes.asked == ["a"]
    nodes.answers = {"a": [(0, 199, A)], "b": [(0, 199, B)]}
    assert found.owner(0) == A
    found.doubt()
    assert found.owner(0) == B


def test_nodes_that_are_silent_are_passed_over_and_asked_last() -> None:
    """Each may take half a second."""
    nodes = Nodes(b=[(0, 9, B), (10, 19, C)], c=[(0, 9, B), (10, 19, C)])
    found = topology(nodes, A, B)
    assert found.owner(10) == C
    found.doubt()
    found.owner(10)
    assert nodes.asked == ["a", "b", "c"]


def test_a_silent_node_that_takes_the_time_of_a_call_is_named_alone_and_asked_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others have not been asked, and the next call begins with them."""
    nodes = Nodes(b=[(0, 9, B)])
    found = topology(nodes, A, B)
    with monkeypatch.context() as patch:
        patch.setattr(cluster, "left_s", lambda: -0.1)
        with pytest.raises(BusUnavailable, match=r": a is silent$"):
            found.owner(0)
    assert found.owner(0) == B
    assert nodes.asked == ["a", "b"]


def test_a_node_that_is_no_seed_answers_when_all_seeds_are_gone() -> None:
    """Also for a later connection in the same process."""
    nodes = Nodes(a=[(0, 9, C)])
    address = RedisUrl(RedisKind.CLUSTER, False, (A,), path=str(next(_names)))
    Topology(address, nodes.ask).owner(0)
    nodes.answers = {"c": [(0, 9, C)]}
    assert Topology(address, nodes.ask).owner(0) == C


def test_a_moved_slot_is_where_the_node_says_even_if_others_do_not_know_yet() -> None:
    """The node that it names is asked first."""
    nodes = Nodes(a=[(0, 9, A), (10, 19, B)])
    found = topology(nodes, A)
    found.owner(0)
    nodes.asked.clear()
    found.moved(5, D)
    assert found.owner(5) == D
    assert found.owner(6) == A
    assert nodes.asked[0] == "d"
    assert D in found.primaries()


def test_a_slot_without_an_owner_is_down() -> None:
    """The topology is asked once more before that verdict, and each time."""
    nodes = Nodes(a=[(0, 9, A)])
    found = topology(nodes, A)
    found.owner(0)
    with pytest.raises(BusUnavailable, match="it is down for slot 10, which no node owns") as caught:
        found.owner(10)
    assert caught.value.redis_code == "CLUSTERDOWN"
    nodes.answers = {"a": [(0, 19, A)]}
    assert found.owner(10) == A


def test_a_refusal_says_more_than_silence() -> None:
    """A wrong password, or a server that is no Cluster."""
    nodes = Nodes(b=BusRefused("no password"), c=BusUnavailable("c is down"))
    with pytest.raises(BusRefused, match="no password"):
        topology(nodes, A, B, C).owner(0)
    with pytest.raises(BusUnavailable, match=r"none of its nodes answers \(.*a is silent"):
        topology(Nodes(), A, B).owner(0)


def test_nodes_without_slots_are_passed_over() -> None:
    """A new node, or a reset one, knows nothing."""
    nodes = Nodes(a=[], b=[(0, 9, B)])
    assert topology(nodes, A, B).owner(0) == B
    with pytest.raises(BusUnavailable, match="knows no node that owns a slot"):
        topology(Nodes(a=[]), A).primaries()


def test_nothing_there_is_one_clear_error() -> None:
    client = open_client("redis+cluster://127.0.0.1:1,127.0.0.1:2", timeout_s=1)
    with pytest.raises(
        BusUnavailable, match=r"the Cluster of 127\.0\.0\.1:1, 127\.0\.0\.1:2: none of its nodes answers"
    ) as caught:
        call(client, "GET", "x")
    assert "connection refused" in caught.value.message
    assert "start Redis there" in caught.value.lines()[1]
