"""The rights that docs/consumers.md asks for the Redis user of consumers. All works with them, and not with one fewer."""

from collections.abc import Callable

import msgspec
import pytest

from headgate.consumers.work import groups
from headgate.consumers.work.dead_letters import DeadLetters
from headgate.consumers.work.groups import Groups
from headgate.consumers.work.state import State
from headgate.consumers.work.store import GROUP_LIBRARY, Store, TaskPage, back, dead, defer_for, done
from headgate.consumers.work.task import Task
from headgate.errors import BusRefused
from headgate.redis.client import Client, call, describe_server, open_client
from headgate.redis.embedded import EmbeddedRedis
from headgate.redis.functions import LOG_LIBRARY
from headgate.redis.inbox import mark_seen
from headgate.redis.keys import head_key
from headgate.redis.registry import give_word, read_elsewhere, take_out
from headgate.services.publisher import Publisher
from tests.support.redis_recipes import blocks, make_user, says_no_right, without

# The namespace's keys, channels and commands of consumers; the additional rights to publish; the rights of people's tools.
CONSUMERS, PUBLISHING, PEOPLE = blocks("consumers.md")
LEASE_MS = 60_000
GROUP = "hg:{notifications}:group:mail"
PIECE = Task("e" * 16, 1, "orders.1.paid", "id", 1000, b"1")

Limit = Callable[[list[str]], str]


@pytest.fixture
def limit(redis_client: Client, redis_server: EmbeddedRedis) -> Limit:
    """Give a user these rights alone, and return the URL with its name. The functions are loaded already."""
    for library in (GROUP_LIBRARY, LOG_LIBRARY):
        library.ensure_loaded(redis_client)

    def limit(rights: list[str]) -> str:
        make_user(redis_client, "limited", rights)
        return f"unix://limited:pass@{redis_server.url.removeprefix('unix://')}"

    return limit


def take(store: Store) -> TaskPage:
    page = store.take(100, LEASE_MS, 100, lambda topic: True)
    assert page is not None
    return page


def work(url: str, admin: Client, admin_url: str) -> None:
    """Take all steps of consumers, each at least once: begin, take, answer, wait, remember, lose the log, be forgotten."""
    publisher = Publisher(admin_url)
    publisher.publish_many([("a", number) for number in range(8)])
    describe_server(url)
    client = open_client(url)
    store = Store(client, url, "notifications", "mail", 65536)
    state = State(store)
    try:
        store.open("oldest")
        page = take(store)
        first, second, third, fourth, *others = page.work
        store.settle([done(second), defer_for(second.task, 0), back(third), done(fourth), dead(fourth.task, "rejected", "", 1)])
        collected = [msgspec.structs.replace(each.task, key="ada", together=True) for each in others]
        store.settle([done(each) for each in others] + [defer_for(task, 0) for task in collected])
        assert [taken.in_log for taken in take(store).work] == [True]
        held = take(store).work
        assert len(held) == 5
        store.renew([taken.name for taken in held], LEASE_MS)
        store.settle([done(third), *map(done, held)])
        store.acknowledge(page.epoch, [first.task.offset])
        store.confirm()
        store.wait(0, 1)

        assert state.progress().handled_ms
        assert [state.within_rate("r", 1, 60) is None for _ in range(2)] == [True, False]
        state.add({("n", 1): 2.0}, 60)
        assert state.sums([("n", range(2))]) == [2.0]
        state.put("v", b"1", 60)
        assert state.get("v") == b"1"
        assert [each.lease("l", 60) for each in (state, State(store))] == [True, False]
        mark_seen(admin, "notifications", "ada", ["an-id"])
        state.record("ada", "an-id", "mailed")
        assert state.user_facts("ada", "users.ada.inbox.news", "an-id").is_shown

        give_word(client, GROUP, "one/1")
        assert call(admin, "HEXISTS", GROUP, "at:one/1")
        assert read_elsewhere(client, GROUP) == ()
        take_out(client, GROUP, "one/1")
        assert not call(admin, "HEXISTS", GROUP, "at:one/1")

        call(admin, "DEL", "hg:{notifications}:head")
        publisher.publish("a", 1)
        assert take(store).lost == 1
        call(admin, "DEL", "hg:{notifications}:group:mail")
        store.open("lost")
    finally:
        store.close()
        client.close()
        publisher.close()


def publish(url: str) -> None:
    """Publish as a consumer does, for example alerts."""
    with Publisher(url) as publisher:
        publisher.publish("alerts.a", 1, "an-id", user="ada")
        publisher.publish("alerts.a", 1)


def look_after(url: str, admin: Client, admin_url: str) -> None:
    """Do all that people do with the command line."""
    store = Store(admin, admin_url, "notifications", "mail", 65536)
    store.open("new")
    store.settle([dead(PIECE, "rejected", "no", 10)] * 3)
    client = open_client(url)
    try:
        letters = DeadLetters(client, "notifications", "mail")
        one, *_ = letters.page()
        assert letters.show(one.id) == one
        assert (letters.drop([one.id]), letters.retry_all(), letters.drop_all()) == (1, 2, 0)
        State(store).put("v", b"1", 60)
        [status] = Groups(client, "notifications").statuses()
        assert Groups(client, "notifications").remove(status.name) == (1, 0)
        assert call(admin, "KEYS", "hg:{notifications}:group:*") == []
    finally:
        client.close()
        store.close()


@pytest.mark.usefixtures("quiet")
def test_these_rights_are_enough(limit: Limit, redis_client: Client, redis_url: str) -> None:
    """No other key, channel or command is needed."""
    work(limit(CONSUMERS), redis_client, redis_url)
    publish(limit(CONSUMERS + PUBLISHING))
    call(redis_client, "FLUSHALL")
    Publisher(redis_url).publish("a", 1)
    look_after(limit(CONSUMERS + PEOPLE), redis_client, redis_url)


def test_a_consumer_needs_each_of_its_rights(limit: Limit, redis_client: Client, redis_url: str) -> None:
    """A missing right is reported, and never passed over."""
    for index, missing in enumerate(CONSUMERS):
        if missing[0] != "-":
            call(redis_client, "FLUSHALL")
            url = limit(without(CONSUMERS, index))
            assert refusal(work, url, redis_client, redis_url) == "permission", missing


def test_publishing_needs_each_of_its_rights(limit: Limit, redis_client: Client) -> None:
    """Beside a consumer's own."""
    for index, missing in enumerate(PUBLISHING):
        call(redis_client, "FLUSHALL")
        call(redis_client, "HSET", head_key("notifications"), "database", 0)  # as a gateway says
        url = limit(CONSUMERS + without(PUBLISHING, index))
        assert refusal(publish, url) == "permission", missing


@pytest.mark.usefixtures("quiet")
def test_the_command_line_needs_each_of_its_rights(limit: Limit, redis_client: Client, redis_url: str) -> None:
    """Beside a consumer's own."""
    for index, missing in enumerate(PEOPLE):
        call(redis_client, "FLUSHALL")
        Publisher(redis_url).publish("a", 1)
        url = limit(CONSUMERS + without(PEOPLE, index))
        assert refusal(look_after, url, redis_client, redis_url) == "permission", missing


def refusal(act: Callable[..., None], *arguments: object) -> str:
    """Return "permission" when Redis refused for want of a right, else the other outcome."""
    try:
        act(*arguments)
    except BusRefused as error:
        return "permission" if says_no_right(str(error)) else str(error)
    return "it worked"


@pytest.fixture
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test waits for a minute."""
    monkeypatch.setattr(groups, "QUIET_S", 0.0)
