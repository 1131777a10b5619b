"""Tests the public URL, with everything between a browser and the gateway, as a browser uses it.

In: the URL where pages connect, and credentials for a client. Out: results about TLS, answers, WebSocket, long polls and quiet
connections, with a setting for the proxy or the gateway to fix each, and two connected clients for the probe.
"""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from email.utils import parsedate_to_datetime
from typing import Any

from headgate.errors import UnauthorizedReason
from headgate.runtime.check_result import CheckResult, fault, ok, unknown, warning
from headgate.settings.addresses.http_target import read_target
from headgate.settings.addresses.origins import parse_origin

from .browser import Browser, NotConnected, PollingBrowser, WebSocketBrowser, reason_of

SOON_DAYS = 14
# An answer's Date has whole seconds, and the answer takes time to arrive.
DATE_OFF_S = 3.0
_POLL_S = 0.05
_UPGRADE_FIX = 'let the proxy pass the upgrade on (nginx: proxy_http_version 1.1, Upgrade and Connection "upgrade")'
_IDLE_FIX = (
    "raise the proxy's idle timeout above HEADGATE_PING_INTERVAL_S "
    "(nginx: proxy_read_timeout; HAProxy: timeout tunnel and timeout server)"
)
_STICKY_FIX = (
    "give the proxy sticky sessions: over several gateways a polling client of Socket.IO needs them, Headgate's own does not"
)
_ORIGIN_FIX = "list the origin of your pages in HEADGATE_ALLOWED_ORIGINS, or set HEADGATE_PROXIES and X-Forwarded-Proto"
_NOBODY = ("connection refused", "no such host")
_NOBODY_FIX = "start a gateway or its proxy there, or name with --url where pages connect"
_HOST_FIX = "list the name in HEADGATE_HOSTS"


class PublicUrl:
    """See the module.

    Args:
        url: where pages connect, such as https://app.example.com.
        auth: of the CONNECT, with the token if any.
        origin: of the pages; None for the URL's.
        idle_s: how long both connections stay quiet.

    Raises:
        ValueError: `url` or `origin` is invalid, with the reason.

    Attributes:
        browsers: connected clients by name.
        welcome: the gateway's welcome to the first of them.
    """

    def __init__(
        self,
        url: str,
        namespace: str,
        auth: Mapping[str, Any],
        *,
        origin: str | None = None,
        idle_s: float,
        timeout_s: float,
        now_s: Callable[[], float] = time.time,
    ) -> None:
        self._target, self._auth = read_target(url), auth
        self._idle_s, self._timeout_s, self._now_s = idle_s, timeout_s, now_s
        origin = self._target.origin if origin is None else str(parse_origin(origin))
        self._websocket = WebSocketBrowser(url, namespace, origin, timeout_s)
        self._polling = PollingBrowser(url, namespace, origin, timeout_s)
        self.browsers: dict[str, Browser] = {}
        self.welcome: Mapping[str, Any] = {}

    def check(self) -> Iterator[CheckResult]:
        """Yield the results. Takes `idle_s` plus at most a few `timeout_s`."""
        if self._target.scheme == "https":
            yield from self._tls()
        yield self._join("WebSocket", self._websocket)
        yield self._join("long poll", self._polling)
        if self._polling.date is not None:
            yield self._date(self._polling.date)
        if self.browsers and self._idle_s:
            yield from self._idle()

    def subscribe(self, pattern: str) -> Iterator[CheckResult]:
        """Subscribe each connected client; yield a result for each failure and continue."""
        for name, browser in list(self.browsers.items()):
            try:
                browser.subscribe(pattern)
            except NotConnected as error:
                self.browsers.pop(name).close()
                check, text = f"subscribe over {name}", f"to {pattern}: {error}"
                yield _lost_session(check, text) or unknown(check, text, "give --token a token of a user")

    def close(self) -> None:
        """Leave the gateway. Idempotent."""
        for browser in self.browsers.values():
            browser.close()

    # -- private ------------------------------------------------------------------------------------------------------

    def _tls(self) -> Iterator[CheckResult]:
        host, port = self._target.host, self._target.port
        try:
            with (
                socket.create_connection((host, port), self._timeout_s) as raw,
                ssl.create_default_context().wrap_socket(raw, server_hostname=host) as tls,
            ):
                certificate, version = tls.getpeercert() or {}, tls.version()
        except OSError as error:
            reason = reason_of(error)
            fix = _NOBODY_FIX if reason in _NOBODY else "give the proxy a certificate for this name, with its whole chain"
            yield fault("TLS", reason, fix)
            return
        yield self._expiry(str(certificate.get("notAfter", "")), version or "TLS")

    def _expiry(self, not_after: str, version: str) -> CheckResult:
        days = (ssl.cert_time_to_seconds(not_after) - self._now_s()) / 86400
        text = f"{version}, certificate valid for {days:.0f} days more"
        return ok("TLS", text) if days > SOON_DAYS else warning("TLS", text, "renew it")

    def _join(self, name: str, browser: Browser) -> CheckResult:
        try:
            welcome = browser.join(self._auth)
        except NotConnected as error:
            browser.close()
            if not error.is_refusal:
                return _lost_session(name, str(error)) or fault(name, str(error), _fix(name, error))
            if error.code in ("unauthorized", "forbidden") and error.reason != UnauthorizedReason.NO_AUTHENTICATOR:
                fix = "give --token a token of a user; it is tried as a page would"
                return unknown(name, f"it reaches the gateway, which refuses this client ({error.code}: {error})", fix)
            return fault(name, f"the gateway refuses this client: {error} ({error.code})")
        self.browsers[name] = browser
        self.welcome = self.welcome or welcome
        return ok(name, f"open in {browser.answered_s * 1000:.0f} ms")

    def _date(self, date: str) -> CheckResult:
        try:
            off_s = self._now_s() - parsedate_to_datetime(date).timestamp()
        except ValueError:
            return unknown("date of answers", f"{date[:80]!r} is none")
        text = f"{off_s:+.0f} s from this machine's"
        return (
            ok("date of answers", text) if abs(off_s) < DATE_OFF_S else warning("date of answers", text, "set the clocks (NTP)")
        )

    def _idle(self) -> Iterator[CheckResult]:
        began_s = time.monotonic()
        while time.monotonic() - began_s < self._idle_s and any(each.ended is None for each in self.browsers.values()):
            time.sleep(_POLL_S)
        for name, browser in list(self.browsers.items()):
            if browser.ended is None:
                yield ok(f"quiet {name}", f"held for {self._idle_s:g} s")
                continue
            del self.browsers[name]
            check, text = f"quiet {name}", f"{browser.ended} after {browser.ended_at_s - began_s:.1f} s"
            yield _lost_session(check, text) or fault(check, text, _IDLE_FIX)


def _lost_session(name: str, text: str) -> CheckResult | None:
    """Return a warning if a gateway without the session has answered, which does not affect our JavaScript client."""
    return warning(name, text, _STICKY_FIX) if "Session ID unknown" in text else None


def _fix(name: str, error: NotConnected) -> str | None:
    """Return the fix for a failed connection."""
    text = str(error)
    if error.code == "origin_not_allowed" or error.status == 403:
        return _ORIGIN_FIX
    if error.code == "unknown_host" or error.status == 421:
        return _HOST_FIX
    if error.code not in ("", "bad_request"):  # bad_request may be an upgrade without its headers
        return None
    if error.status in (502, 503, 504):
        return "start a gateway behind the proxy, and see its /healthz"
    if error.status == 404:
        return "let the proxy pass /socket.io/ on to the gateway"
    if name == "WebSocket" and (error.status is not None or "did not receive a valid HTTP response" in text):
        return _UPGRADE_FIX
    if text.startswith(_NOBODY):
        return _NOBODY_FIX
    return None
