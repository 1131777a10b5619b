"""The consumers of a configuration under a supervisor in the test's own process, and the sink as one of them."""

import importlib
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace

import pytest

from headgate.consumers.process import health_page
from headgate.consumers.process import supervisor as supervisors
from headgate.consumers.process.supervisor import supervise
from headgate.consumers.work.spec import ConsumerSpec
from headgate.settings.settings import Settings
from tests.support.consume_process import SinkFolder

PARENT = 1


class Supervised:
    """Runs supervisors one after the other. `said` has the lines of the last one."""

    def __init__(self, redis_url: str, end: threading.Event) -> None:
        self.said: list[str] = []
        self._url, self._end = redis_url, end

    def run(
        self,
        configuration: tuple[Settings, Sequence[ConsumerSpec]],
        script: Callable[[], None],
        listen: tuple[str, int] | None = None,
    ) -> int:
        """Run the consumers while the script runs, in a thread, from when all are begun; return the exit code."""
        self.said = []
        self._end.clear()
        failures: list[BaseException] = []
        begun = len(configuration[1])

        def run_script() -> None:
            try:
                script()
            except BaseException as error:  # noqa: BLE001 - raised again where the test sees it
                failures.append(error)
            finally:
                self._end.set()

        thread = threading.Thread(target=run_script, name="script")

        def say(line: str) -> None:
            self.said.append(line)
            if sum(said.startswith("consuming ") for said in self.said) == begun and not thread.ident:
                thread.start()

        code = supervise(*configuration, self._url, say, listen, PARENT)
        thread.join()
        if failures:
            raise failures[0]
        return code


@pytest.fixture
def supervised(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Supervised]:
    """Run supervisors that look around often, and give the process's signals back."""
    end = threading.Event()
    for module in (supervisors, health_page):
        monkeypatch.setattr(module, "POLL_S", 0.01)
    monkeypatch.setattr(supervisors, "os", SimpleNamespace(getppid=lambda: 0 if end.is_set() else PARENT))
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield Supervised(redis_url, end)
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def sink_here(sink_folder: SinkFolder, monkeypatch: pytest.MonkeyPatch) -> Iterator[SinkFolder]:
    """The folder of the sink as the current one; this process imports its module `sink` again."""
    monkeypatch.chdir(sink_folder.path)
    monkeypatch.setattr(sys, "path", [str(sink_folder.path), *sys.path])
    sys.modules.pop("sink", None)
    importlib.invalidate_caches()
    yield sink_folder
    sys.modules.pop("sink", None)
