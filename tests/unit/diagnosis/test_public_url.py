"""The remedy for a connection that a page could not have."""

import json
import socket
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from headgate.diagnosis.browser import NotConnected, refusal_of
from headgate.diagnosis.public_url import PublicUrl, _fix
from headgate.runtime.check_result import Verdict
from tests.support.certificates import Authority

DAY_S = 86400


@pytest.mark.parametrize(
    ("name", "reason", "status", "says"),
    [
        ("WebSocket", "HTTP 403", 403, "HEADGATE_ALLOWED_ORIGINS"),
        ("WebSocket", "HTTP 421", 421, "HEADGATE_HOSTS"),
        ("WebSocket", "HTTP 502", 502, "start a gateway behind the proxy"),
        ("long poll", "HTTP 404: no", 404, "/socket.io/"),
        ("WebSocket", "HTTP 200", 200, "proxy_http_version 1.1"),
        ("WebSocket", "connection refused", None, "--url"),
        ("long poll", "no such host", None, "--url"),
        ("WebSocket", "did not receive a valid HTTP response", None, "proxy_http_version 1.1"),
        ("WebSocket", "no answer in time", None, None),
        ("long poll", "HTTP 500: oh", 500, None),
    ],
)
def test_each_answer_of_a_proxy_or_gateway_leads_to_a_setting(
    name: str, reason: str, status: int | None, says: str | None
) -> None:
    """The one that most often is in front of it; none for what may have any cause."""
    fix = _fix(name, NotConnected(reason, status))
    assert fix is None if says is None else says in str(fix)


@pytest.mark.parametrize(
    ("code", "status", "says"),
    [
        ("origin_not_allowed", 403, "HEADGATE_ALLOWED_ORIGINS"),
        ("unknown_host", 421, "HEADGATE_HOSTS"),
        ("limit_reached", 503, None),
        ("not_implemented", 501, None),
    ],
)
def test_a_refusal_of_the_gateway_is_known_by_its_code(code: str, status: int, says: str | None) -> None:
    """A full gateway is one, so no gateway has to be started behind the proxy."""
    content = json.dumps({"code": 3, "message": "Bad request", "error": {"code": code, "message": "the reason"}}).encode()
    refused = refusal_of(status, content)
    fix = _fix("WebSocket", refused)

    assert (str(refused), refused.status) == (f"HTTP {status}: the reason", status)
    assert fix is None if says is None else says in str(fix)


@pytest.mark.parametrize(("days", "verdict"), [(60, Verdict.OK), (3, Verdict.WARNING), (-1, Verdict.WARNING)])
def test_a_certificate_that_ends_soon_is_named(days: int, verdict: Verdict) -> None:
    """Two weeks before; one that has ended is refused before."""
    ends_s = 1_893_456_000  # Jan  1 00:00:00 2030 GMT
    looked = PublicUrl("https://h", "n", {}, idle_s=0, timeout_s=1, now_s=lambda: ends_s - days * DAY_S)
    found = looked._expiry("Jan  1 00:00:00 2030 GMT", "TLSv1.3")
    assert found.verdict is verdict
    assert f"valid for {days} days more" in found.text


@pytest.mark.parametrize(
    ("date", "verdict"),
    [
        ("Tue, 01 Jan 2030 00:00:00 GMT", Verdict.OK),
        ("Tue, 01 Jan 2030 00:01:00 GMT", Verdict.WARNING),
        ("yesterday", Verdict.UNKNOWN),
    ],
)
def test_the_date_of_answers_is_held_beside_this_machines(date: str, verdict: Verdict) -> None:
    """It has whole seconds."""
    looked = PublicUrl("https://h", "n", {}, idle_s=0, timeout_s=1, now_s=lambda: 1_893_456_001)
    assert looked._date(date).verdict is verdict


@pytest.mark.parametrize(
    ("trusted", "expired", "verdict", "says"),
    [
        (True, False, Verdict.WARNING, "certificate valid for 1 days more"),
        (True, True, Verdict.FAULT, "its certificate is not accepted: certificate has expired"),
        (False, False, Verdict.FAULT, "its certificate is not accepted: "),
    ],
)
def test_a_servers_certificate_is_held_to_what_browsers_want(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trusted: bool, expired: bool, verdict: Verdict, says: str
) -> None:
    """A name, a chain trusted here (SSL_CERT_FILE), and a time."""
    authority = Authority(tmp_path)
    if trusted:
        monkeypatch.setenv("SSL_CERT_FILE", authority.ca_file)
    context = authority.server_context("localhost", expired=expired)
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with suppress(OSError), context.wrap_socket(listener.accept()[0], server_side=True) as tls:
                tls.recv(1)

        server = threading.Thread(target=serve)
        server.start()
        looked = PublicUrl(f"https://localhost:{listener.getsockname()[1]}", "n", {}, idle_s=0, timeout_s=60)
        [found] = looked._tls()
        server.join()
    assert found.verdict is verdict
    assert says in found.text


def test_where_nobody_listens_tls_is_a_fault() -> None:
    [found] = PublicUrl("https://127.0.0.1:1", "n", {}, idle_s=0, timeout_s=60)._tls()
    assert (found.verdict, found.text) == (Verdict.FAULT, "connection refused")
    assert "--url" in (found.fix or "")
