"""Firefox and WebKit, as far as the system has them: pages opened and asked, by the protocol that each speaks.

Debian: `apt-get install firefox-esr webkit2gtk-driver xvfb`. Firefox speaks WebDriver BiDi over a WebSocket by itself. WebKit (of
WebKitGTK, in its MiniBrowser) speaks WebDriver over HTTP by its driver, and needs a display.
"""

import json
import os
import re
import shutil
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

from websocket import create_connection

from tests.support.redis_server import wait_until

START_DEADLINE_S = 60


class Missing(Exception):
    """The browser is not installed."""


class Firefox:
    """A page of Firefox, by WebDriver BiDi."""

    def __init__(self, address: str) -> None:
        self._socket = create_connection(address, timeout=START_DEADLINE_S, suppress_origin=True)
        self._last = 0
        self._call("session.new", {"capabilities": {}})
        self._page = self._call("browsingContext.getTree", {})["contexts"][0]["context"]

    def open(self, url: str) -> None:
        self._call("browsingContext.navigate", {"context": self._page, "url": url, "wait": "complete"})

    def ask(self, expression: str) -> Any:
        """Return the value of an expression in the page; text, numbers, true or false."""
        words = {"expression": expression, "target": {"context": self._page}, "awaitPromise": True}
        return self._call("script.evaluate", words)["result"].get("value")

    def _call(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        self._last += 1
        self._socket.send(json.dumps({"id": self._last, "method": method, "params": params}))
        while True:
            message: dict[str, Any] = json.loads(self._socket.recv())
            if message.get("id") == self._last:
                assert message["type"] == "success", message
                result: dict[str, Any] = message["result"]
                return result


class WebKit:
    """A page of WebKitGTK, by WebDriver."""

    def __init__(self, address: str, browser: Path) -> None:
        self._address = address
        options = {"binary": str(browser), "args": ["--automation"]}
        made = self._call("", {"capabilities": {"alwaysMatch": {"webkitgtk:browserOptions": options}}})
        self._address += f"/{made['sessionId']}"

    def open(self, url: str) -> None:
        self._call("/url", {"url": url})

    def ask(self, expression: str) -> Any:
        return self._call("/execute/sync", {"script": f"return {expression}", "args": []})

    def close(self) -> None:
        with urllib.request.urlopen(urllib.request.Request(self._address, method="DELETE"), timeout=START_DEADLINE_S):
            pass

    def _call(self, path: str, body: dict[str, Any]) -> Any:
        request = urllib.request.Request(self._address + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=START_DEADLINE_S) as answer:
            return json.load(answer)["value"]


OtherBrowser: TypeAlias = Firefox | WebKit


@contextmanager
def firefox(folder: Path) -> Iterator[OtherBrowser]:
    """Start Firefox without a window, with a new profile.

    Raises:
        Missing: there is none.
    """
    program = _program("firefox-esr", "firefox")
    words = [program, "--headless", "--no-remote", "--remote-debugging-port", "0", "--profile", str(folder), "about:blank"]
    log = folder / "log"
    with _running(words, log):
        yield Firefox(_written(log, r"WebDriver BiDi listening on (\S+)") + "/session")


@contextmanager
def webkit(folder: Path) -> Iterator[OtherBrowser]:
    """Start the MiniBrowser of WebKitGTK on a separate display.

    Raises:
        Missing: there is none, or no display.
    """
    driver, display = _program("WebKitWebDriver"), _program("Xvfb")
    browsers = sorted(Path("/usr/lib").glob("*/webkit2gtk-4.*/MiniBrowser"))
    if not browsers:
        raise Missing("MiniBrowser")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = folder / "display"
    with _running([display, "-displayfd", "1", "-nolisten", "tcp"], log):
        environment = {"DISPLAY": ":" + _written(log, r"^(\d+)$"), "HOME": str(folder)}
        with _running([driver, f"--port={port}"], folder / "log", environment):
            wait_until(lambda: _answers(f"http://127.0.0.1:{port}/status"), "the driver answers", START_DEADLINE_S)
            page = WebKit(f"http://127.0.0.1:{port}/session", browsers[-1])
            yield page
            page.close()


def _program(*names: str) -> str:
    for name in names:
        if path := shutil.which(name):
            return path
    raise Missing(names[0])


@contextmanager
def _running(words: list[str], log: Path, environment: dict[str, str] | None = None) -> Iterator[None]:
    """Run a program that writes into a file, until the block ends."""
    with log.open("wb") as output:
        process = subprocess.Popen(words, env={**os.environ, **(environment or {})}, stdout=output, stderr=subprocess.STDOUT)
        try:
            yield
        finally:
            process.terminate()
            try:
                process.wait(START_DEADLINE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _written(log: Path, pattern: str) -> str:
    """Wait until a program has written a line, and return the part of it in brackets."""
    found = wait_until(lambda: re.search(pattern, log.read_text(errors="replace"), re.MULTILINE), pattern, START_DEADLINE_S)
    return str(found[1])


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=START_DEADLINE_S):
            return True
    except urllib.error.URLError:
        return False
