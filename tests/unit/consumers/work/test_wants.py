"""wants.py: an application's function that answers, raises, blocks, or returns something else."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from headgate.consumers import Delivery
from headgate.consumers.work.routing import WantsThread

DELIVERY = Delivery("users.ann.orders", b"1", "e1", 0)


@pytest.fixture
def faults() -> list[str]:
    """The counted faults."""
    return []


@pytest.fixture
def block() -> Iterator[threading.Event]:
    """The wait of a test's function."""
    event = threading.Event()
    yield event
    event.set()


def asking(wants: Any, faults: list[str], within_s: float = 30) -> WantsThread:
    return WantsThread(wants, lambda why, error: faults.append(f"{why} {error!r}"), within_s)


def test_the_answer_is_that_of_the_function(faults: list[str]) -> None:
    """It gets the user, the event and the channel, always in one thread."""
    threads = set()

    def wants(user: str, event: Delivery, channel: str) -> bool:
        threads.add(threading.current_thread())
        return (user, event, channel) == ("ann", DELIVERY, "push")

    asked = asking(wants, faults)
    assert [asked.ask(user, DELIVERY, "push") for user in ("ann", "bob")] == [True, False]
    assert (len(threads), faults) == (1, [])
    asked.close()


@pytest.mark.parametrize("error", [KeyError("ann"), TimeoutError("no answer"), SystemExit(1)], ids=["fault", "timeout", "exit"])
def test_a_function_that_raises_lets_the_notification_out(error: BaseException, faults: list[str]) -> None:
    """The error is counted as raised, whatever it is, and the function is asked again the next time."""
    errors = iter([error])

    def wants(user: str, event: Delivery, channel: str) -> bool:
        for raised in errors:
            raise raised
        return False

    asked = asking(wants, faults)
    assert [asked.ask("ann", DELIVERY, "push") for _ in range(2)] == [True, False]
    assert faults == [f"raised {error!r}"]
    asked.close()


@pytest.mark.parametrize("answer", [None, 0, "no"])
def test_an_answer_that_is_no_boolean_lets_the_notification_out(answer: object, faults: list[str]) -> None:
    """A function without a return does not silence everything."""
    asked = asking(lambda *_: answer, faults)
    assert asked.ask("ann", DELIVERY, "push")
    assert faults == ["no_boolean None"]
    asked.close()


def test_one_that_blocks_lets_the_notification_out_and_is_left_alone(block: threading.Event, faults: list[str]) -> None:
    """One thread blocks, however many notifications come; when it returns, the function is asked again."""
    calls = []

    def wants(user: str, event: Delivery, channel: str) -> bool:
        calls.append(user)
        if user == "slow":
            assert block.wait(30)
        return False

    asked = asking(wants, faults, within_s=0.05)
    assert [asked.ask(user, DELIVERY, "push") for user in ("slow", "ann", "bob")] == [True, True, True]
    assert (calls, faults) == (["slow"], ["late None"] * 3)
    block.set()
    until = threading.Event()
    while asked.ask("cleo", DELIVERY, "push"):
        assert not until.wait(0.001)
    assert calls[-1] == "cleo"
    asked.close()
