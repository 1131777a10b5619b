"""Gateways in the test's own process that hear questions about their clients, on a small Redis; and the asker.

In: gateways on the model (gateway_here.py), each as a separate process. Out: a `Clients` as any process may have one. Nothing
waits. A gateway that does not answer while everything happens that needs no time does not answer at all.
"""

from collections.abc import Callable, Iterator
from typing import Any

import gevent
import pytest

from headgate.redis.client import call_all
from headgate.redis.keys import NAMESPACES, gateways_key, questions_channel
from headgate.services.clients import Clients
from tests.support.gateway_here import GatewayOnModel, StartGatewayOnModel
from tests.support.small_redis import SmallRedis


class PeopleHere:
    """See the module. `clients` asks; `start` starts another gateway, which is registered under its `name`."""

    def __init__(self, start: StartGatewayOnModel) -> None:
        self._start = start
        self.redis = SmallRedis()
        # Below everything else, because a loop with callbacks left after its time slice is not idle.
        self.redis.idle = lambda: gevent.idle(-2)
        self.clients = Clients("redis://127.0.0.1:1/0")
        self.attach(self.clients)

    def attach(self, clients: Clients) -> None:
        """Let an asker talk to the small Redis."""
        clients._client = self.redis.client()

    def start(
        self, name: str = "a", *arguments: Any, hears: bool = True, answers: bool = True, **settings: Any
    ) -> GatewayOnModel:
        """Start a gateway. One that does not hear has no link to Redis; one that does not answer stands still."""
        here = self._start(*arguments, **settings)
        gateway = here.gateway
        gateway.cluster.table.id = f"{name}:1"
        gateway.cluster.answers._client = self.redis.client()
        for namespace in gateway.namespaces:
            call_all(
                self.redis.client(),
                [
                    ("ZADD", gateways_key(namespace), self.redis.now_s, gateway.cluster.table.id),
                    ("ZADD", NAMESPACES, self.redis.now_s, namespace),
                ],
            )
        self.redis.asked.clear()
        if hears:
            hear = gateway.cluster.answers.receive if answers else lambda message: None
            self.redis.hearers.setdefault(questions_channel(0), []).append(hear)
        return here

    def ask(self, question: Callable[[], Any]) -> Any:
        return gevent.spawn(question).get(timeout=30)


@pytest.fixture
def people(gateway_on_model: StartGatewayOnModel) -> Iterator[PeopleHere]:
    """No gateway yet."""
    people = PeopleHere(gateway_on_model)
    yield people
    people.clients.close()
