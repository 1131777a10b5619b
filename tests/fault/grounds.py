"""The grounds of the mixture: Redis at an address that moves, with Sentinels, and as a Cluster; and the faults of each.

A fault takes the random numbers of its step. It waits until the ground is whole, and notes itself in `Faults`, with the time in
which it excuses a lost event, and a repeated delivery. Each ground has

- url, addresses: for publishers and consumers, and for each gateway.
- at_once, lasting: its faults, by name; one that lasts is a context manager.
- paused: its processes that can be paused for long, by name.
- losing: the faults at once that lose the end of the log.
- needed: those of the processes without which nothing of the ground's own can happen.
- replaced: those of them that another one replaces.
"""

import contextlib
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

from headgate.errors import HeadgateError
from headgate.redis.client import call, open_client
from headgate.redis.cluster import slot_of
from headgate.redis.functions import SOURCE, VERSION
from headgate.redis.keys import log_key
from tests.fault.accounts import Fault, Faults
from tests.fault.pair import Lose, Pair, copy, crash, promoted, put_back, two_servers
from tests.fault.site import DEADLINE_S, NAMESPACE, wait_for
from tests.support.clusters import start_cluster
from tests.support.redis_process import Server
from tests.support.sentinels import PRIMARY, dict_of, start_sentinels

At = Callable[[random.Random], object]
Lasting = Callable[[random.Random], contextlib.AbstractContextManager[object]]
# Returns a process with `pause` and `go_on` (SIGSTOP, SIGCONT).
Paused = Callable[[random.Random], Any]
Ground: TypeAlias = "AnAddress | Sentinels | ACluster"
# Of events that a primary has acknowledged, those of so long before its end may not have reached its replica.
BEHIND_S = 0.5
# How long an old primary may live on before it is made a replica. With Sentinels they do, some ten seconds later.
LIVES_ON_S = 3.0
# A server with so long a silence has failed. A starved machine is silent for a second, which must cause no failover.
SILENT_MS, MAX_SILENT_MS = 3000, 600_000
LIVES_ON = "the address moves, the old primary lives on"


def empty(ground: Ground) -> None:
    """Forget everything that the ground holds."""
    ground.be_whole()
    for server in ground.servers():
        if server.call("ROLE")[0] == b"master":
            server.call("FLUSHALL")


def kill_clients(ground: Ground, kind: str) -> None:
    """End the connections of a kind (`normal`, `pubsub`) at every server that answers."""
    with ground.faults.one(f"{kind} connections killed"):
        for server in ground.servers():
            with contextlib.suppress(HeadgateError):
                server.call("CLIENT", "KILL", "TYPE", kind)


def replace_functions(ground: Ground, moments: random.Random) -> None:
    """Flush the functions of every primary, or load a library of an older, the same or a newer version, as an upgrade does."""
    version = moments.choice([VERSION - 1, VERSION, VERSION + 1])
    source = SOURCE.replace(f"local VERSION = {VERSION}", f"local VERSION = {version}", 1)
    command = moments.choice([("FUNCTION", "FLUSH"), ("FUNCTION", "LOAD", "REPLACE", source)])
    with ground.faults.one(f"{' '.join(command[:2])}, version {version}"):
        for server in ground.servers():
            with contextlib.suppress(HeadgateError):
                server.call(*command)


class AnAddress(Pair):
    """Two servers at one address, which may lead elsewhere while the old primary lives on."""

    losing: tuple[str, ...] = ("end of the log lost", "a replica that lags takes over", LIVES_ON, "two failovers in a row")
    needed: tuple[str, ...] = ("Redis",)
    replaced: tuple[str, ...] = ()

    def __init__(self, folder: Path, gateways: int, faults: Faults) -> None:
        super().__init__(folder, gateways)
        self.faults = faults
        self.at_once: dict[str, At] = {
            "connections to Redis reset": lambda moments: moments.choice(self.relays).reset(),
            "Redis killed": lambda moments: self._kill(),
            "end of the log lost": lambda moments: self._lose(moments, moments.choice([crash, crash, copy, put_back])),
            "a replica that lags takes over": lambda moments: self._lose(moments, promoted),
            LIVES_ON: lambda moments: self._lose(moments, lambda pair: two_servers(pair, moments)),
            "FAILOVER, then the address moves": lambda moments: self._fail_over(),
            "two failovers in a row": self._twice,
        }
        self.lasting: dict[str, Lasting] = {
            "black hole": lambda moments: self._relay_is("black_hole", moments),
            "half open": lambda moments: self._relay_is("half_open", moments),
            "partition": lambda moments: self._relay_is("pause", moments),
            "refused": lambda moments: self._relay_is("refuse", moments),
        }
        self.paused: dict[str, Paused] = {"Redis": lambda moments: self.primary}

    def servers(self) -> list[Any]:
        return [self.primary]

    def be_whole(self) -> None:
        """A replica that lives on is put in its place by the fault itself."""

    @contextlib.contextmanager
    def _relay_is(self, how: str, moments: random.Random) -> Any:
        relay = moments.choice(self.relays)
        getattr(relay, how)()
        try:
            yield
        finally:
            relay.heal()

    def _kill(self) -> None:
        with self.faults.one("Redis killed"):
            self.primary.kill()
            self.primary.start()

    def _lose(self, moments: random.Random, prepare: Callable[[Pair], Lose], rest_s: float = 1.0) -> None:
        with self.faults.one("end of the log lost", loses=True) as fault:
            before, lose = self.primary, prepare(self)
            time.sleep(moments.uniform(0, rest_s))  # publishes in between will be lost
            lose()
            if self.primary is not before:
                fault.moved_s = time.monotonic()
            if self.replica.call("INFO", "replication")["role"] != "slave":
                time.sleep(moments.uniform(0, LIVES_ON_S))  # the old primary lives on
                self.redirect(self.primary)
                self.replica.call("REPLICAOF", "127.0.0.1", self.primary.port)

    def _twice(self, moments: random.Random) -> None:
        self._lose(moments, promoted, 0.3)
        self._lose(moments, promoted, 0.0)

    def _fail_over(self) -> None:
        """As docs/operations/failover.md has it, Redis pauses writes until the replica has everything."""
        with self.faults.one("FAILOVER"):
            self.begin_to_follow()
            self.primary.call("FAILOVER", "TO", "127.0.0.1", self.replica.port, "TIMEOUT", 10000)
            wait_for(lambda: role(self.replica) == "master", "the failover", DEADLINE_S)
            self.take_over()


class Sentinels:
    """A primary with two replicas, and three Sentinels."""

    losing: tuple[str, ...] = ("the primary freezes, its replicas lag",)
    needed: tuple[str, ...] = ("the Redis primary",)
    replaced = needed

    def __init__(self, folder: Path, gateways: int, faults: Faults, started: contextlib.ExitStack) -> None:
        self.faults = faults
        self._site = started.enter_context(start_sentinels(folder / "sentinels", replicas=2))
        self._call_failed_after(SILENT_MS, *self._site.sentinels)
        self.addresses = [self._site.url] * gateways
        self.at_once: dict[str, At] = {
            "planned failover": lambda moments: self._planned(1),
            "two planned failovers in a row": lambda moments: self._planned(2),
            "primary killed": lambda moments: self._killed(),
            "the primary freezes, its replicas lag": self._frozen,
        }
        self.lasting: dict[str, Lasting] = {}
        self.paused: dict[str, Paused] = {
            "the Redis primary": lambda moments: self.primary(),
            "a Sentinel": lambda moments: self._site.sentinels[2],
        }

    @property
    def url(self) -> str:
        return self._site.url

    def call(self, *command: str | bytes | int) -> Any:
        with open_client(self.url, timeout_s=DEADLINE_S) as client:
            return call(client, *command)

    def servers(self) -> list[Any]:
        return self._site.servers

    def primary(self) -> Server:
        """Return the server that a Sentinel names."""
        address = self._site.sentinels[0].call("SENTINEL", "GET-MASTER-ADDR-BY-NAME", PRIMARY)
        return next(server for server in self._site.servers if server.port == int(address[1]))

    def be_whole(self) -> None:
        wait_for(self._is_whole, "servers and Sentinels to be in step", DEADLINE_S)

    def _is_whole(self) -> bool:
        try:
            primary = self.primary()
            roles = [server.call("INFO", "replication") for server in self._site.servers if server is not primary]
            known = [dict_of(sentinel.call("SENTINEL", "MASTER", PRIMARY)) for sentinel in self._site.sentinels[:2]]
        except HeadgateError:
            return False
        follow = [each.get("master_port") == primary.port and each.get("master_link_status") == "up" for each in roles]
        agree = [each["flags"] == "master" and int(each["port"]) == primary.port for each in known]
        return all(follow) and all(agree) and all(int(each["num-slaves"]) == 2 for each in known)

    def _call_failed_after(self, silent_ms: int, *sentinels: Server) -> None:
        for sentinel in sentinels:
            sentinel.call("SENTINEL", "SET", PRIMARY, "down-after-milliseconds", silent_ms)

    def _moved(self, fault: Fault, old: Server, *, planned: bool = False) -> None:
        def taken_over() -> bool:
            with contextlib.suppress(HeadgateError):
                primary = self.primary()
                if planned and primary is old:
                    self._ask_again()
                return primary is not old and role(primary) == "master"
            return False

        wait_for(taken_over, "another server to be the primary", DEADLINE_S)
        fault.moved_s = time.monotonic()

    def _ask_again(self) -> None:
        """A Sentinel gives a failover up whose replica is not promoted within its `failover-timeout`, as on a busy machine."""
        if "failover_in_progress" not in dict_of(self._site.sentinels[0].call("SENTINEL", "MASTER", PRIMARY))["flags"]:
            self._accepts()

    def _planned(self, times: int) -> None:
        """The old primary lives on and takes events until the Sentinels make it a replica."""
        self.be_whole()
        for _ in range(times):
            old = self.primary()
            with self.faults.one("planned failover", loses=True) as fault:
                fault.lives_on = True
                wait_for(self._accepts, "a Sentinel to accept a failover", DEADLINE_S)
                self._moved(fault, old, planned=True)

    def _accepts(self) -> bool:
        with contextlib.suppress(HeadgateError):
            return bool(self._site.sentinels[0].call("SENTINEL", "FAILOVER", PRIMARY))
        return False

    def _killed(self) -> None:
        self.be_whole()
        old = self.primary()
        with self.faults.one("primary killed", loses=True) as fault:
            fault.began_s -= BEHIND_S
            old.kill()
            self._moved(fault, old)
            old.start()  # empty; the Sentinels make it a replica

    def _frozen(self, moments: random.Random) -> None:
        """For a moment the replicas get no events that publishers have receipts for; then the primary freezes."""
        self.be_whole()
        old = self.primary()
        replicas = [server for server in self._site.servers if server is not old]
        majority = self._site.sentinels[:2]  # the third may be paused
        # Not before the replicas follow it again, which has taken five seconds on a busy machine.
        self._call_failed_after(MAX_SILENT_MS, *majority)
        with self.faults.one("primary frozen", loses=True) as fault:
            fault.lives_on = True
            for replica in replicas:
                replica.call("REPLICAOF", "127.0.0.1", "1")
            time.sleep(moments.uniform(0, 0.5))  # publishes in between will be lost
            old.pause()
            for replica in replicas:
                replica.call("REPLICAOF", "127.0.0.1", old.port)
            self._call_failed_after(SILENT_MS, *majority)
            try:
                self._moved(fault, old)
            finally:
                old.go_on()


class ACluster:
    """Three primaries with a replica each; the namespace's slot moves between them."""

    losing: tuple[str, ...] = ("the owner dies",)
    needed: tuple[str, ...] = ("the owner",)
    replaced = needed

    def __init__(self, folder: Path, gateways: int, faults: Faults, started: contextlib.ExitStack) -> None:
        self.faults = faults
        self._cluster = started.enter_context(start_cluster(folder / "cluster", 3, 1))
        for node in self._cluster.nodes:
            node.call("CONFIG", "SET", "cluster-node-timeout", SILENT_MS)
        self._slot = slot_of(log_key(NAMESPACE))
        self.addresses = [self._cluster.url] * gateways
        self.at_once: dict[str, At] = {
            "the slot moves": self._move,
            "the owner dies": lambda moments: self._die(),
            "planned failover": lambda moments: self._planned(1),
            "two planned failovers in a row": lambda moments: self._planned(2),
        }
        self.lasting: dict[str, Lasting] = {}
        self.paused: dict[str, Paused] = {"the owner": lambda moments: self._owner()}

    @property
    def url(self) -> str:
        return self._cluster.url

    def call(self, *command: str | bytes | int) -> Any:
        with open_client(self.url, timeout_s=DEADLINE_S) as client:
            return call(client, *command)

    def servers(self) -> list[Any]:
        return list(self._cluster.nodes)

    def be_whole(self) -> None:
        wait_for(self._is_whole, "the nodes to be in step", DEADLINE_S)

    def _owner(self) -> Any:
        return self._cluster.owner_of_namespace(NAMESPACE)

    def _is_whole(self) -> bool:
        try:
            roles = [node.call("ROLE") for node in self._cluster.nodes]
            owners = {self._named(node) for node in self._cluster.nodes}
        except (HeadgateError, AssertionError):
            return False
        primaries = {node.port for node, each in zip(self._cluster.nodes, roles, strict=True) if each[0] == b"master"}
        followed = {each[2] for each in roles if each[0] == b"slave" and each[3] == b"connected"}
        return len(owners) == 1 and len(primaries) == 3 and followed == primaries

    def _named(self, node: Any) -> bytes:
        """Return whom a node names as the owner of the slot."""
        slots = node.call("CLUSTER", "SLOTS")
        return next((bytes(primary[2]) for first, last, primary, *_ in slots if first <= self._slot <= last), b"")

    def _move(self, moments: random.Random) -> None:
        """The log, the head and the epochs one by one, then all ids, so the keys are on two nodes for a while."""
        self.be_whole()
        to = self._cluster.another(self._owner())
        with self.faults.one("the slot moves") as fault, self._cluster.moving(self._slot, to) as moving:
            for key in ("head", "log", "epochs"):
                moving.move_keys(f"hg:{{{NAMESPACE}}}:{key}")
                time.sleep(moments.uniform(0, 0.1))  # for as long as this the fault lasts
            moving.finish()
            fault.moved_s = time.monotonic()

    def _die(self) -> None:
        self.be_whole()
        owner = self._owner()
        replica = self._cluster.replica_of(owner)
        with self.faults.one("the owner dies", loses=True) as fault:
            fault.began_s -= BEHIND_S
            owner.kill()
            self._cluster.promote(replica, force=True)
            fault.moved_s = time.monotonic()
        owner.start()

    def _planned(self, times: int) -> None:
        """CLUSTER FAILOVER pauses writes until the replica has everything."""
        for _ in range(times):
            self.be_whole()
            with self.faults.one("planned failover"):
                self._cluster.promote(self._cluster.replica_of(self._owner()))


def role(server: Any) -> str:
    """Return the role that a server reports, or nothing."""
    try:
        return str(server.call("INFO", "replication")["role"])
    except HeadgateError:
        return ""
