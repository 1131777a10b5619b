"""Health: ready means that events flow, that revocations are known, and that the gateway stays."""

from types import SimpleNamespace

import pytest

from headgate.errors import BusUnavailable
from headgate.node.health import State, health
from tests.unit.node.connections import RecordedNamespace, joined

UP = SimpleNamespace(up=True, epoch="e", reached=7, last_error=None)
DOWN = SimpleNamespace(up=False, epoch=None, reached=0, last_error=BusUnavailable("127.0.0.1:1: connection refused"))


@pytest.mark.parametrize(
    ("buses", "known", "draining", "ready"),
    [
        ((UP,), True, False, True),
        ((UP, UP), True, False, True),
        ((UP, DOWN), True, False, False),
        ((UP,), False, False, False),
        ((UP,), True, True, False),
    ],
)
def test_it_is_ready_if_nothing_is_amiss(buses: tuple[SimpleNamespace, ...], known: bool, draining: bool, ready: bool) -> None:
    """One namespace without its bus is enough not to be."""
    namespaces = {f"n{number}": RecordedNamespace(bus=bus).real() for number, bus in enumerate(buses)}
    told = health(namespaces, State(revocations_known=known, draining=draining))
    assert (told["ready"], told["revocations"]) == (ready, known)
    assert told["bus"] == ("down" if DOWN in buses else "up")


def test_each_namespace_says_how_it_is() -> None:
    """Where its feed is, how many clients it has, and why its bus is down."""
    busy = RecordedNamespace(bus=UP)
    joined(busy, "s", [])
    told = health({"a": busy.real(), "b": RecordedNamespace(bus=DOWN).real()}, State(revocations_known=True, draining=False))
    assert told["namespaces"] == {
        "a": {"bus": "up", "epoch": "e", "offset": 7, "clients": 1},
        "b": {"bus": "down", "epoch": None, "offset": 0, "clients": 0, "error": DOWN.last_error.message},
    }


def test_revocations_out_of_reach_say_why() -> None:
    """Only for as long as there is a reason."""
    told = health({}, State(revocations_known=False, draining=False, revocations_error="no answer"))
    assert (told["ready"], told["revocations_error"]) == (False, "no answer")
    assert "revocations_error" not in health({}, State(revocations_known=True, draining=False))
