"""The headers of every answer, and pages without anything forbidden."""

from __future__ import annotations

import pytest
from flask.testing import FlaskClient

from headgate_server.api.security_headers import content_security_policy


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
