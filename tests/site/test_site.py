"""The documentation site, built by `make site-check` into build/site: axe's rules, widths, the first results of a search."""

import functools
import http.server
import json
import os
import re
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
from playwright.sync_api import Browser, expect, sync_playwright

from headgate import __version__
from tests.support.chromium import BROWSER_SWITCHES

ROOT = Path(__file__).resolve().parents[2]
SITE = ROOT / "build" / "site"
AXE = ROOT / "node_modules" / "axe-core" / "axe.min.js"
Scheme = Literal["light", "dark"]
ALL = tuple(sorted(str(path.relative_to(SITE)) for path in SITE.rglob("*.html")))
# Code of three languages, wide tables, links in texts, diagrams, each in both schemes somewhere.
LOOKS = [
    pytest.param("light", ("howto/django.html", "comparison.html"), id="light"),
    pytest.param("dark", ("howto/django.html", "architecture.html"), id="dark"),
    *(
        pytest.param(scheme, ALL, id=f"{scheme}, all", marks=[pytest.mark.nightly, pytest.mark.timeout(3600)])
        for scheme in ("light", "dark")
    ),
]
WIDE = [
    pytest.param((390, 1366), ("comparison.html", "architecture.html"), id="short"),
    pytest.param((390, 768, 1366, 1440, 1920), ALL, id="all", marks=[pytest.mark.nightly, pytest.mark.timeout(3600)]),
]
# The theme names two parts of its navigation alike.
OF_THE_THEME = {"landmark-unique"}
# Two frames after a resize every observer of sizes has been called.
LAID_OUT = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
# A beginner's questions, and pages of which one must come first. Each makes the page read its whole index.
ASKED = {"token": ("howto/sign-in", "guide", "start", "tutorial"), "idempotency": ("http-api", "guide")}


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Says nothing of each request."""

    def log_message(self, *words: Any) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def browser(browser_path: str) -> Iterator[Browser]:
    expect.set_options(timeout=30_000)
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=browser_path, args=list(BROWSER_SWITCHES))
        yield running
        running.close()


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """The site over HTTP, as a search needs it."""
    assert (SITE / "index.html").exists(), "the site is not built: `make docs`"
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(SITE))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@pytest.mark.parametrize(("scheme", "pages"), LOOKS)
def test_no_page_breaks_a_rule_of_axe(browser: Browser, url: str, scheme: Scheme, pages: tuple[str, ...]) -> None:
    """Contrast of texts and of code, links with more than a colour, names for screen readers; on a phone too."""
    wrong: list[tuple[str, int, str, str]] = []
    with browser.new_context(color_scheme=scheme, reduced_motion="reduce") as context:
        page = context.new_page()
        for name in pages:
            page.set_viewport_size({"width": 1366, "height": 900})
            page.goto(url + name)
            page.evaluate(AXE.read_text("utf-8"))
            for width in (1366, 390):
                page.set_viewport_size({"width": width, "height": 900})
                page.evaluate(LAID_OUT)
                found = page.evaluate("axe.run(document, {resultTypes: ['violations']}).then(({violations}) => violations)")
                broken = [each for each in found if each["id"] not in OF_THE_THEME]
                wrong += [(name, width, each["id"], each["nodes"][0]["html"][:200]) for each in broken]
    assert wrong == []


@pytest.mark.parametrize(("widths", "pages"), WIDE)
def test_no_page_scrolls_sideways(browser: Browser, url: str, widths: tuple[int, ...], pages: tuple[str, ...]) -> None:
    """From a phone to a wide screen, where a wider part scrolls in itself."""
    with browser.new_context() as context:
        page = context.new_page()
        for name in pages:
            page.goto(url + name)
            for width in widths:
                page.set_viewport_size({"width": width, "height": 900})
                # The theme's search moves for a moment after a resize.
                page.wait_for_function("document.documentElement.scrollWidth <= innerWidth")


def test_each_page_of_the_navigation_is_linked_in_its_list() -> None:
    """A page named index or README in a section would become the section's own link, and a reader of the list would miss it."""
    navigation = (ROOT / "site" / "mkdocs.yml").read_text("utf-8").partition("\nnav:\n")[2]
    pages = re.findall(r"^ +- .*?\b([\w/-]+)\.md\b", navigation, re.MULTILINE)
    linked = re.findall(r'<a href="/?([\w/-]+)\.html" class="md-nav__link', (SITE / "404.html").read_text("utf-8"))
    assert len(pages) > 50
    assert {page.replace("README", "index") for page in pages} - set(linked) == set()


def test_each_page_shows_its_version_beside_the_name(browser: Browser, url: str) -> None:
    """The version is that of the package, so a reader knows which release the page describes."""
    with browser.new_context() as context:
        page = context.new_page()
        for name in ("index.html", "howto/django.html", "project/changelog.html"):
            page.goto(url + name)
            expect(page.locator(".md-header__topic .version").first).to_have_text(__version__)


def test_a_page_leads_to_its_source_where_the_project_has_an_address(tmp_path: Path) -> None:
    """A page from outside docs/ leads to its own file, and a generated page has no link to edit it.

    Only these three pages are built, with the site's own configuration.
    """
    pages = ("guide", "reference/javascript", "settings")
    config = {
        "INHERIT": str(ROOT / "site" / "mkdocs.yml"),
        "docs_dir": str(ROOT / "docs"),
        "site_dir": str(tmp_path / "site"),
        "hooks": [str(ROOT / "site" / "hooks.py")],
        "nav": [f"{page}.md" for page in pages],
        "exclude_docs": "\n".join(["*.md", *(f"!/{page}.md" for page in pages)]),
        "strict": False,  # links to pages that are left out
    }
    (tmp_path / "mkdocs.yml").write_text(json.dumps(config), "utf-8")
    builder = ROOT / "build" / "docs-tools" / "bin" / "mkdocs"
    environment = {**os.environ, "HEADGATE_PROJECT_URL": "https://example.org/headgate/", "NO_MKDOCS_2_WARNING": "1"}
    command = (builder, "build", "--quiet", "--config-file", tmp_path / "mkdocs.yml")
    subprocess.run(command, check=True, env=environment, timeout=120)
    edit = {
        page: re.findall(r"https://example\.org/headgate/edit/main/([^\"]+)", (tmp_path / f"site/{page}.html").read_text("utf-8"))
        for page in pages
    }
    assert edit == {"guide": ["docs/guide.md"], "reference/javascript": ["web/README.md"], "settings": []}


def test_a_search_names_guides_before_decisions(browser: Browser, url: str) -> None:
    """For a beginner's question, the first page shows the way, and no decision is among the first three."""
    with browser.new_context() as context:
        page = context.new_page()
        for word, wanted in ASKED.items():
            page.goto(f"{url}?q={word}")
            links = page.locator(".md-search-result__item > .md-search-result__link")
            expect(links.nth(2)).to_be_attached()
            named = [
                link.removeprefix(url).partition(".html")[0] for link in links.evaluate_all("all => all.map(({href}) => href)")
            ]
            assert named[0].startswith(wanted), (word, named[:5])
            assert not [name for name in named[:3] if name.startswith("decisions/")], (word, named[:5])
