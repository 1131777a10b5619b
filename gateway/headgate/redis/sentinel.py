"""Finds the primary of a Redis with Sentinels.

In: a RedisUrl that names Sentinels and the primary. Out: the primary, for connections that connect, and that check now and then
whether it has changed (bounded.py decides when).

Sentinels learn of a failover one after another, and some may not answer. Each failover has a number, the epoch of its
configuration. At first the newest one that most Sentinels name counts. Later this process accepts nothing older than it knows,
unless all Sentinels name it, as after a new setup. (In every failover most Sentinels lag for a moment.) If two primaries have
the same number, the known one counts until most Sentinels name the other. An open connection asks one Sentinel at a time, by
turns. The Sentinel that leads a failover names the new primary once it is promoted (GET-MASTER-ADDR-BY-NAME), the others a
moment later.

The URL's user, password and database are for Redis. Options: `sentinel_username`, `sentinel_password`, `sentinel_tls` (yes or
no; by default as for Redis). The TLS options for Redis (`ssl_ca_certs`, …) apply to the Sentinels too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from time import monotonic
from typing import Any, NamedTuple

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from headgate.settings.addresses.redis_url import Node, RedisUrl, shown_node

from .bounded import Connection, TlsConnection
from .budget import left_s
from .faults import LOCKED_OUT, NO_COMMAND, reason_of, reply_of
from .primary_switch import ASK_EVERY_SENTINEL_S, MAX_ADDRESSES

# A silent Sentinel must not use up the time of the others, so for a while it is asked last, or not at all.
ASK_TIMEOUT_S, SILENT_S = 0.5, 10.0
# A shorter wait proves nothing about a Sentinel, because it writes its configuration to the disk in the middle of a failover.
LEAST_SILENCE_S = 0.2
# If the others are slow, one answer suffices. They only confirm that it is the newest.
SECOND_TIMEOUT_S = 0.1


class SentinelAnswer(NamedTuple):
    """The primary, and the epoch of the failover that promoted it."""

    epoch: int
    node: Node


def newest_of(known: SentinelAnswer | None, answers: Sequence[SentinelAnswer], sentinels: int) -> SentinelAnswer | None:
    """Return the answer that counts, from the last answers of some of the Sentinels; None without any.

    Two Sentinels that name the same failover but different servers disagree permanently. They watch different servers under one
    name, or one uses the server's name and the other its address. Then a change needs the majority of all Sentinels, so that no
    connection alternates between the two.
    """
    if not answers:
        return known
    newest = max(answer.epoch for answer in answers)
    [(best, votes)] = Counter(answer for answer in answers if answer.epoch == newest).most_common(1)
    if known is None or best.epoch > known.epoch:
        return best
    return best if (votes > sentinels / 2 if best.epoch == known.epoch else len(answers) == sentinels) else known


class Discovery:
    """Asks the Sentinels at `address` where the primary is."""

    def __init__(self, address: RedisUrl) -> None:
        self.address = address
        self._newest: SentinelAnswer | None = None
        self._newest_s = 0.0  # when a Sentinel last named `newest`
        self._last: dict[Node, SentinelAnswer] = {}  # the last answer of each Sentinel
        self._turn = 0
        self._silent_until_s: dict[Node, float] = {}
        self._faults: dict[Node, str] = {}  # why the last question to a Sentinel brought no primary
        own = dict(address.sentinel)
        self._kind = TlsConnection if own.get("tls", address.tls) else Connection
        self._options: dict[str, Any] = {"protocol": 2, "retry": Retry(NoBackoff(), 0)}
        if "password" in own:
            self._options |= {"username": own.get("username"), "password": own["password"]}
        if self._kind is TlsConnection:
            self._options |= {name: value for name, value in address.options if name.startswith("ssl_")}

    def shown(self) -> str:
        """Return the address with the known primary, for errors. Never waits."""
        return str(self.address) + (f" (primary {shown_node(self._newest.node)})" if self._newest else "")

    def primary(self) -> Node:
        """Return host and port of the primary. Waits at most ASK_TIMEOUT_S for each Sentinel.

        Uses a known answer while an open connection would use it, too. After a failover a process makes ten connections at
        once, and the first Sentinel may be busy with the failover. Raises redis.ConnectionError: none answers, or none knows a
        running primary of that name.
        """
        known, answers = self._newest, list[SentinelAnswer]()
        if known is not None and monotonic() - self._newest_s < ASK_EVERY_SENTINEL_S:
            return known.node
        left = left_s()
        hosts = sorted(self.address.hosts, key=self._is_silent)
        for answer in self._answers(hosts, ASK_TIMEOUT_S * len(hosts) if left is None else left):
            answers.append(answer)
            if len(answers) > len(hosts) / 2 if known is None else answer == known or answer.epoch > known.epoch:
                break
        if not answers:
            faults = self._shown_faults()
            raise redis.ConnectionError(f"none of them answers and knows a primary of that name that is up ({faults})")
        return self._counted(answers).node

    def newer_primary(self, within_s: float) -> Node | None:
        """Ask the next Sentinel, and return host and port of the primary that counts then; None if it has not answered.

        Waits at most `within_s`, and skips recently silent Sentinels.
        """
        awake = self.awake() or self.address.hosts
        self._turn += 1
        answers = list(self._answers([awake[self._turn % len(awake)]], within_s))
        return self._counted(answers).node if answers else None

    def awake(self) -> list[Node]:
        """Return the Sentinels without recent silence."""
        return [each for each in self.address.hosts if not self._is_silent(each)]

    def _is_silent(self, sentinel: Node) -> bool:
        return self._silent_until_s.get(sentinel, 0.0) > monotonic()

    def _counted(self, answers: Sequence[SentinelAnswer]) -> SentinelAnswer:
        """Return the answer that counts, from one or more fresh answers."""
        # Compared with the present state, because other connections may have asked during the wait.
        newest = newest_of(self._newest, list(self._last.values()), len(self.address.hosts))
        assert newest is not None
        self._newest = newest
        if newest in answers:
            self._newest_s = monotonic()
        return newest

    def _answers(self, sentinels: Sequence[Node], within_s: float) -> Iterator[SentinelAnswer]:
        """Ask the Sentinels in turn. Each gets its share of the remaining time, at most ASK_TIMEOUT_S."""
        end_s, longest_s = monotonic() + within_s, ASK_TIMEOUT_S
        for index, sentinel in enumerate(sentinels):
            began_s = monotonic()
            wait_s = min(longest_s, max(end_s - began_s, 0.001) / (len(sentinels) - index))
            try:
                answer = self._ask(sentinel, wait_s)
            except redis.TimeoutError:
                self._faults[sentinel] = "no answer in time"
                if wait_s >= LEAST_SILENCE_S:
                    self._silent_until_s[sentinel] = monotonic() + SILENT_S
                continue
            except redis.ConnectionError as error:
                self._faults[sentinel] = fault_of(error)
                self._silent_until_s[sentinel] = monotonic() + SILENT_S
                continue
            self._silent_until_s.pop(sentinel, None)
            if isinstance(answer, str):
                self._faults[sentinel] = answer
            else:
                longest_s = SECOND_TIMEOUT_S
                self._last[sentinel] = answer
                yield answer

    def _shown_faults(self) -> str:
        """Return why each Sentinel named no primary, in few words."""
        faults = {node: self._faults.get(node, "not asked") for node in self.address.hosts}
        if len(set(faults.values())) == 1:
            return next(iter(faults.values()))
        return ", ".join(f"{shown_node(node)}: {fault}" for node, fault in faults.items())

    def _ask(self, sentinel: Node, wait_s: float) -> SentinelAnswer | str:
        """Return the answer of a Sentinel, or why it has none.

        Raises redis.ConnectionError, redis.TimeoutError: it does not answer.
        """
        kinds: Any = redis.ConnectionPool  # redis-py does not type its constructor
        host, port = sentinel
        limits = dict.fromkeys(("socket_timeout", "socket_connect_timeout", "within_s"), wait_s)
        pool = kinds(connection_class=self._kind, host=host, port=port, **limits, **self._options)
        client: Any = redis.Redis.from_pool(pool)
        try:
            pipeline = client.pipeline(transaction=False)
            pipeline.execute_command("SENTINEL MASTER", self.address.primary)
            pipeline.execute_command("SENTINEL GET-MASTER-ADDR-BY-NAME", self.address.primary)
            state, node = pipeline.execute(raise_on_error=False)
        finally:
            with suppress(redis.RedisError, OSError):
                client.close()
        return read_answer(state, node) or fault_of(state)


@lru_cache(MAX_ADDRESSES)
def discovery_of(address: RedisUrl) -> Discovery:
    """Return the discovery of an address, which all pools of this process share."""
    return Discovery(address)


def read_answer(state: Any, node: Any) -> SentinelAnswer | None:
    """Return the answer in two replies of a Sentinel, as redis-py shapes them; None if it knows no running primary.

    Once it has seen the promotion, it names the new primary, while the state is still the old one's, up or down.
    """
    if not isinstance(state, Mapping) or not isinstance(node, tuple | list) or len(node) != 2:
        return None
    host, port = node
    named = (host.decode() if isinstance(host, bytes) else str(host)), int(port)
    is_promoted = named != (str(state["ip"]), int(state["port"]))
    is_up = state["is_master"] and not state["is_sdown"] and not state["is_odown"]
    return SentinelAnswer(int(state["config-epoch"]), named) if is_promoted or is_up else None


def fault_of(state: Any) -> str:
    """Return why a Sentinel names no primary, from its reply to SENTINEL MASTER or the error of the connection."""
    if not isinstance(state, Exception):
        return "the primary is down"
    code = reply_of(state)[0]
    if code == NO_COMMAND:
        return "not a Sentinel"
    return "wrong sentinel_username or sentinel_password" if code in LOCKED_OUT else reason_of(state)
