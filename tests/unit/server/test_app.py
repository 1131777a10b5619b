"""The application as a whole: with the demo and without, its settings, its files, and the headers of its answers."""

import gzip
import re

import pytest
from flask.testing import FlaskClient

from headgate.settings.settings import Settings
from headgate_server.api.security_headers import content_security_policy
from headgate_server.app import create_app
from tests.support.recording_gate import RecordingGate


def test_without_the_demo_the_index_says_what_this_is(gate: RecordingGate) -> None:
    """And none of the demo's routes exist."""
    client = create_app(Settings(), gate=gate).test_client()
    page = client.get("/")
    assert page.status_code == 200
    assert "Headgate" in page.text
    assert client.get("/demo/orders").status_code == 404


def test_settings_come_from_the_environment_when_none_are_given(monkeypatch: pytest.MonkeyPatch, gate: RecordingGate) -> None:
    """As for a WSGI server that gets `create_app`."""
    monkeypatch.setenv("HEADGATE_DEMO", "1")
    assert create_app(gate=gate).test_client().get("/demo/orders").status_code == 200


@pytest.mark.parametrize("name", ["demo.js", "demo.css", "demo-icon.svg"])
def test_the_files_of_its_pages_are_compressed_and_kept(demo: FlaskClient, name: str) -> None:
    """By their version, for a year; without it they are asked for each time, and not sent again. Needs `npm run build`."""
    (address,) = re.findall(rf'"(/headgate/{name}\?v=\w+)"', demo.get("/").text)
    kept = demo.get(address, headers={"Accept-Encoding": "gzip"})
    assert kept.headers["Content-Encoding"] == "gzip"
    assert kept.headers["Cache-Control"] == "public, max-age=31536000, immutable"
    plain = demo.get(f"/headgate/{name}")
    assert "no-cache" in plain.headers["Cache-Control"]
    assert gzip.decompress(kept.data) == plain.data
    assert len(kept.data) < len(plain.data)
    again = demo.get(f"/headgate/{name}", headers={"If-None-Match": plain.headers["ETag"]})
    assert (again.status_code, again.data) == (304, b"")
    assert demo.get("/headgate/../app.py").status_code == 404


@pytest.mark.parametrize("path", ["/", "/?user=ana&twice=1", "/healthz", "/no/such/page"])
def test_every_response_carries_the_strict_headers(demo: FlaskClient, path: str) -> None:
    """No inline script, no sniffing, no referrer, no frame around it; error pages included."""
    headers = demo.get(path).headers
    policy = headers["Content-Security-Policy"]
    assert "script-src 'self';" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Referrer-Policy"] == "no-referrer"


def test_the_policy_allows_web_sockets_to_its_own_host_only() -> None:
    """A Host header with more than a host is not copied into the policy."""
    assert "connect-src 'self' ws://localhost:8000 wss://localhost:8000;" in content_security_policy("localhost:8000")
    assert "connect-src 'self' ws://[::1]:8000 wss://[::1]:8000;" in content_security_policy("[::1]:8000")
    for hostile in ("evil; script-src *", "*", "a b", "", "x" * 300):
        assert "connect-src 'self';" in content_security_policy(hostile)


def test_pages_hold_no_inline_script_or_style(demo: FlaskClient) -> None:
    """The policy would block it."""
    for path in ("/", "/?user=ana"):
        page = demo.get(path).text
        assert " style=" not in page
        assert "<style" not in page
        assert page.count("<script") == page.count('<script type="module" src=')
