"""gunicorn's settings: the refused ones, and those without a meaning."""

import gunicorn.config
import pytest

from headgate.gunicorn import Worker
from headgate.workers.gunicorn_settings import REFUSED, WITHOUT_MEANING


class RecordingLog:
    def __init__(self) -> None:
        self.warnings: list[str] = []

    def warning(self, message: str, *arguments: object) -> None:
        self.warnings.append(message % arguments)


def test_defaults_are_neither_refused_nor_named() -> None:
    log = RecordingLog()
    Worker.check_config(gunicorn.config.Config(), log)
    assert log.warnings == []


@pytest.mark.parametrize("name", REFUSED)
def test_a_setting_that_cannot_be_honoured_stops_the_start_and_says_what_to_use(name: str) -> None:
    """TLS in the process would end every WebSocket; a preloaded application has been loaded before gevent patched."""
    config = gunicorn.config.Config()
    config.set(name, __file__ if name.endswith("file") else "auto" if name == "proxy_protocol" else True)
    with pytest.raises(RuntimeError, match=f"refuses {name}: "):
        Worker.check_config(config, RecordingLog())


def test_settings_without_a_meaning_are_named_once_each() -> None:
    config, log = gunicorn.config.Config(), RecordingLog()
    config.set("threads", 8)
    config.set("limit_request_line", 100)
    config.set("keepalive", 30)
    Worker.check_config(config, log)
    assert [line.split(": ")[1] for line in log.warnings] == ["threads", "limit_request_line"]


def test_every_name_is_a_setting_of_gunicorn() -> None:
    """A name that gunicorn has dropped must be dropped here."""
    assert REFUSED.keys() | WITHOUT_MEANING.keys() <= gunicorn.config.Config().settings.keys()
