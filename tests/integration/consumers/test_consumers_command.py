"""`headgate consumers` as an operator types it: a real Redis, groups of running, stopped and removed consumers."""

import json
import re
from collections.abc import Callable, Iterator

import pytest
from click.testing import CliRunner, Result

from headgate.cli.main import main
from headgate.consumers.process.config import read_consumers
from headgate.consumers.work import groups
from headgate.consumers.work.state import State
from headgate.consumers.work.store import Store, back, dead, defer_for
from headgate.consumers.work.task import Task
from headgate.errors import InvalidRequest
from headgate.redis.client import Client, call
from headgate.redis.keys import log_key
from headgate.services.publisher import Publisher
from tests.support.consume_process import SinkFolder
from tests.support.supervised import Supervised

Run = Callable[..., Result]
OpenGroup = Callable[[str], Store]
TASK = Task("e" * 16, 1, "orders.1.paid", "id", 1000, b"1")


@pytest.fixture
def open_group(redis_client: Client, redis_url: str) -> Iterator[OpenGroup]:
    """Open the group of a consumer, as it does itself at its start."""
    stores: list[Store] = []

    def open_group(name: str) -> Store:
        stores.append(Store(redis_client, redis_url, "notifications", name, 65536))
        stores[-1].open("new")
        return stores[-1]

    yield open_group
    for store in stores:
        store.close()


@pytest.fixture
def run(redis_url: str, sink_folder: SinkFolder, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run `headgate consumers …` in the folder of the sink, with a file that has the consumer `sink`."""
    monkeypatch.chdir(sink_folder.path)
    return lambda *arguments: CliRunner().invoke(main, ["consumers", *arguments], env={"HEADGATE_REDIS_URL": redis_url})


@pytest.fixture
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test waits for a minute."""
    monkeypatch.setattr(groups, "QUIET_S", 0.0)


def keys(client: Client) -> set[str]:
    """Return all keys of consumers in Redis, and groups on the log."""
    found = {key.decode() for key in call(client, "KEYS", "hg:{notifications}:group:*")}
    if call(client, "EXISTS", log_key("notifications")):
        found |= {group[1].decode() for group in call(client, "XINFO", "GROUPS", log_key("notifications"))}
    return found


def test_every_consumer_is_listed_with_where_it_stands(run: Run, open_group: OpenGroup, redis_url: str) -> None:
    """Also one that the file lacks now."""
    Publisher(redis_url).publish("a", 0)
    old = open_group("old")
    Publisher(redis_url).publish_many([("a", number) for number in range(5)])
    open_group("sink")
    page = old.take(3, 60_000, 100, lambda topic: True)
    old.settle([back(page.work[0])])  # type: ignore[union-attr]
    old.settle([defer_for(TASK, 60_000), dead(TASK, "rejected", "no", 10), dead(TASK, "rejected", "no", 10)])

    text, objects = run("list").stdout.splitlines(), [json.loads(line) for line in run("list", "--json").stdout.splitlines()]

    assert [re.sub(r"\d+ s", "N s", line) for line in text] == [
        "old: lag 3, leased 2, waiting 1, dead 2, missed 0, at work N s ago, not configured",
        "sink: lag 0, leased 0, waiting 0, dead 0, missed 0, never at work, configured",
    ]
    assert objects[1] == {
        "name": "sink", "namespace": "notifications", "lag": 0, "leased": 0, "waiting": 0, "dead": 0, "missed": 0,
        "idle_s": None, "configured": True, "elsewhere": [],
    }  # fmt: skip
    assert 0 <= objects[0]["idle_s"] < 60


def test_without_a_file_nothing_is_said_of_one(run: Run, open_group: OpenGroup, sink_folder: SinkFolder) -> None:
    """Nor is one needed."""
    (sink_folder.path / "headgate.toml").unlink()
    open_group("old")

    assert run("list").stdout == "old: lag 0, leased 0, waiting 0, dead 0, missed 0, never at work\n"
    assert json.loads(run("list", "--json").stdout)["configured"] is None


def test_a_consumer_of_another_namespace_is_not_listed(
    run: Run, open_group: OpenGroup, sink_folder: SinkFolder, redis_url: str
) -> None:
    """And a table of the file counts for its own namespace."""
    open_group("sink")
    sink_folder.configure('[settings]\nnamespaces = ["chat", "notifications"]\n[consumers.sink]\nnamespace = "chat"\n')

    Publisher(redis_url, namespace="chat").publish("a", 1)  # or the namespace is unknown
    empty = run("list", "--namespace", "chat")
    assert (empty.stdout, empty.stderr) == ("", "no consumer has worked in chat\n")
    assert run("list", "--namespace", "chat", "--json").stderr == ""
    assert run("list").stdout.endswith(", not configured\n")


@pytest.mark.usefixtures("quiet")
def test_a_consumer_is_removed_with_all_it_has(run: Run, open_group: OpenGroup, redis_url: str, redis_client: Client) -> None:
    """And nothing of another with a name that begins like its."""
    Publisher(redis_url).publish("a", 0)
    other = open_group("old-2")
    other.settle([defer_for(TASK, 60_000), dead(TASK, "rejected", "no", 10)])
    State(other).put("x", b"1", 60)
    before = keys(redis_client)
    old = open_group("old")
    Publisher(redis_url).publish("a", 1)
    old.take(10, 60_000, 100, lambda topic: True)
    old.settle([defer_for(TASK, 60_000), dead(TASK, "rejected", "no", 10)])
    State(old).put("x", b"1", 60)

    result = run("remove", "old")

    assert (result.output, result.exit_code) == ("removed old, and with it 1 waiting and 1 dead\n", 0)
    assert keys(redis_client) == before
    assert run("list").stdout.startswith("old-2: ")


def test_a_consumer_with_a_leased_task_is_not_removed(run: Run, open_group: OpenGroup, redis_client: Client) -> None:
    """Its instance would lose its work, and make the group again; until it is done."""
    store = open_group("old")
    store.settle([defer_for(TASK, 60_000, 1)])
    [taken] = call(redis_client, "ZRANGE", "hg:{notifications}:group:old:held", 0, -1)
    before = keys(redis_client)

    refused = run("remove", "old")

    assert refused.exit_code == 1
    assert refused.output == (
        "headgate: invalid request: old was at work 0 s ago; stop all of its instances, and wait until it has been quiet "
        "for 60 s\n"
    )
    assert keys(redis_client) == before
    store.settle([("done", taken)])
    assert run("remove", "old").exit_code == 0


@pytest.mark.parametrize("max_waiting", [0, 100])
def test_an_instance_that_only_waits_is_at_work(run: Run, open_group: OpenGroup, redis_url: str, max_waiting: int) -> None:
    """For new events, or, full, for room."""
    Publisher(redis_url).publish("a", 0)
    open_group("old").take(10, 60_000, max_waiting, lambda topic: True)

    assert re.search(r" was at work \d+ s ago; stop all of its instances", run("remove", "old").stderr)


def test_a_running_consumer_is_removed_after_its_end_only(
    run: Run, supervised: Supervised, sink_here: SinkFolder, redis_client: Client, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A consumer that is still in the file starts again."""

    def script() -> None:
        Publisher(redis_url).publish("orders.1", 1)
        sink_here.wait_for("orders.1")
        with pytest.raises(InvalidRequest, match=r"sink was at work \d+ s ago"):
            groups.Groups(redis_client, "notifications").remove("sink")

    supervised.run(read_consumers("headgate.toml", {}), script)
    Publisher(redis_url).publish("orders.2", 1)
    monkeypatch.setattr(groups, "QUIET_S", 0.0)

    result = run("remove", "sink")

    assert result.stdout == "removed sink, and with it 0 waiting and 0 dead\n"
    assert result.stderr == "the configuration file still has it, so it starts again when it runs\n"
    supervised.run(read_consumers("headgate.toml", {}), lambda: None)
    assert supervised.said[1].endswith("from offset 3")


@pytest.mark.usefixtures("quiet")
def test_an_answer_that_comes_after_the_end_leaves_nothing_behind(run: Run, open_group: OpenGroup, redis_client: Client) -> None:
    """Of work that was leased somewhere, unseen."""
    store = open_group("old")
    store.settle([defer_for(TASK, 60_000)])
    run("remove", "old")

    store.settle([("done", TASK.name)])

    assert keys(redis_client) == set()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("remove", "odl"), "headgate: invalid request: there is no consumer odl in notifications; there are: old, sink\n"),
        (
            ("remove", "old", "--namespace", "chat"),
            "headgate: invalid request: there is no consumer old in chat; there are: none\n",
        ),
        (("list", "--config", "none.toml"), "headgate: 1 setting is wrong:\n  none.toml: no such file or directory\n"),
    ],
)
def test_a_wrong_command_is_told(run: Run, open_group: OpenGroup, arguments: tuple[str, ...], says: str) -> None:
    """One clear error, and nothing is done."""
    open_group("old")
    open_group("sink")

    result = run(*arguments)

    assert (result.stdout, result.stderr, result.exit_code) == ("", says, 1)
    assert len(run("list").stdout.splitlines()) == 2
