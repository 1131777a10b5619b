"""The ready-made server over Flask's own client, with a recording gate: no Redis, no socket."""

from pathlib import Path

import pytest
from flask.testing import FlaskClient

from headgate.settings.settings import Settings
from headgate_server.app import create_app
from tests.support.recording_gate import RecordingGate


@pytest.fixture
def gate() -> RecordingGate:
    return RecordingGate()


@pytest.fixture
def demo(gate: RecordingGate, tmp_path: Path) -> FlaskClient:
    return create_app(Settings(demo=True, data_dir=str(tmp_path)), gate=gate).test_client()


@pytest.fixture
def dev(gate: RecordingGate) -> FlaskClient:
    return create_app(Settings(dev=True), gate=gate).test_client()


@pytest.fixture
def as_ana(demo: FlaskClient) -> dict[str, str]:
    return {"Authorization": f"Bearer {demo.post('/demo/session', json={'user': 'ana'}).get_json()['token']}"}
