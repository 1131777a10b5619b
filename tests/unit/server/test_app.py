"""The application as a whole: with the demo and without, from settings and from the environment."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import pytest
from flask import Flask
from flask.testing import FlaskClient

from headgate.settings.settings import Settings
from headgate_server.app import create_app
from tests.support.recording_gate import RecordingGate


def test_without_the_demo_the_index_says_what_this_is(gate: RecordingGate) -> None:
    """And none of the demo's routes exist."""
    client = create_app(Settings(), gate=gate).test_client()
    page = client.get("/")
    assert page.status_code == 200
    assert "Headgate" in page.text
    assert client.get("/demo/orders").status_code == 404


@pytest.fixture
def app_from_environment(monkeypatch: pytest.MonkeyPatch, gate: RecordingGate, tmp_path: Path) -> Flask:
    monkeypatch.setenv("HEADGATE_DEMO", "1")
    monkeypatch.setenv("HEADGATE_DATA_DIR", str(tmp_path))
    return create_app(gate=gate)


def test_settings_come_from_the_environment_when_none_are_given(app_from_environment: Flask) -> None:
    """As for a WSGI server that gets `create_app`."""
    assert app_from_environment.test_client().get("/demo/orders").status_code == 200


@pytest.mark.parametrize("name", ["demo.js", "demo.css", "demo-icon.svg"])
def test_the_files_of_its_pages_are_compressed_and_kept(demo: FlaskClient, name: str) -> None:
    """By their version, for a year; without it they are asked for each time, and not sent again. Needs `npm run build`."""
    (address,) = re.findall(rf'"(/static/{name}\?v=\w+)"', demo.get("/").text)
    kept = demo.get(address, headers={"Accept-Encoding": "gzip"})
    assert kept.headers["Content-Encoding"] == "gzip"
    assert kept.headers["Cache-Control"] == "public, max-age=31536000, immutable"
    plain = demo.get(f"/static/{name}")
    assert "no-cache" in plain.headers["Cache-Control"]
    assert gzip.decompress(kept.data) == plain.data
    assert len(kept.data) < len(plain.data)
    again = demo.get(f"/static/{name}", headers={"If-None-Match": plain.headers["ETag"]})
    assert (again.status_code, again.data) == (304, b"")
    assert demo.get("/static/../app.py").status_code == 404
