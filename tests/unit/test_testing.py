"""The fixture `published`: its records, its answers, and that it refuses the same as a publisher."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest
from flask import Flask
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from headgate import (
    AsyncPublisher,
    BusUnavailable,
    Headgate,
    HeadgateError,
    Inbox,
    InvalidEvent,
    InvalidPattern,
    InvalidTopic,
    NotSerializable,
    PayloadTooLarge,
    Publisher,
    SchemaViolation,
    SettingsError,
    UnknownNamespace,
    testing,
)
from headgate.redis.lineage import Fate
from headgate.services.publisher import Receipt
from headgate.settings.settings import Settings
from headgate.testing import Published, record
from tests.support.schema_files import write

published = testing.published  # a project names the plugin in its conftest.py (docs/howto/testing.md)


@pytest.fixture
def publisher() -> Publisher:
    """A publisher that was made before the fixture, as one at module level is; its Redis is not there."""
    return Publisher("unix:///nonexistent/no.sock")


def test_what_is_published_is_recorded_with_a_receipt(publisher: Publisher, published: Published) -> None:
    """In order, with the data as its JSON says it; offsets rise in one epoch."""
    first = publisher.publish("orders.42.shipped", {"carrier": "UPS", "parts": (1, 2)}, id="order-42", by="ana müller")
    second = publisher.publish("news", "hello", user="bob")
    assert (first.offset, second.offset, first.epoch, first.duplicate) == (1, 2, second.epoch, False)
    [order] = published("orders.*.shipped")
    assert (order.topic, order.data) == ("orders.42.shipped", {"carrier": "UPS", "parts": [1, 2]})
    assert (order.id, order.by, order.namespace) == ("order-42", "ana müller", "notifications")
    assert order.receipt == first
    assert [event.topic for event in published()] == ["orders.42.shipped", "users.bob.news"]
    assert published("invoices.#") == []
    assert publisher.check(first) is Fate.IN_LOG
    assert publisher.check(replace(first, id=second.id)) is Fate.ROLLED_BACK
    assert publisher.check(replace(first, id="")) is Fate.IN_LOG
    assert publisher.check(replace(second, offset=3)) is Fate.ROLLED_BACK
    assert publisher.check(replace(first, epoch="e" * 16)) is Fate.UNKNOWN


def test_a_failed_assertion_shows_what_was_published(publisher: Publisher, published: Published) -> None:
    """By the text of the fixture, which pytest prints."""
    assert repr(published) == "Published(nothing)"
    publisher.publish("orders.42.shipped", 1)
    assert repr(published) == "Published(orders.42.shipped)"


def test_an_id_that_comes_again_adds_nothing(publisher: Publisher, published: Published) -> None:
    """The receipt is that of the first, as a duplicate; the same id of another topic, namespace or user is another event."""
    first = publisher.publish("orders.1", 1, id="a")
    again = publisher.publish("orders.1", 2, id="a")
    assert (again.offset, again.epoch, again.duplicate) == (first.offset, first.epoch, True)
    for others in ({"topic": "orders.2"}, {"topic": "orders.1", "by": "ana"}, {"topic": "orders.1", "namespace": "shop"}):
        assert not publisher.publish(data=1, id="a", **others).duplicate  # type: ignore[arg-type]
    assert [event.data for event in published("orders.1", "notifications")] == [1, 1]
    published.clear()
    assert publisher.publish("orders.1", 3, id="a").duplicate
    assert published() == []


def test_batches_and_prepared_events_are_recorded_too(publisher: Publisher, published: Published) -> None:
    """Each with its own receipt; a wish for replicas or the disk is granted."""
    receipts = publisher.publish_many([("a", 1), ("b", 2, "x"), ("b", 3, "x")], durable=2)
    assert [(each.offset, each.duplicate, each.replicas) for each in receipts] == [(1, False, 2), (2, False, 2), (2, True, 2)]
    assert publisher.publish("c", 4, durable="disk").fsynced
    outcomes = publisher.publish_prepared([publisher.prepare("d", 5)])
    assert not isinstance(outcomes[0], HeadgateError)
    assert [event.data for event in published()] == [1, 2, 4, 5]


def test_what_a_publisher_refuses_is_refused(publisher: Publisher, published: Published) -> None:
    refused: list[tuple[type[HeadgateError], dict[str, object]]] = [
        (InvalidTopic, {"topic": "orders..1"}),
        (InvalidTopic, {"topic": "orders.*"}),
        (InvalidEvent, {"id": "a b"}),
        (UnknownNamespace, {"namespace": "a b"}),
        (NotSerializable, {"data": object()}),
        (PayloadTooLarge, {"data": "x" * 65536}),
    ]
    for error, wrong in refused:
        with pytest.raises(error):
            publisher.publish(**({"topic": "a", "data": 1} | wrong))  # type: ignore[arg-type]
    with pytest.raises(InvalidPattern):
        published("orders..*")
    assert published() == []


def test_schemas_are_obeyed(tmp_path: Path, published: Published) -> None:
    """Those of a folder; a registry is in Redis, so a test that asks for one gets the name of the setting."""
    write(tmp_path, {"orders.*.json": {"type": "object", "required": ["total"]}})
    publisher = Publisher(schemas=str(tmp_path), schema_check="refuse")
    with pytest.raises(SchemaViolation):
        publisher.publish("orders.1", {})
    publisher.publish("orders.1", {"total": 1})
    assert len(published("orders.1")) == 1
    with pytest.raises(SettingsError, match="expected a folder"):
        Publisher(schemas="redis")


def test_the_publisher_for_asyncio_is_recorded(published: Published) -> None:
    """One by one and in batches, with the receipts that they return."""

    async def main() -> list[Receipt]:
        async with AsyncPublisher() as publisher:
            return [await publisher.publish("a", 1, user="ana"), *await publisher.publish_many([("b", 2), ("b", 3)])]

    receipts = asyncio.run(main())

    assert [(event.topic, event.data, event.receipt) for event in published()] == [
        ("users.ana.a", 1, receipts[0]),
        ("b", 2, receipts[1]),
        ("b", 3, receipts[2]),
    ]


def test_one_publisher_serves_tests_with_an_event_loop_each(published: Published) -> None:
    """As one at module level under pytest-asyncio, or Django's async client."""
    publisher = AsyncPublisher()
    for number in range(2):
        asyncio.run(publisher.publish("a", number))

    assert [event.data for event in published()] == [0, 1]


def test_the_flask_extension_is_recorded(published: Published, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """From a view of the application, without a gateway and without HEADGATE_REDIS_URL."""
    monkeypatch.delenv("HEADGATE_REDIS_URL", raising=False)
    app = Flask("shop")
    gate = Headgate(app, settings=Settings(data_dir=str(tmp_path)))

    @app.post("/orders/<int:number>/ship")
    def ship(number: int) -> str:
        return str(gate.publish(f"orders.{number}.shipped", {"id": number}).offset)

    assert app.test_client().post("/orders/42/ship").text == "1"
    assert [event.topic for event in published("orders.#")] == ["orders.42.shipped"]
    assert len(gate.publish_each([("orders.1", 1, None), ("orders..2", 2, None)])) == 2
    assert len(published()) == 2


def run_pytest(folder: Path, tmp_path: Path) -> str:
    """Run the tests of a project, where no Redis is known; return what pytest wrote. They pass."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("HEADGATE_", "PYTEST_"))}
    environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # those of the tests here take half of the time
    words = [sys.executable, "-m", "pytest", "-q", "-c", os.devnull, "-p", "no:cacheprovider", "--rootdir", str(folder)]
    done = subprocess.run([*words, str(folder)], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_example_of_the_page_passes_without_redis(tmp_path: Path) -> None:
    """As docs/howto/testing.md shows it for Flask; tests/examples/test_python.py runs those of Django and FastAPI."""
    assert "1 passed" in run_pytest(Path(__file__).parents[2] / "examples" / "flask", tmp_path)


def test_a_module_makes_its_publisher_before_a_test_begins(tmp_path: Path) -> None:
    """Test modules import the application while pytest collects them. A publish without the fixture fails."""
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["headgate.testing"]')
    (tmp_path / "shop.py").write_text("from headgate import Publisher\npublisher = Publisher()\n")
    (tmp_path / "test_shop.py").write_text(
        "import pytest\nfrom headgate import BusUnavailable\nfrom shop import publisher\n\n"
        "def test_one(published):\n    publisher.publish('a', 1)\n    assert len(published()) == 1\n\n"
        "def test_two():\n    with pytest.raises(BusUnavailable, match='no-redis-in-tests'):\n        publisher.publish('a', 1)\n"
    )
    assert "2 passed" in run_pytest(tmp_path, tmp_path)


def test_a_publisher_that_outlives_its_test_reaches_no_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that was made in the test, without a Redis, names that test in its error when it is used after it."""
    monkeypatch.delenv("HEADGATE_REDIS_URL", raising=False)
    with monkeypatch.context() as patched:
        recorder = record(patched)
        made = Publisher()
        made.publish("a", 1)
    assert len(recorder()) == 1
    with pytest.raises(BusUnavailable):
        made.publish("a", 2)
    assert len(recorder()) == 1


def test_an_ephemeral_event_is_recorded_beside_the_log(publisher: Publisher, published: Published) -> None:
    """With its data and id; `clear` forgets it too."""
    made = publisher.publish_ephemeral("chat.typing", {"on": True}, user="ana")
    publisher.publish_ephemeral("other", 1)
    (event,) = published.ephemeral("users.#")
    assert (event.topic, event.data, event.id, event.by) == ("users.ana.chat.typing", {"on": True}, made, None)
    assert (published(), len(published.ephemeral())) == ([], 2)
    published.clear()
    assert published.ephemeral() == []


def test_questions_are_answered_as_by_an_empty_redis(publisher: Publisher, published: Published) -> None:
    """A view that answers with its position, its members or an inbox can be tested."""
    assert publisher.position() is None
    receipt = publisher.publish("a", 1)
    assert publisher.position() == {"epoch": receipt.epoch, "offset": receipt.offset}
    assert publisher.position("others") is None
    assert (publisher.presence("a"), publisher.presence_page("a").members) == ([], [])
    page = Inbox(publisher).page("ana")
    assert (page.epoch, page.offset, page.unread, page.items) == (receipt.epoch, 1, 0, [])
    publisher.revoke(user="ana")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.sampled_from(["a", "b.c"]), st.sampled_from(["x", "y", None]), st.sampled_from([None, "ana"]))))
def test_it_answers_as_a_log_does(
    publisher: Publisher, published: Published, calls: list[tuple[str, str | None, str | None]]
) -> None:
    """In every case a new event has the next offset, and a known id the offset of its first."""
    namespace = f"n{len(published())}-{id(calls)}"
    known: dict[tuple[str, str, str | None], int] = {}
    for topic, event_id, by in calls:
        receipt = publisher.publish(topic, 1, id=event_id, by=by, namespace=namespace)
        key = topic, receipt.id, by
        assert receipt.duplicate == (key in known)
        assert receipt.offset == known.setdefault(key, len(known) + 1)
    assert [event.receipt.offset for event in published(namespace=namespace)] == list(range(1, len(known) + 1))
