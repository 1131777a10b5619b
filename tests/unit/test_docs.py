"""Every name in the documentation exists: files, headings, settings, metrics."""

import re
from functools import cache
from pathlib import Path

import pytest
from prometheus_client import REGISTRY

import headgate.runtime.metrics  # noqa: F401  (registers what the gateway and consumers count)
from headgate.redis.functions import SOURCE
from headgate.settings.settings import REMOVED
from tools.settings_page import describe
from tools.settings_page import page as settings_page

ROOT = Path(__file__).resolve().parents[2]
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), ROOT / "web" / "README.md", ROOT / "bench" / "README.md"]
SHIPPED = [ROOT / "docker-compose.yml", ROOT / "Dockerfile"]


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def names_in(pattern: str, page: Path) -> set[str]:
    return set(re.findall(pattern, page.read_text()))


@cache
def anchors(page: Path) -> set[str]:
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    return {
        re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    }


def test_every_link_to_a_file_or_heading_of_ours_leads_there() -> None:
    """A reader who follows a link must find its target."""
    wrong = []
    for page in PAGES:
        for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
            path, _, anchor = link.partition("#")
            target = page.parent / path if path else page
            if "://" not in link and not (target.exists() and (not anchor or anchor in anchors(target))):
                wrong.append(f"{name_of(page)}: {link}")
    assert wrong == []


def test_every_setting_that_is_named_exists() -> None:
    """A misspelt one stops the gateway of a reader who copies it."""
    known = {name for name, *_ in describe()} | set(re.findall(r"HEADGATE_[A-Z_]+", settings_page()))
    of_a_page = {"CHANGELOG.md": {f"HEADGATE_{name.upper()}" for name in REMOVED}, "faults.md": {"HEADGATE_SEED"}}
    wrong = {
        name_of(file): unknown
        for file in [*PAGES, *SHIPPED]
        if (unknown := names_in(r"(HEADGATE_[A-Z_]*[A-Z])", file) - known - of_a_page.get(file.name, set()))
    }
    assert wrong == {}


def test_every_metric_that_is_named_exists() -> None:
    """An alert on an unknown name never fires."""
    metrics = {sample for metric in REGISTRY.collect() for sample in (metric.name, f"{metric.name}_total")}
    known = {*metrics, *re.findall(r"'(headgate_[a-z_]+)'", SOURCE), "headgate_server"}
    wrong = {
        name_of(page): unknown
        for page in PAGES
        if page.name != "CHANGELOG.md" and (unknown := names_in(r"`((?:headgate|process)_[a-z_]+)(?=[`{ )=])", page) - known)
    }
    assert wrong == {}


def test_every_test_that_is_named_exists() -> None:
    """A promise that names its test must still have it."""
    named = {(name_of(page), path) for page in PAGES for path in names_in(r"`(tests/[\w/.-]+)`", page)}
    assert {(page, path) for page, path in named if not (ROOT / path).exists()} == set()


EMBEDDED = {
    (page, title): code
    for page in (ROOT / "docs").rglob("*.md")
    for title, code in re.findall(r'^```\w+ title="([^"]+)"\n(.*?)^```$', page.read_text(), re.MULTILINE | re.DOTALL)
    if (ROOT / "examples" / title).exists()
}


@pytest.mark.parametrize(("page", "title"), EMBEDDED, ids=str)
def test_a_page_shows_an_example_as_it_is(page: Path, title: str) -> None:
    """Examples are run by a test, and the part on a page must be the same."""
    assert EMBEDDED[page, title] == (ROOT / "examples" / title).read_text()


def test_pages_show_examples() -> None:
    """The rule above has cases."""
    assert len(EMBEDDED) >= 5


# A wait for the subscription, or the option that reports a loss, and a fetch right after it.
FETCHES_BY_HAND = re.compile(
    r"(?:subscribed\([^)]*\)|\.ready)\)?[\s;]*(?:\.then\(|await\s+)\s*[^\n]*(?:load|fetch|reload)|resync: *\w*(?:load|fetch)",
    re.IGNORECASE,
)
EXAMPLES = [
    path
    for path in ROOT.glob("examples/**/*")
    if path.suffix in {".md", ".js", ".ts", ".tsx", ".html", ".vue", ".svelte"} and "node_modules" not in path.parts
]


def test_nothing_that_a_reader_copies_fetches_by_hand_after_a_subscribe() -> None:
    """An answer that was read before an event and arrives after it would overwrite it for good: `load` is for that."""
    assert [name_of(file) for file in [*PAGES, *EXAMPLES] if FETCHES_BY_HAND.search(file.read_text())] == []


@pytest.mark.parametrize(
    "code",
    [
        'gate.subscribed("items.bought").then(load);',
        'await gate.subscribed("orders.#");\nawait fetch("/orders");',
        "await shipped.ready;\nawait reload();",
        "connect(origin, { resync: load })",
    ],
)
def test_a_fetch_by_hand_is_found(code: str) -> None:
    """Each way in which a page could write it."""
    assert FETCHES_BY_HAND.search(code)


@pytest.mark.parametrize(
    ("part", "page", "sentence"),
    [
        ("inbox", "docs/inbox.md", r"adds ([\d.]+) KB \(gzip\)"),
        ("offline", "web/README.md", r"headgate/offline.*\n.*It adds ([\d.]+) KB"),
        ("presence", "docs/presence.md", r"adds ([\d.]+) KB \(gzip\)"),
        ("presence", "docs/frameworks.md", r"`headgate/presence` \(([\d.]+) KB\)"),
        ("store", "docs/frameworks.md", r"`headgate/store` adds ([\d.]+) KB"),
        ("tabs", "docs/tabs.md", r"adds ([\d.]+) KB \(gzip\)"),
    ],
)
def test_the_weight_of_a_part_that_a_page_names_is_that_of_the_build(part: str, page: str, sentence: str) -> None:
    """The build measures each part against a limit slightly above its weight (web/build.mjs)."""
    [limit] = re.findall(rf"\b{part}: ([\d_]+)", (ROOT / "web/build.mjs").read_text())
    [named] = re.findall(sentence, (ROOT / page).read_text())

    assert float(named) * 1000 == pytest.approx(int(limit), abs=100)
