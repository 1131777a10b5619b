"""Applications on headgate.socketio in one process, and their ends."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support.session_clock import turn
from tests.support.socketio_application import Application, without_blocking


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Application]]:
    """Make applications with these limits and options; they are over with the test."""
    without_blocking(monkeypatch)
    made: list[Application] = []

    def make(**options: Any) -> Application:
        made.append(Application(**options))
        return made[-1]

    yield make
    for application in made:
        for gate in (application.gate, application.join_gate, application.room.gate):
            gate.set()
        application.sio.eio.disconnect()
        turn()
        application.sio.eio.deadlines.close()


@pytest.fixture
def application(make: Callable[..., Application]) -> Application:
    return make()
