"""Where schemas come from: when the registry is read again, by whom, and the rule until then. A registry in memory."""

import logging
import threading
from collections.abc import Callable
from typing import Any, cast

import pytest

from headgate.errors import BusUnavailable, HeadgateError
from headgate.redis.client import Client
from headgate.services.schemas import check
from headgate.services.schemas.check import REFRESH_S, RETRY_S, RegistrySource
from headgate.services.schemas.documents import Documents
from tests.support.schema_files import texts

NUMBER, TEXT = texts({"a.json": {"type": "integer"}}), texts({"a.json": {"type": "string"}})


class Registry:
    """The schemas of each namespace; counts reads, and fails or waits on demand."""

    def __init__(self) -> None:
        self.held: dict[str, Documents] = {}
        self.reads = self.asked = 0
        self.fault: HeadgateError | None = None
        self.before: Callable[[], object] = lambda: None

    def read_version(self, client: Client, namespace: str) -> str | None:
        self.asked += 1
        self.before()
        if self.fault:
            raise self.fault
        return self.held[namespace].version if namespace in self.held else None

    def read_registry(self, client: Client, namespace: str) -> Documents | None:
        self.reads += 1
        self.before()
        if self.fault:
            raise self.fault
        return self.held.get(namespace)


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Registry:
    registry = Registry()
    monkeypatch.setattr(check, "read_version", registry.read_version)
    monkeypatch.setattr(check, "read_registry", registry.read_registry)
    return registry


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def source(registry: Registry, clock: Clock) -> RegistrySource:
    return RegistrySource(cast(Client, None), clock)


def takes(source: RegistrySource, data: bytes, namespace: str = "n") -> bool:
    return source.of(namespace).violation("a", data) is None


def test_the_version_is_asked_for_once_in_a_while_and_the_schemas_are_read_when_it_has_changed(
    source: RegistrySource, registry: Registry, clock: Clock
) -> None:
    """Each namespace for itself."""
    registry.held["n"] = NUMBER
    for _ in range(3):
        assert not takes(source, b'"x"')
    assert (registry.asked, registry.reads) == (0, 1)
    clock.now_s += REFRESH_S
    assert not takes(source, b'"x"')
    assert (registry.asked, registry.reads) == (1, 1)
    registry.held["n"] = TEXT
    clock.now_s += REFRESH_S - 0.1
    assert not takes(source, b'"x"')
    clock.now_s += 0.1
    assert takes(source, b'"x"')
    assert (registry.asked, registry.reads) == (2, 2)
    assert takes(source, b"1", "other")
    assert (registry.asked, registry.reads) == (2, 3)


def test_a_first_read_that_fails_is_made_again_a_second_later(source: RegistrySource, registry: Registry, clock: Clock) -> None:
    """Nothing could count until then; a hundred publishers do not each wait for a Redis that is down."""
    registry.fault = BusUnavailable("gone")
    for _ in range(3):
        with pytest.raises(BusUnavailable):
            source.of("n")
    assert registry.reads == 1
    with pytest.raises(BusUnavailable):
        source.of("other")
    registry.fault, registry.held["n"] = None, NUMBER
    clock.now_s += RETRY_S
    assert not takes(source, b'"x"')
    assert registry.reads == 3


def test_later_faults_keep_the_schemas_and_are_logged_seldom(
    source: RegistrySource, registry: Registry, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    """Redis is asked again after the usual time, not with each event."""
    registry.held["n"] = NUMBER
    assert not takes(source, b'"x"')
    registry.fault = BusUnavailable("gone")
    clock.now_s += REFRESH_S
    for _ in range(5):
        assert not takes(source, b'"x"')
    assert registry.asked == 1
    registry.fault = None
    del registry.held["n"]
    clock.now_s += REFRESH_S
    assert not takes(source, b'"x"')
    assert [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING] == [
        "the schemas of namespace 'n' could not be read, the previous ones stay in force: the bus is unavailable: gone",
        "the registry of namespace 'n' is empty, its previous schemas stay in force",
    ]


def test_one_of_many_asks_and_the_others_have_what_is_known(source: RegistrySource, registry: Registry, clock: Clock) -> None:
    """A slow Redis holds up one publish, not all."""
    registry.held["n"] = NUMBER
    assert not takes(source, b'"x"')
    clock.now_s += REFRESH_S
    registry.held["n"] = TEXT
    asking, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        asking.set()
        go_on.wait()

    registry.before = hold
    found: list[Any] = []
    asker = threading.Thread(target=lambda: found.append(takes(source, b'"x"')))
    asker.start()
    asking.wait()
    assert not takes(source, b'"x"')
    go_on.set()
    asker.join()
    assert found == [True]
    assert takes(source, b'"x"')
    assert registry.asked == 1


def test_what_namespaces_keep_is_bounded(source: RegistrySource, registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    """A publisher may name any."""
    monkeypatch.setattr(check, "MAX_NAMESPACES", 3)
    for number in range(10):
        source.of(f"n{number}")
        assert len(source._known) <= 3
