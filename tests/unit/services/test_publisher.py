"""The publisher without a Redis: arguments checked before anything is sent, and its imports."""

import re
import subprocess
import sys
from datetime import date
from pathlib import Path

import msgspec
import pytest

from headgate import BusUnavailable, InvalidEvent, LimitReached, PayloadTooLarge, Publisher, SettingsError
from headgate.services.publisher import MAX_BATCH_BYTES, MAX_BATCH_EVENTS, Prepared, PublishManyError, Receipt, find_redis_url


@pytest.fixture
def publisher(tmp_path: Path) -> Publisher:
    """A publisher without a Redis: a call that raises something else than BusUnavailable has sent nothing."""
    return Publisher(f"unix://{tmp_path}/no.sock")


def test_each_event_without_an_id_gets_one_of_its_own(publisher: Publisher) -> None:
    """Alone or in a batch, however long; a given id is kept, and a wrong one refused in its place."""
    events = [("a", number, "mine" if number == 70 else "no id" if number == 80 else None) for number in range(150)]

    prepared = publisher.prepare_each(events)

    ids = [event.id for event in prepared if isinstance(event, Prepared)]
    ids += [publisher.prepare("a", 1).id for _ in range(2)]
    assert len(ids) == len(set(ids)) == 151
    assert all(re.fullmatch(r"[0-9a-f]{32}", each) for each in ids if each != "mine")
    assert isinstance(prepared[80], InvalidEvent)
    assert [event.has_new_id for event in prepared[70:72] if isinstance(event, Prepared)] == [False, True]


def test_a_prepared_payload_is_published_as_it_is(publisher: Publisher) -> None:
    """What an outbox stores is the text that was checked, and no larger."""
    event = publisher.prepare("a", {"at": date(2026, 11, 30), "note": "\u00e9"})

    assert event.payload == '{"at":"2026-11-30","note":"\u00e9"}'.encode()
    assert publisher.prepare("a", msgspec.Raw(event.payload)).payload == event.payload


def test_a_batch_of_prepared_events_is_bounded(publisher: Publisher) -> None:
    event = publisher.prepare("a", 1)
    large = msgspec.structs.replace(event, size_bytes=MAX_BATCH_BYTES // 2 + 1)
    for events, name in (([event] * (MAX_BATCH_EVENTS + 1), "batch_events"), ([large] * 2, "batch_bytes")):
        with pytest.raises(LimitReached) as caught:
            publisher.publish_prepared(events)
        assert caught.value.parts["name"] == name


def test_without_any_redis_the_error_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a setting nor a running gateway."""
    monkeypatch.delenv("HEADGATE_REDIS_URL", raising=False)
    monkeypatch.setenv("HEADGATE_DATA_DIR", str(tmp_path))

    with pytest.raises(BusUnavailable, match=r"set HEADGATE_REDIS_URL.*headgate serve"):
        Publisher()


def test_the_environment_names_the_redis(monkeypatch: pytest.MonkeyPatch) -> None:
    """HEADGATE_REDIS_URL counts, other HEADGATE_ variables do not matter to a publisher; a wrong one is named."""
    monkeypatch.setenv("HEADGATE_REDIS_URL", "redis://127.0.0.1:7777/0")
    monkeypatch.setenv("HEADGATE_PORT", "no port")
    assert find_redis_url() == "redis://127.0.0.1:7777/0"

    monkeypatch.setenv("HEADGATE_REDIS_URL", "http://127.0.0.1")
    with pytest.raises(SettingsError, match="HEADGATE_REDIS_URL"):
        find_redis_url()


def test_a_refused_batch_tells_each_outcome() -> None:
    receipt = Receipt("0" * 16, 1, False, "x")
    refused = PayloadTooLarge(11, 10, "bus")

    error = PublishManyError([receipt, refused, receipt])

    assert error.outcomes == (receipt, refused, receipt)
    assert error.message == f"1 of 3 events were refused; the first is number 1: {refused.message}"
    assert error.to_wire()["published"] == 2


# The cost of an unused publisher in an importing process.
NOT_TO_IMPORT = {
    *("redis", "hiredis", "gevent", "greenlet", "flask", "werkzeug", "click", "jinja2", "socketio", "engineio", "structlog"),
    *("prometheus_client", "opentelemetry", "jsonschema_rs", "yaml", "jwt", "cryptography"),
    *("asyncio", "ssl", "socket", "selectors", "subprocess", "http", "email", "logging", "importlib.metadata"),
    *("headgate.settings.settings", "headgate.services.log_writer", "headgate.flask.extension", "headgate.redis.client"),
}


# What no publisher needs.
OF_A_GATEWAY = {
    *("gevent", "greenlet", "flask", "socketio", "engineio", "websockets"),
    *("headgate.redis.data_folder", "headgate.redis.embedded"),
}


def test_to_import_a_publisher_imports_nothing_that_only_a_publisher_needs_nor_a_publisher_a_gateway() -> None:
    """A process that never publishes (`manage.py migrate`) does not wait for redis-py, and one that does starts no thread.

    An environment may load some of them with its own packages (`import site`), so only the additional ones count.
    """
    code = (
        "import sys, threading\nbefore = set(sys.modules)\nfrom headgate import BusUnavailable, PresentUser, Publisher, Receipt\n"
        f"print(sorted({NOT_TO_IMPORT!r} & (set(sys.modules) - before)))\nPublisher('redis://127.0.0.1:1')\n"
        f"print(sorted({OF_A_GATEWAY!r} & (set(sys.modules) - before)), 'redis' in sys.modules, threading.active_count())"
    )

    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True).stdout

    assert said.splitlines() == ["[]", "[] True 1"]
