"""Exchanges data between this process and the others through Redis, and has the connections for this.

In: rates, counts and kinds of questions, from the other parts. Out: shared limits; the pauses; questions to the parts that know
the answers; the shared table, the traces and the numbers of this process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from headgate.auth.revocation_watch import ExtraChannel
from headgate.node.health import State
from headgate.node.namespace import Namespace
from headgate.redis import pauses
from headgate.redis.client import database_number, open_client
from headgate.redis.keys import questions_channel
from headgate.redis.questions import announce
from headgate.redis.registry import asked_about, note_served
from headgate.redis.shared_table import SharedTable
from headgate.runtime.periodic import PeriodicTask
from headgate.runtime.shared_rates import SharedRates
from headgate.settings.settings import Settings

from .answers import Answers, announced
from .log_maintenance import maintenance
from .pauses import Pauses
from .process_stats_watch import KIND, ProcessStatsWatch
from .statsd_push import StatsdPush
from .tracer import Tracer

COMMAND_TIMEOUT_S, PERIODIC_TIMEOUT_S = 2.0, 1.0
# The longest wait for the connection that all periodic tasks share. With a far Redis, each call of the others takes a while.
PERIODIC_WAIT_S = 5.0

Running: TypeAlias = Pauses | SharedTable | ProcessStatsWatch | PeriodicTask | Tracer | StatsdPush


class Cluster:
    """See the module.

    Args:
        state: returns the state of the process. It must not wait.

    Attributes:
        redis: a client for the needs of a request.
        periodic_redis: a client for periodic tasks, with one connection. A call without an answer delays the others no longer
            than its timeout.
        questions: the channel for the questions of the other processes.
    """

    def __init__(self, settings: Settings, namespaces: Mapping[str, Namespace], state: Callable[[], State]) -> None:
        assert settings.redis_url is not None  # the gateway has checked it
        self.redis = open_client(settings.redis_url, timeout_s=COMMAND_TIMEOUT_S)
        self.periodic_redis = open_client(
            settings.redis_url, timeout_s=PERIODIC_TIMEOUT_S, max_connections=1, wait_s=PERIODIC_WAIT_S
        )
        self.table = SharedTable(self.periodic_redis, namespaces)
        self.pauses = Pauses(self.periodic_redis)
        self._rates: list[SharedRates] = []
        self.process_stats = ProcessStatsWatch(self.table, namespaces, state, lambda: announce(self.periodic_redis, KIND))
        self.answers = Answers(self.redis, self.table)
        self.answers.add({pauses.KIND: announced(self.pauses.hurry, may_be_missed=False)})
        self.answers.add({KIND: announced(self.process_stats.on_notice, may_be_missed=True)})
        channel = questions_channel(database_number(self.redis))
        self.questions = ExtraChannel(channel, self.answers.begin, self.answers.receive)
        self._others: list[Running] = [self.process_stats, self.table, self.pauses]
        self._others += [maintenance(self.periodic_redis, settings, namespaces), Tracer(self.periodic_redis, namespaces)]
        if settings.statsd is not None:
            self._others.append(StatsdPush(settings.statsd))
        for name, namespace in namespaces.items():
            namespace.on_log_lost = self.table.renew
            self.share(namespace.search.reads)
            note_served(asked_about(self.redis), name, is_served=True)  # publishers in this process need not ask

    def start(self) -> None:
        """Register, and start exchanging with the other processes. Idempotent."""
        for each in self._others:
            each.start()

    def share(self, rates: SharedRates) -> None:
        """Share a rate with all processes. Each has its own label."""
        self._rates.append(rates)
        rates.wanted = self.table.add(rates)

    def apply(self, settings: Settings) -> None:
        """Apply the settings to all rates."""
        for rates in self._rates:
            if rates.label == "publish":
                rates.apply(settings.publish_per_s, settings.publish_burst)
            elif rates.label.partition(":")[0] in ("read", "replay"):
                rates.apply(settings.read_per_s, settings.read_burst)

    def close(self) -> None:
        """Remove this process from the table, and close the connections. Idempotent. Waits for Redis."""
        for each in self._others:
            each.close()
        self.answers.close()
        self.redis.close()
        self.periodic_redis.close()
