"""Presence on a Cluster, with Sentinels, and as a Redis user with no more than the documented rights: two processes each."""

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import gevent
import pytest

from headgate.node.presence import presence as presence_module
from headgate.node.presence.presence import Presence
from headgate.redis import presence as store
from headgate.redis.client import Client, call
from headgate.redis.presence import PRESENCE_LIBRARY
from headgate.settings.settings import Settings
from tests.support.bus_here import CooperativeLink
from tests.support.clusters import start_cluster
from tests.support.presence_world import Page
from tests.support.sentinels import start_sentinels

DEADLINE_S = 30.0
TOPIC = "rooms.7"
DOCUMENTED = re.compile(r"^\| \[presence\]\(\S+\), as a gateway \| `([^`]*)` \| `([^`]*)` \|$", re.MULTILINE)


@pytest.fixture(autouse=True)
def cooperative_links(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(presence_module, "SubscriberLink", CooperativeLink)


def wait_for(condition: Callable[[], object], what: str) -> None:
    with gevent.Timeout(DEADLINE_S, AssertionError(f"not in time: {what}")):
        while not condition():
            gevent.sleep(0.005)


class ProcessHere:
    """The presence of a process, and a page at it."""

    def __init__(self, url: str, user: str) -> None:
        self.events: list[str] = []
        publish: Any = lambda topic, *_: self.events.append(topic)  # noqa: E731
        self.presence = Presence("notifications", url, Settings(presence_events=("rooms.#",)), publish)
        self.page = Page(user, user)
        self.enter()

    def enter(self) -> None:
        self.presence.prepare(self.page.session, TOPIC)
        self.page.begin(self.presence.rooms.enter(self.page.session, TOPIC, self.page, self.page.user, None))

    def shows(self, *users: str) -> bool:
        if self.page.members is None:
            self.enter()
        return sorted(self.page.members or ()) == sorted(users)


@contextmanager
def two_processes(url: str) -> Iterator[tuple[ProcessHere, ProcessHere]]:
    """Two processes with users that see each other."""
    with ExitStack() as stack:
        both = []
        for user in ("ana", "ben"):
            both.append(ProcessHere(url, user))
            stack.callback(both[-1].presence.close)
        for each in both:
            wait_for(lambda each=each: each.shows("ana", "ben"), "both")  # type: ignore[misc]
        yield both[0], both[1]


def see_each_other_leave(here: ProcessHere, there: ProcessHere) -> None:
    """One leaves, and comes back; then both leave, and the topic is vacant."""
    there.presence.rooms.leave("ben", TOPIC)
    wait_for(lambda: here.shows("ana"), "ben has left")
    there.enter()
    wait_for(lambda: here.shows("ana", "ben"), "ben is back")
    for each in (here, there):
        each.presence.rooms.leave(each.page.session, TOPIC)
    wait_for(lambda: f"{TOPIC}.vacated" in here.events + there.events, "vacated")
    assert f"{TOPIC}.occupied" in here.events + there.events


def test_a_cluster_has_all_of_a_namespace_in_one_slot(tmp_path: Path) -> None:
    """So the functions may build the names of their keys, and a topic is read from one node."""
    with start_cluster(tmp_path / "nodes", 3, 0) as cluster, two_processes(cluster.url) as both:
        see_each_other_leave(*both)


@pytest.mark.nightly
def test_a_failover_by_sentinels_is_seen_by_nobody(tmp_path: Path) -> None:
    """The new primary may lack the last members; each process writes its own again, and keeps those of the other until then."""
    with start_sentinels(tmp_path / "site") as site, two_processes(site.url) as (here, there):
        site.servers[0].kill()
        others = [each.presence.rooms.open[TOPIC].others for each in (here, there)]
        before = [each.doubts for each in others]

        def both_have_read_again() -> bool:
            return all(each.is_live and each.doubts > nth for each, nth in zip(others, before, strict=True))

        wait_for(both_have_read_again, "both have read the new primary")
        wait_for(lambda: here.shows("ana", "ben") and there.shows("ana", "ben"), "both")
        assert (here.page.seen_leaving, there.page.seen_leaving) == ([], [])
        see_each_other_leave(here, there)


def test_the_documented_rights_are_enough(redis_client: Client, redis_server: Any) -> None:
    """For a process that may do nothing else, where the library is loaded already. A death is reported too."""
    PRESENCE_LIBRARY.ensure_loaded(redis_client)
    found = DOCUMENTED.search((Path(__file__).parents[3] / "docs/operations/redis-users.md").read_text("utf-8"))
    assert found is not None
    rights = f"{found[2]} +fcall {found[1]} ~hg:{{<namespace>}}:presence*".replace("<namespace>", "notifications").split()
    call(redis_client, "ACL", "SETUSER", "gate", "reset", "on", ">pass", "-@all", *rights)
    url = f"unix://gate:pass@{redis_server.url.removeprefix('unix://')}"
    with two_processes(url) as (here, there):
        see_each_other_leave(here, there)
        there.enter()
        there.presence.close()
        here.enter()
        beats = store.beat(redis_client, "notifications", "")[3]
        store.forget(here.presence._redis, "notifications", there.presence.rooms.process, None, events=True)
        assert there.presence.rooms.process in beats
        wait_for(lambda: here.shows("ana"), "a dead process's members are gone")
    call(redis_client, "ACL", "DELUSER", "gate")
