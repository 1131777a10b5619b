"""`headgate serve --with-consumers`: the consumers are a process beside the gateway, and live and end with it."""

import os
import signal
import urllib.request
from pathlib import Path

import pytest

from headgate.cli import serve
from headgate.redis.data_folder import find_private_redis
from headgate.services.publisher import Publisher
from tests.support.consume_process import SINK_TABLE, SinkFolder
from tests.support.gateway_process import START_DEADLINE_S, GatewayFailed, GatewayProcess
from tests.support.processes import has_ended
from tests.support.redis_server import wait_until


@pytest.fixture
def gateway(sink_folder: SinkFolder) -> GatewayProcess:
    """A gateway, not yet started, with a private Redis and the sink as its consumer."""
    return GatewayProcess(sink_folder.path, arguments=("--with-consumers",))


def publish(gateway: GatewayProcess, topic: str) -> None:
    with Publisher(find_private_redis(gateway.folder / "data")) as publisher:
        publisher.publish(topic, 1)


def consumer_pid(sink_folder: SinkFolder, number: int = 1) -> int:
    """The process of the consumers, when the sink was started for the `number`th time."""
    wait_until(lambda: len(sink_folder.pids()) == number, "the sink is started", START_DEADLINE_S)
    return sink_folder.pids()[-1]


def test_consumers_run_in_a_process_of_their_own_on_the_private_redis(gateway: GatewayProcess, sink_folder: SinkFolder) -> None:
    """A published event reaches the sink. A reload says that changed ones need a restart. A stop ends both, after the task."""
    with gateway:
        pid = consumer_pid(sink_folder)
        assert pid != gateway.pid
        assert os.getpriority(os.PRIO_PROCESS, pid) > os.getpriority(os.PRIO_PROCESS, gateway.pid)  # live delivery goes first
        publish(gateway, "orders.1.slow")
        wait_until((sink_folder.path / "begun").exists, "the sink is at work")
        sink_folder.configure(SINK_TABLE.format(name="sink", more="workers = 2"))
        os.kill(gateway.pid, signal.SIGHUP)
        gateway.wait_for_line(r"""needs_restart=\['consumers'\] event="settings reloaded\"""")
        os.kill(gateway.pid, signal.SIGTERM)
        gateway.wait_for_line("^headgate: stopping$")
        assert not has_ended(pid)
        (sink_folder.path / "go").touch()

        assert gateway.stop() == 0

    assert sink_folder.got() == ["orders.1.slow"]
    assert has_ended(pid)


def test_killed_consumers_start_again_and_end_with_a_killed_gateway(gateway: GatewayProcess, sink_folder: SinkFolder) -> None:
    """Reported in one line; the gateway goes on, and no event is lost. When it is killed, they find that their parent is gone."""
    with gateway:
        os.kill(consumer_pid(sink_folder), signal.SIGKILL)
        gateway.wait_for_line("^headgate: the consumers ended with status -9; starting them again in 1 s$")
        publish(gateway, "orders.1")

        sink_folder.wait_for("orders.1")

        pid = consumer_pid(sink_folder, 2)
        with urllib.request.urlopen(f"{gateway.url}/metrics", timeout=30) as page:
            assert b"\nheadgate_consumers_process_ended_total 1.0\n" in page.read()
        gateway.kill()

        wait_until(lambda: has_ended(pid), "the consumers have ended with the gateway")


def test_a_fault_of_the_file_stops_the_start(gateway: GatewayProcess, sink_folder: SinkFolder) -> None:
    """With its line, before anyone is served."""
    sink_folder.configure(SINK_TABLE.format(name="sink", more="workers = 0"))

    with pytest.raises(
        GatewayFailed, match=r"headgate\.toml \[consumers\.sink\] workers=0: expected a whole number from 1 to 64"
    ):
        gateway.start()

    assert gateway.stop() == 1
    assert "ready at" not in gateway.output
    assert "started a private" not in gateway.output


def test_a_named_file_must_exist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A typing error in its name is no file without consumers; nothing is begun."""
    monkeypatch.chdir(tmp_path)

    assert serve.run({}, config="hedgate.toml") == 1

    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.splitlines() == ["headgate: 1 setting is wrong:", "  hedgate.toml: no such file or directory"]
