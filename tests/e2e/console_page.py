"""The console in a browser, in an operator's words: sign in, go to a view, read the numbers."""

from playwright.sync_api import ConsoleMessage, Locator, Page, expect

from headgate_server.api.console.pages import VIEWS

KEY = "the-admin-key-of-the-tests-0123456789"
SETTINGS = {"HEADGATE_ADMIN_KEY": KEY, "HEADGATE_CONSOLE_ACTIONS": "on", "HEADGATE_TRACE_EVERY": "1"}
# Chromium's hint about fields for passwords is no fault of the page; and the page reports a refused request.
_NO_FAULTS = ("[DOM] Password forms", "responded with a status of 4")
_WATCH_SHIFTS = """
window.shifts = 0;
new PerformanceObserver(list => {
  for (const entry of list.getEntries()) if (!entry.hadRecentInput) window.shifts += entry.value;
}).observe({ type: "layout-shift", buffered: true });
"""


class ConsolePage:
    """A page of the console. `faults` are errors of its script and of its policy."""

    def __init__(self, page: Page, url: str) -> None:
        self.page, self.url = page, url
        self.faults: list[str] = []
        page.on("pageerror", lambda error: self.faults.append(str(error)))
        page.on("console", self._hear)
        page.add_init_script(_WATCH_SHIFTS)

    def sign_in(self, key: str = KEY) -> None:
        self.page.goto(f"{self.url}/console")
        expect(self.page.get_by_label("Admin key")).to_be_focused()
        self.page.keyboard.type(key)
        self.page.keyboard.press("Enter")

    def wait_until_live(self) -> None:
        """Return when the page is connected and has shown numbers of a process."""
        expect(self.page.locator("#line")).to_have_text("Live")

    def go(self, path: str) -> None:
        self.page.locator(f'a[data-view="{path}"]').click()
        expect(self.page.locator("h1")).to_have_text(VIEWS[path])

    def panel(self, title: str) -> Locator:
        """The part of a view with this heading."""
        return self.page.get_by_role("region", name=title, exact=True)

    def tile(self, name: str) -> Locator:
        return self.page.locator(".tile", has=self.page.get_by_text(name, exact=True))

    def troubles(self) -> Locator:
        return self.page.get_by_role("list", name="What is wrong now")

    def events(self) -> Locator:
        return self.page.locator(".tail-row")

    def shifts(self) -> float:
        """How much of the page has moved by itself since it was loaded (Cumulative Layout Shift)."""
        moved: float = self.page.evaluate("window.shifts")
        return moved

    def _hear(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning") and not any(part in message.text for part in _NO_FAULTS):
            self.faults.append(message.text)
