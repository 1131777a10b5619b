"""A gateway in the test's own process, for requests without a connection: publish, identify, read the log.

It is never started, so it hears nothing from the bus and serves no browser. Redis is real.
"""

from collections.abc import Iterator
from typing import Protocol

import pytest
from flask import Flask

from headgate import Headgate
from headgate.auth.identity import Authenticator
from headgate.redis.keys import REVOKED
from headgate.settings.settings import Settings


class UnstartedGateway(Protocol):
    """The fixture `unstarted_gateway`: call it with settings, get the extension of an application with a gateway."""

    def __call__(self, settings: Settings, authenticator: Authenticator | None = None) -> Headgate: ...


@pytest.fixture
def patched_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the extension take this process for one that gevent has patched."""
    for module in ("headgate.flask.extension", "headgate.transport.socketio_face"):
        monkeypatch.setattr(f"{module}.is_patched", lambda: True)


@pytest.fixture
def unstarted_gateway(patched_here: None) -> Iterator[UnstartedGateway]:
    """Make gateways in this process: `unstarted_gateway(Settings(redis_url=redis_url))`. All are closed with the test."""
    made: list[Headgate] = []

    def make(settings: Settings, authenticator: Authenticator | None = None) -> Headgate:
        gate = Headgate(Flask(__name__), authenticator=authenticator, settings=settings)
        made.append(gate)
        know_revocations(gate)
        return gate

    yield make
    for gate in made:
        gate.close()


def know_revocations(gate: Headgate) -> None:
    """Have a gateway without a start read the revocations from Redis, as its watch does at the start."""
    gate.gateway.access.revocations._take([[b"subscribe", REVOKED.encode(), b"1"]])
