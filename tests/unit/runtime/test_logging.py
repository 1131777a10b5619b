"""The log: the form of its lines, and the throttle of those that clients can cause at will."""

import io
import json
import logging
import re
import threading
from collections.abc import Iterator
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from headgate.auth.audit import Audit
from headgate.errors import BusUnavailable
from headgate.runtime import logging as logs
from headgate.runtime import operator_lines
from headgate.runtime.log_throttle import EVERY_S, LogThrottle
from headgate.runtime.logging import CONSUMER_EVERY_S, few_tracebacks, throttled, wire_form
from tests.support.redis_server import DEADLINE_S


def test_tracebacks_of_one_event_pass_once_in_a_while() -> None:
    """Lines without one always do."""
    now_s = 0.0
    tracebacks = partial(few_tracebacks, LogThrottle(lambda: now_s))
    assert tracebacks(None, "error", {"event": "failed", "exc_info": True}) == {"event": "failed", "exc_info": True}
    for _ in range(3):
        with pytest.raises(structlog.DropEvent):
            tracebacks(None, "error", {"event": "failed", "exc_info": True})
    assert tracebacks(None, "error", {"event": "failed"}) == {"event": "failed"}
    now_s = EVERY_S
    assert tracebacks(None, "error", {"event": "failed", "exc_info": True})["left_out"] == 3


def test_the_log_of_a_consumer_says_how_many_lines_of_an_event_it_left_out() -> None:
    """An event is written once a minute, and no other event is held up by it."""
    written: list[tuple[str, dict[str, Any]]] = []
    now_s = 100.0
    log = throttled(lambda event, **fields: written.append((event, fields)), lambda: now_s)
    for number in range(5):
        log("trouble", number=number)
    log("other")
    now_s += CONSUMER_EVERY_S
    log("trouble", number=5)
    now_s += CONSUMER_EVERY_S
    log("trouble", number=6)
    assert written == [
        ("trouble", {"number": 0}),
        ("other", {}),
        ("trouble", {"number": 5, "left_out": 4}),
        ("trouble", {"number": 6}),
    ]


def test_the_log_holds_the_reason_of_the_bus_that_strangers_are_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the message nor a part names the address or the remedy."""
    monkeypatch.setattr("headgate.runtime.logging._log_throttle", LogThrottle())
    error = BusUnavailable("redis.internal:6379 did not answer in time", shown="it does not answer")
    error.add_note("start it")
    with structlog.testing.capture_logs() as lines:
        wire = wire_form(error)
    assert wire == {
        "code": "bus_unavailable",
        "message": "the bus is unavailable: it does not answer",
        "retry": True,
        "retry_after_s": 1,
        "reason": "it does not answer",
    }
    assert "redis.internal:6379" in str(error)
    assert [line["reason"] for line in lines] == ["the bus is unavailable: redis.internal:6379 did not answer in time; start it"]


@pytest.fixture
def fresh_configuration(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The configuration of a test ends with it."""
    before = structlog.get_config()
    monkeypatch.setattr(logging.getLogger("headgate"), "handlers", [])
    yield
    structlog.configure(**before)
    logs.set_level("info")
    operator_lines.as_json = False


@pytest.mark.usefixtures("fresh_configuration")
def test_each_line_is_a_json_object_of_one_schema(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """Our own loggers', the standard library's, and the words to the operator; other values than JSON's are written as text."""
    monkeypatch.setattr(logging.getLogger(), "handlers", [])  # pytest has one there
    logs.configure("info", worker=3, form="json")
    structlog.get_logger("headgate.shop").warning("sold", price=1, at=Path("/shop"))
    logging.getLogger("headgate.publisher").warning("published %s", "late")
    operator_lines.complain("no more")
    structlog.get_logger("headgate.shop").debug("counted")
    logs.set_level("debug")
    structlog.get_logger("headgate.shop").debug("counted again")
    logs.set_level("error")
    structlog.get_logger("headgate.shop").warning("sold")
    logging.getLogger("headgate.publisher").warning("published")
    lines = [json.loads(line) for line in capfd.readouterr().err.splitlines()]
    assert all(list(line)[:4] == list(logs.FIRST) for line in lines)
    assert all(datetime.fromisoformat(line.pop("timestamp")).utcoffset() == timedelta(0) for line in lines)
    assert lines == [
        {"level": "warning", "logger": "headgate.shop", "event": "sold", "price": 1, "at": "/shop", "worker": 3},
        {"level": "warning", "logger": "headgate.publisher", "event": "told", "message": "published late", "worker": 3},
        {"level": "error", "logger": "headgate.operator", "event": "said", "message": "no more"},
        {"level": "debug", "logger": "headgate.shop", "event": "counted again", "worker": 3},
    ]


@pytest.mark.usefixtures("fresh_configuration")
@pytest.mark.parametrize(
    ("form", "shape"),
    [
        ("auto", r"price=1 event=sold level=info logger=headgate\.shop timestamp=\S+\n"),
        ("logfmt", r"price=1 event=sold level=info logger=headgate\.shop timestamp=\S+\n"),
        ("console", r"\S+ \[info     \] sold +\[headgate\.shop\] price=1\n"),
    ],
)
def test_other_forms_have_the_same_fields(capfd: pytest.CaptureFixture[str], form: str, shape: str) -> None:
    """Without a terminal, logfmt and no message; no colour in a pipe."""
    logs.configure("info", form=form)
    structlog.get_logger("headgate.shop").info("sold", price=1)
    assert re.fullmatch(shape, capfd.readouterr().err)


@pytest.mark.usefixtures("fresh_configuration")
def test_an_application_with_logging_of_its_own_gets_the_lines_of_the_library_there(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Once, and not in ours as well."""
    monkeypatch.setattr(logging.getLogger(), "handlers", [logging.StreamHandler()])
    logging.getLogger("headgate.publisher").warning("published %s", "late")
    assert capfd.readouterr().err == "published late\n"


@pytest.mark.usefixtures("fresh_configuration")
def test_a_structlog_of_the_application_that_leads_to_logging_does_not_go_in_circles(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """It has a handler for its own logger only, so none takes ours."""
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    logs.configure("info", form="json")
    structlog.configure(
        processors=[structlog.processors.KeyValueRenderer()],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
    )
    logging.getLogger("headgate.publisher").warning("published late")
    structlog.get_logger("headgate.bus").warning("bus down")
    lines = [json.loads(line) for line in capfd.readouterr().err.splitlines()]
    assert [(line["logger"], line["message"]) for line in lines] == [
        ("headgate.publisher", "published late"),
        ("headgate.bus", "event='bus down'"),
    ]


@pytest.mark.usefixtures("fresh_configuration")
def test_a_line_does_not_wait_for_that_of_another_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """The watchdog's thread writes one when the loop is blocked, and a callback of the loop may not wait for it."""
    lines: list[str] = []
    is_inside, may_end = threading.Event(), threading.Event()

    class Stream(io.StringIO):
        def write(self, text: str) -> int:
            if "first" in text:
                is_inside.set()
                assert may_end.wait(DEADLINE_S)
            lines.append(text)
            return len(text)

    monkeypatch.setattr("sys.stderr", Stream())
    logs.configure("info")
    thread = threading.Thread(target=partial(structlog.get_logger("a").info, "first"))
    thread.start()
    assert is_inside.wait(DEADLINE_S)
    structlog.get_logger("b").info("second")
    assert len(lines) == 1
    may_end.set()
    thread.join(DEADLINE_S)
    assert len(lines) == 2


@pytest.mark.usefixtures("fresh_configuration")
def test_lines_of_the_audit_say_so(capfd: pytest.CaptureFixture[str]) -> None:
    """By their logger, so that they can be kept apart."""
    logs.configure("info", form="json")
    Audit().revoked(kind="user", name="ana", for_s=60, by="a test")
    assert json.loads(capfd.readouterr().err)["logger"] == "headgate.audit"


def test_a_name_is_due_once_in_a_while_with_the_count_between() -> None:
    """Names do not share a turn."""
    now_s = 0.0
    throttle = LogThrottle(lambda: now_s)
    assert [throttle.due("a"), throttle.due("a"), throttle.due("b"), throttle.due("a")] == [0, None, 0, None]
    now_s = EVERY_S
    assert [throttle.due("a"), throttle.due("b")] == [2, 0]


@given(st.lists(st.tuples(st.integers(0, 9), st.floats(0, 3 * EVERY_S))))
def test_names_that_are_made_up_cause_a_bounded_number_of_lines(steps: list[tuple[int, float]]) -> None:
    """However many names there are, at most one line for each remembered one, and one for all others, is due in `every_s`."""
    now_s, lines = 0.0, []
    throttle = LogThrottle(lambda: now_s, max_names=3)
    for name, later_s in steps:
        now_s += later_s
        if throttle.due(str(name)) is not None:
            lines.append(now_s)
            assert len([line_s for line_s in lines if now_s - line_s < EVERY_S]) <= 4
