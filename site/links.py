"""Every link of the built site leads somewhere, and no page loads anything from elsewhere: `python site/links.py build/site`.

Only the standard library, so that it runs wherever the site is built. Exits 1 and names each fault.
"""

from __future__ import annotations

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

# What a browser loads by itself when it shows the page: (element, attribute).
LOADED = {("img", "src"), ("script", "src"), ("link", "href"), ("source", "src"), ("iframe", "src"), ("video", "src")}


class Page(HTMLParser):
    """The ids and links of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = {"", "__top"}
        self.links: list[tuple[str, str, str]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note them."""
        for name, value in attrs:
            if name in ("id", "name") and value:
                self.ids.add(value)
            if name in ("href", "src") and value is not None:
                self.links.append((tag, name, value))


def faults(folder: Path) -> list[str]:
    """Return a line for each link that leads nowhere, and for each file that is loaded from elsewhere."""
    pages = {path: Page(path.read_text("utf-8")) for path in sorted(folder.rglob("*.html"))}
    found = []
    for path, page in pages.items():
        where = path.relative_to(folder)
        for tag, name, value in page.links:
            parts = urlsplit(value)
            if parts.scheme or parts.netloc:
                if (tag, name) in LOADED and parts.scheme != "data" and not _is_only_named(tag, value):
                    found.append(f"{where}: <{tag}> loads {value}")
                continue
            if path.name == "404.html":
                continue  # its links are absolute, from the site's root
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if target.is_dir():
                target /= "index.html"
            if not target.exists():
                found.append(f"{where}: {value} leads nowhere")
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].ids:
                found.append(f"{where}: {value}: the page has no such heading")
    return found


def _is_only_named(tag: str, value: str) -> bool:
    """Return whether a link element only names an address (rel=canonical), which no browser loads."""
    return tag == "link" and not value.endswith((".css", ".js", ".woff2"))


if __name__ == "__main__":
    site = Path(sys.argv[1]).resolve()
    wrong = faults(site)
    print(
        "\n".join(wrong)
        or f"every link of {len(list(site.rglob('*.html')))} pages leads somewhere; nothing is loaded from elsewhere"
    )
    sys.exit(bool(wrong))
