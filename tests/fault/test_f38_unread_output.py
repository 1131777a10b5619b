"""F38: the pipe of the log is not read, its disk is full, or it is closed, and the gateway starts, serves on and stops."""

import os
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from tests.fault.site import wait_for
from tests.support.held_port import HeldPort

ROOT = str(Path(__file__).parents[2])
HEADGATE = str(Path(sys.executable).with_name("headgate"))
DEADLINE_S = 60.0
# As a shell runs it; `unread` is a pipe of ours.
REDIRECTIONS = {"unread": "", "full": ">/dev/full 2>/dev/full", "closed": ">&- 2>&- <&-"}
LOST = {"unread": {"full"}, "full": {"failed"}, "closed": set()}


def get(url: str) -> str:
    """Return the body of a page, or none if the page does not answer."""
    try:
        with urllib.request.urlopen(url, timeout=DEADLINE_S) as answer:
            return str(answer.read().decode())
    except OSError:
        return ""


def lost_at(url: str) -> set[str]:
    """Return the reasons for which lines of the standard error were dropped."""
    pattern = r'^headgate_output_lines_dropped_total\{reason="stderr_(\w+)"\} ([0-9.]+)'
    return {reason for reason, number in re.findall(pattern, get(f"{url}/metrics"), re.M) if float(number) > 0}


@pytest.mark.parametrize(
    ("output", "workers"),
    [pytest.param("unread", 1, marks=pytest.mark.nightly), ("unread", 2), ("full", 1), ("closed", 1)],
)
def test_output_that_goes_nowhere_stops_nothing(tmp_path: Path, output: str, workers: int) -> None:
    """Pages that write more than a pipe holds are answered, so is liveness; dropped lines are counted; SIGTERM ends it."""
    held = HeldPort()
    url = f"http://127.0.0.1:{held.port}"
    environ = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": ROOT,
        "HEADGATE_PORT": str(held.port),
        "HEADGATE_DATA_DIR": str(tmp_path / "data"),
        "HEADGATE_WORKERS": str(workers),
        "HEADGATE_METRICS_OPEN": "1",
    }
    command = f'exec "{HEADGATE}" serve --dev tests.fault.printing_app:app {REDIRECTIONS[output]}'
    reading, writing = os.pipe()
    gateway = subprocess.Popen(["sh", "-c", command], env=environ, cwd=tmp_path, stdout=writing, stderr=writing)
    try:
        wait_for(lambda: get(f"{url}/livez") != "" or gateway.poll() is not None, "liveness", DEADLINE_S)
        assert gateway.poll() is None, f"the gateway has ended with exit code {gateway.returncode}"
        for _ in range(20 * workers):  # each worker has its share, two megabytes, twice the bound of a stream
            assert get(f"{url}/print") == "written"
        assert get(f"{url}/livez")
        # A busy machine may give one worker less than its share, and its thread writes later.
        wait_for(lambda: get(f"{url}/print") and lost_at(url) == LOST[output], "the dropped lines to be counted", DEADLINE_S)
        gateway.send_signal(signal.SIGTERM)
        assert gateway.wait(DEADLINE_S) == 0
    finally:
        gateway.kill()
        gateway.wait()
        os.close(reading)
        os.close(writing)
        held.close()
