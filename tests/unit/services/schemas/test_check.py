"""The check at publish: off, warn or refuse; the source of the schemas; and the effect of unreadable ones."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from headgate import BusUnavailable, InvalidSchema, Publisher, SchemaViolation, SettingsError
from headgate.errors import BusRefused, HeadgateError
from headgate.events.json_data import encode_data
from headgate.installation import install_command
from headgate.runtime.log_throttle import EVERY_S, LogThrottle
from headgate.services.schemas.catalogue import Catalogue
from headgate.services.schemas.check import SchemaCheck, folder_source
from tests.support.schema_files import write

NUMBERS = {"numbers.#.json": {"type": "integer"}}
LOGGER = "headgate.schemas"


def unread(error: HeadgateError) -> Callable[[str], Catalogue]:
    def schemas_of(namespace: str) -> Catalogue:
        raise error

    return schemas_of


@pytest.fixture
def folder(tmp_path: Path) -> str:
    return str(write(tmp_path / "schemas", NUMBERS))


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == LOGGER]


def test_a_bad_event_is_refused_before_anything_is_sent(folder: str, tmp_path: Path) -> None:
    """Whatever raises something else than BusUnavailable has sent nothing; the others would have been sent."""
    told: list[tuple[str, SchemaViolation]] = []
    publisher = Publisher(
        f"unix://{tmp_path}/no.sock", schemas=folder, schema_check="refuse", on_schema_violation=lambda *found: told.append(found)
    )
    with pytest.raises(SchemaViolation) as raised:
        publisher.publish("numbers.1", "one")
    with pytest.raises(SchemaViolation):
        publisher.prepare("numbers.1", "one")
    with pytest.raises(SchemaViolation) as in_batch:
        publisher.publish_many([("numbers.1", 1), ("numbers.2", None)], "shop")
    assert in_batch.value.__notes__ == ["event number 1 of the batch"]
    assert [(namespace, error.topic) for namespace, error in told] == [
        ("notifications", "numbers.1"),
        ("notifications", "numbers.1"),
        ("shop", "numbers.2"),
    ]
    assert told[0][1] is raised.value
    for topic, data in (("numbers.1", 1), ("other", "one")):
        with pytest.raises(BusUnavailable):
            publisher.publish(topic, data)


def test_a_warning_is_logged_seldom_and_every_violation_is_counted(folder: str, caplog: pytest.LogCaptureFixture) -> None:
    """A page that publishes a thousand bad events a second must not fill the log."""
    now_s, told = [0.0], []
    check = SchemaCheck(
        folder_source(folder),
        refuse=False,
        on_violation=lambda *found: told.append(found),
        log_throttle=LogThrottle(lambda: now_s[0]),
    )
    for _ in range(5):
        check.check("n", "numbers.1", b'"one"')
    now_s[0] += EVERY_S
    check.check("n", "numbers.1", b'"one"')
    breaks = "data for topic 'numbers.1' breaks the schema of 'numbers.#' at $"
    line = f'published although {breaks}: the value is not of type "integer"'
    assert lines(caplog) == [line, f"{line} (4 more since the last line)"]
    assert len(told) == 6


@pytest.mark.parametrize("mode", ["off", None])
def test_nothing_is_checked_without_schemas_or_when_it_is_off(folder: str, tmp_path: Path, mode: str | None) -> None:
    """Then a publisher costs as much as ever."""
    publisher = Publisher(f"unix://{tmp_path}/no.sock", schemas=folder if mode else None, schema_check=mode)  # type: ignore[arg-type]
    assert publisher._schemas is None


def test_a_publisher_takes_both_from_the_environment(folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One variable for all services of a team; an argument wins."""
    monkeypatch.setenv("HEADGATE_SCHEMAS", folder)
    url = f"unix://{tmp_path}/no.sock"
    with pytest.raises(BusUnavailable):
        Publisher(url).publish("numbers.1", "one")  # `warn` is the default
    monkeypatch.setenv("HEADGATE_SCHEMA_CHECK", "refuse")
    with pytest.raises(SchemaViolation):
        Publisher(url).publish("numbers.1", "one")
    with pytest.raises(BusUnavailable):
        Publisher(url, schema_check="warn").publish("numbers.1", "one")


@pytest.mark.parametrize("by_variable", [True, False])
def test_a_publisher_that_would_check_nothing_does_not_say_that_it_refuses(
    by_variable: bool, folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder is missing beside `refuse`. Where the argument names one, the variable may do without."""
    url = f"unix://{tmp_path}/no.sock"
    if by_variable:
        monkeypatch.setenv("HEADGATE_SCHEMA_CHECK", "refuse")
    with pytest.raises(SettingsError, match="expected HEADGATE_SCHEMAS"):
        Publisher(url, schema_check=None if by_variable else "refuse")
    Publisher(url, schemas=folder, schema_check=None if by_variable else "refuse")
    Publisher(url, schema_check="off")


@pytest.mark.parametrize("files", [{}, {"_common.json": {"type": "integer"}}])
def test_a_folder_without_a_schema_of_a_topic_is_refused(files: dict[str, object], tmp_path: Path) -> None:
    """It would check nothing, as when a deploy has lost the files."""
    folder = str(write(tmp_path / "schemas", files))
    with pytest.raises(InvalidSchema, match="schemas/: has no schema of a topic; expected files such as"):
        Publisher(f"unix://{tmp_path}/no.sock", schemas=folder, schema_check="refuse")


@pytest.mark.parametrize("name", ["headgate_schema_check", "Headgate_Schemas"])
def test_a_variable_in_small_letters_is_a_fault(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As for every other setting: it was ignored, and nothing was checked."""
    monkeypatch.setenv(name, "refuse")
    with pytest.raises(SettingsError, match=f"did you mean {name.upper()}"):
        Publisher(f"unix://{tmp_path}/no.sock")


def test_wrong_arguments_are_told_when_the_publisher_is_made(tmp_path: Path) -> None:
    url = f"unix://{tmp_path}/no.sock"
    with pytest.raises(SettingsError, match="schema_check='on': expected off, warn or refuse"):
        Publisher(url, schemas="schemas", schema_check="on")  # type: ignore[arg-type]
    with pytest.raises(InvalidSchema, match="nowhere: cannot be read"):
        Publisher(url, schemas=str(tmp_path / "nowhere"))


def test_schemas_that_cannot_be_read_refuse_events_or_let_them_through(caplog: pytest.LogCaptureFixture) -> None:
    """As the check does with a violation; strangers do not learn the faults of our schemas."""
    for error in (BusUnavailable("gone"), BusRefused("no permission"), InvalidSchema("registry", "strange")):
        SchemaCheck(unread(error), refuse=False).check("n", "a", b"1")
        assert lines(caplog)[-1] == f"the schemas could not be read: {error.message}"
        with pytest.raises((BusUnavailable, BusRefused)) as raised:
            SchemaCheck(unread(error), refuse=True).check("n", "a", b"1")
        assert error.message in raised.value.message
        assert "strange" not in raised.value.to_wire()["message"]


WITHOUT = """
import sys
sys.modules["jsonschema_rs"] = None
from headgate import Publisher
Publisher("unix:///no.sock")
try:
    Publisher("unix:///no.sock", schemas=sys.argv[1])
except ImportError as error:
    print(type(error).__name__, error)
print(sorted(name for name in sys.modules if name.startswith(("headgate.services.schemas.", "yaml", "structlog", "prometheus"))))
"""


def test_a_publisher_without_schemas_needs_no_library_for_them(folder: str) -> None:
    """And one with them says which extra brings it."""
    ran = subprocess.run([sys.executable, "-c", WITHOUT, folder], capture_output=True, text=True, check=True)
    told, loaded = ran.stdout.splitlines()
    assert told == f"MissingExtra publishing with schemas needs the package jsonschema_rs: run {install_command('schemas')}"
    assert not any(name in loaded for name in ("headgate.services.schemas.catalogue", "structlog", "prometheus"))


def test_what_is_checked_is_the_json_that_is_sent(folder: str) -> None:
    """A Decimal is a text there, so it is no integer."""
    from decimal import Decimal

    check = SchemaCheck(folder_source(folder), refuse=True)
    check.check("n", "numbers.1", encode_data(1))
    with pytest.raises(SchemaViolation):
        check.check("n", "numbers.1", encode_data(Decimal(1)))
