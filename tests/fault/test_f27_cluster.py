"""F27: a Cluster under load: the slot of the namespace moves to another node, key by key, and a node dies and is replaced."""

import contextlib
import time
from pathlib import Path
from typing import Any

from headgate.redis.client import call, open_client
from headgate.redis.cluster import slot_of
from headgate.redis.keys import log_key
from tests.fault.conftest import ONLY_NIGHTLY
from tests.fault.figures import Figures
from tests.fault.many_clients import Swarm
from tests.fault.site import DEADLINE_S, NAMESPACE, Load, Publishing, Site, wait_for
from tests.support.clusters import Cluster, Node, start_cluster

ROUNDS = 20
# How long the keys are on two nodes, between one key and the next.
PAUSE_S = 0.1


class InACluster:
    """A Cluster as a site needs it, and the slot of the site's namespace."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.url = cluster.url
        self.slot = slot_of(log_key(NAMESPACE))

    def call(self, *command: str | bytes | int) -> Any:
        client = open_client(self.url, timeout_s=DEADLINE_S)
        try:
            return call(client, *command)
        finally:
            client.close()

    def move_slowly(self) -> None:
        """Move the slot to another primary: the log, the head and the epochs one by one, then all ids."""
        owner = self.cluster.owner_of_namespace(NAMESPACE)
        with self.cluster.moving(self.slot, self.cluster.another(owner)) as moving:
            for key in ("head", "log", "epochs"):
                moving.move_keys(f"hg:{{{NAMESPACE}}}:{key}")
                time.sleep(PAUSE_S)  # the length of the fault, as nothing here waits for anything

    def kill_owner(self) -> Node:
        """End the node that owns the slot, and let its replica take over; return the ended one."""
        owner = self.cluster.owner_of_namespace(NAMESPACE)
        replica = self.cluster.replica_of(owner)
        owner.kill()
        self.cluster.promote(replica, force=True)
        return owner

    def has_replica(self) -> bool:
        """Whether the owner of the slot has a replica that follows it."""
        role = self.cluster.owner_of_namespace(NAMESPACE).call("ROLE")
        return bool(role[0] == b"master" and role[2])


def flows_again(publishing: Publishing, swarm: Swarm) -> float:
    """Wait until an event is published, and then until one arrives; return how long that took from now, in s."""
    began_s, seen = time.monotonic(), len(publishing.receipts)
    wait_for(lambda: len(publishing.receipts) > seen, "an event to be published")
    had = len(swarm.records[0].seen())
    wait_for(lambda: len(swarm.records[0].seen()) > had, "events to flow")
    return time.monotonic() - began_s


@ONLY_NIGHTLY
def test_a_moved_slot_and_a_dead_node_lose_nothing_without_a_word(tmp_path: Path, load: Load, figures: Figures) -> None:
    """In turns, under load. A moved slot rolls nothing back; a dead node may, and each client is notified of exactly that."""
    moved_s: list[float] = []
    died_s: list[float] = []
    with contextlib.ExitStack() as ended:
        cluster = ended.enter_context(start_cluster(tmp_path / "redis", 3, 1))
        redis = InACluster(cluster)
        site = ended.enter_context(Site(tmp_path, load, behind=redis))
        site.wait_until_ready()
        swarm = site.swarm(whole=True).open()
        ended.callback(swarm.close)
        publishing = ended.enter_context(Publishing(redis.url, load, timeout_s=1.0))
        for _ in range(ROUNDS):
            publishing.wait_for(20)
            redis.move_slowly()
            moved_s.append(flows_again(publishing, swarm))
            wait_for(redis.has_replica, "a replica of the owner")
            publishing.wait_for(20)
            dead = redis.kill_owner()
            died_s.append(flows_again(publishing, swarm))
            dead.start()
        history = publishing.stop()
        site.come_to_rest(swarm, history)
    assert not any(record.gaps("log_lost") or record.gaps("trimmed") for record in swarm.records)
    figures("F27", "events are published and flow again, after the slot has moved", max(moved_s), "s", "≤ 5 s")
    figures(
        "F27", "events are published and flow again, after a replica has taken over from a dead node", max(died_s), "s", "≤ 5 s"
    )
    figures("F27", "moved slots and dead nodes: events lost unreported, doubled or shown though lost", 0, "", "0 (checked)")
