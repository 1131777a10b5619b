"""A page hidden by another one of its window, which can be frozen, as a browser does with hidden tabs.

Playwright keeps each of its pages visible, and `Page.setWebLifecycleState` has no effect on a visible page. This page is in a
browser context that Playwright does not know, and the test asks it over the browser's own DevTools session.
"""

from __future__ import annotations

import json
from typing import Any

from playwright.sync_api import Browser

from tests.support.redis_server import wait_until

DEADLINE_S = 30


class HiddenPage:
    """Open an address, in a separate profile or as another tab `beside` a hidden page. `close` when it is done."""

    def __init__(self, browser: Browser, url: str, beside: HiddenPage | None = None) -> None:
        self._session = browser.new_browser_cdp_session()
        self._answers: dict[int, dict[str, Any]] = {}
        self._last = 0
        self._session.on("Target.receivedMessageFromTarget", self._received)
        self._context: str = beside._context if beside else self._session.send("Target.createBrowserContext")["browserContextId"]
        target = self._open(url)
        self._open("about:blank")
        self._attached: str = self._session.send("Target.attachToTarget", {"targetId": target, "flatten": False})["sessionId"]

    def evaluate(self, expression: str) -> Any:
        answer = self._call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def wait_until(self, condition: str) -> None:
        wait_until(lambda: self.evaluate(condition), condition, DEADLINE_S)

    def freeze(self) -> None:
        """Stop it, so that none of its handlers and timers runs. Its connections stay open."""
        self._call("Page.setWebLifecycleState", state="frozen")

    def resume(self) -> None:
        self._call("Page.setWebLifecycleState", state="active")

    def close(self) -> None:
        self._session.send("Target.disposeBrowserContext", {"browserContextId": self._context})
        self._session.detach()

    def _open(self, url: str) -> str:
        target: str = self._session.send("Target.createTarget", {"url": url, "browserContextId": self._context})["targetId"]
        return target

    def _received(self, event: dict[str, Any]) -> None:
        message = json.loads(event["message"])
        if "id" in message:
            self._answers[message["id"]] = message

    def _call(self, method: str, **params: Any) -> dict[str, Any]:
        self._last += 1
        mine = self._last
        message = json.dumps({"id": mine, "method": method, "params": params})
        self._session.send("Target.sendMessageToTarget", {"sessionId": self._attached, "message": message})
        # Playwright hands over its messages during each call.
        wait_until(lambda: self._session.send("Browser.getVersion") and mine in self._answers, method, DEADLINE_S)
        answer = self._answers.pop(mine)
        assert "error" not in answer, answer
        result: dict[str, Any] = answer["result"]
        return result
