"""The tests' own gateway process: it must tell a gateway that is ready from one that is not, and leave none behind."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from tests.support.gateway_process import GatewayFailed, GatewayProcess

SERVES = """
import http.server, os, sys
class Answer(http.server.BaseHTTPRequestHandler):
    asked = 0
    def do_GET(self):
        Answer.asked += 1
        self.send_response(200 if Answer.asked > 2 else 503)
        self.end_headers()
server = http.server.HTTPServer(("127.0.0.1", 0), Answer)
print("settings:", *sorted(k + "=" + v for k, v in os.environ.items() if k.startswith("HEADGATE_")))
print(f"pid {os.getpid()}")
print(f"headgate: ready at http://127.0.0.1:{server.server_port}/ with a private Redis")
server.serve_forever()
"""
NEVER_READY = "import time; print('headgate: starting'); time.sleep(600)"
STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)" + SERVES
LAST_WORDS = "import signal; signal.signal(signal.SIGTERM, lambda *_: sys.exit(print('headgate: stopping')))" + SERVES
ENDS = "print('headgate: Redis 6.0.16 is too old'); raise SystemExit(1)"


def process(tmp_path: Path, script: str, settings: dict[str, str] | None = None) -> GatewayProcess:
    gateway = GatewayProcess(tmp_path, settings)
    gateway.command = (sys.executable, "-c", script)
    return gateway


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_it_is_ready_when_its_url_is_printed_and_healthz_answers_200(tmp_path: Path) -> None:
    """Not before: the first answers are 503."""
    with process(tmp_path, SERVES) as gateway:
        assert gateway.url.startswith("http://127.0.0.1:")
        assert not gateway.url.endswith("/")
        assert is_running(gateway.pid)
    assert not is_running(gateway.pid)


def test_only_the_settings_of_the_test_reach_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A developer's HEADGATE_REDIS_URL must not receive what tests publish."""
    monkeypatch.setenv("HEADGATE_REDIS_URL", "redis://production")
    monkeypatch.setenv("HEADGATE_REDIS_SERVER", "/usr/bin/redis-server")
    with process(tmp_path, SERVES, {"HEADGATE_DEMO": "on"}) as gateway:
        told = gateway.wait_for_line(r"settings: (.*)")[1]
    assert told == " ".join(
        [
            f"HEADGATE_DATA_DIR={tmp_path / 'data'}",
            "HEADGATE_DEMO=on",
            "HEADGATE_DRAIN_S=0",
            "HEADGATE_PORT=0",
            "HEADGATE_REDIS_SERVER=/usr/bin/redis-server",
        ]
    )


def test_one_that_ends_early_fails_with_what_it_wrote(tmp_path: Path) -> None:
    """The reason is in the failure, not in a log that nobody kept."""
    with pytest.raises(GatewayFailed, match=r"(?s)ended without writing.*Redis 6\.0\.16 is too old"):
        process(tmp_path, ENDS).start()


def test_one_that_is_never_ready_fails_at_the_deadline_and_is_stopped(tmp_path: Path) -> None:
    """No orphan stays behind a failed start."""
    gateway = process(tmp_path, NEVER_READY)
    with pytest.raises(GatewayFailed, match=r"(?s)did not write.*within 0\.3 s"):
        gateway.start(deadline_s=0.3)
    assert not is_running(gateway.pid)


def test_one_that_ignores_the_signal_is_ended_by_force(tmp_path: Path) -> None:
    """The test run ends, whatever the gateway does."""
    gateway = process(tmp_path, STUBBORN).start()
    assert gateway.stop(deadline_s=0.1) == -signal.SIGKILL
    assert not is_running(gateway.pid)
    assert gateway.stop() == -signal.SIGKILL, "stopping twice is once"


def test_output_up_to_its_end_is_there_when_it_has_stopped(tmp_path: Path) -> None:
    """However late the thread that reads it gets its turn: here only when somebody waits for it."""
    gateway = process(tmp_path, LAST_WORDS).start()
    with gateway._grown:
        assert gateway.stop() == 0
        assert gateway.output.endswith("headgate: stopping")


def test_started_again_it_is_the_new_one_that_counts(tmp_path: Path) -> None:
    """Not what the old one said of itself, nor its end."""
    gateway = process(tmp_path, SERVES).start()
    with gateway._grown:  # so that the old one's end is noticed late
        gateway.kill()
        with gateway:
            assert gateway.wait_for_line(r"pid (\d+)")[1] == str(gateway.pid)
