"""SIGHUP: one process applies its changeable settings while it runs. tests/integration/workers has several."""

import os
import signal
from pathlib import Path

import pytest

from tests.support.gateway_process import StartGateway
from tests.support.raw_client import RawClient


def limit(url: str) -> int:
    with RawClient(url) as client:
        found: int = client.welcome["limits"]["max_subscriptions"]
        return found


def test_one_process_reads_its_file_again(start_gateway: StartGateway, tmp_path: Path) -> None:
    """One line names the changes and those that need a restart; another has each fault of a wrong file. Clients stay.

    Settings of the environment win. The file's consumers, right or wrong, are ignored without `--with-consumers`.
    """
    file = tmp_path / "gateway-0" / "headgate.toml"  # where it is started
    file.parent.mkdir()
    everyone = '[consumers.x]\ntype = "no"\n[settings]\nlog_level = "error"\nanonymous_subscribe = ["#"]\n'
    file.write_text(f"{everyone}max_subscriptions = 5\n")
    gateway = start_gateway({"HEADGATE_LOG_LEVEL": "info"})
    gateway.wait_for_line("^headgate: settings from headgate.toml$")
    with RawClient(gateway.url) as client:
        assert client.welcome["limits"]["max_subscriptions"] == 5
        file.write_text(f"{everyone}max_subscriptions = 6\nqueue_frames = 99\n")
        os.kill(gateway.pid, signal.SIGHUP)
        line = gateway.wait_for_line('event="settings reloaded"').string
        assert "changed=['HEADGATE_MAX_SUBSCRIPTIONS']" in line.replace('"', "")
        assert "needs_restart=['HEADGATE_QUEUE_FRAMES']" in line.replace('"', "")
        assert limit(gateway.url) == 6

        file.write_text("[settings]\nmax_subscription = 7\nmax_clients = -1\n")
        os.kill(gateway.pid, signal.SIGHUP)
        told = gateway.wait_for_line('event="settings not reloaded"').string
        assert "did you mean max_subscriptions?" in told
        assert "max_clients=-1" in told
        assert limit(gateway.url) == 6
        assert client.request("subscribe", {"pattern": "a"})["ok"] is True
    assert "consum" not in gateway.output


@pytest.mark.parametrize("is_ignored", [False, True], ids=["", "nohup"])
def test_a_process_without_a_file_to_read_again_drains(start_gateway: StartGateway, *, is_ignored: bool) -> None:
    """As by SIGTERM, rather than cut off its clients. Under nohup it stays."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN if is_ignored else signal.SIG_DFL)
    try:
        gateway = start_gateway({"HEADGATE_ANONYMOUS_SUBSCRIBE": "#"})
    finally:
        signal.signal(signal.SIGHUP, before)

    os.kill(gateway.pid, signal.SIGHUP)

    if is_ignored:
        assert limit(gateway.url)
        gateway.ask_to_stop()
    assert gateway.wait_until_ended() == 0
    assert gateway.output.count("headgate: stopping") == 1
