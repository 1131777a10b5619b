"""The site's own steps between Markdown and HTML: pages from outside docs/, links as the site has them, diagrams in the page.

A page of the project is written to be read in a checkout, where `../README.md` is a link. Here each of these files has an address
in the site, and a link to a file that is no page is shown as its name, or leads to `extra.source_url` where that is set.
"""

from __future__ import annotations

import itertools
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent.parent
# Pages outside docs/: the file in the project, and its place in the site.
PAGES = {
    "CHANGELOG.md": "project/changelog.md",
    "CODE_OF_CONDUCT.md": "project/conduct.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "SECURITY.md": "project/security-policy.md",
    "bench/README.md": "project/bench.md",
    "web/README.md": "reference/javascript.md",
    "examples/README.md": "examples/index.md",
    **{str(path.relative_to(ROOT)): f"examples/{path.parent.name}.md" for path in sorted(ROOT.glob("examples/*/README.md"))},
}
# A folder, or another file, whose page says what is in it.
STANDS_FOR = {
    "README.md": "index.md",
    "docs/decisions": "decisions/README.md",
    "docs": "index.md",
}
# Pages and pictures by pattern, and their folder in the site.
MORE = (("bench/results/*.md", "project/results"), ("examples/*/*.png", "examples"))
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
# Pages whose tables need the room of the table of contents.
WIDE = {"comparison.md", "benchmarks.md", "settings.md"}
# For the search.
INSIDE = ("decisions/", "project/", "architecture.md", "benchmarks.md", "glossary.md", "faults.md", "scaling.md")
REFERENCE = (
    "reference/",
    "settings.md",
    "http-api.md",
    "stream.md",
    "protocol.md",
    "logs.md",
    "socketio.md",
    "guarantees.md",
    "security.md",
)
FENCE = re.compile(r"^(```.*?^```|~~~.*?^~~~)", re.MULTILINE | re.DOTALL)
NAME = re.compile(r'(<span class="md-ellipsis">\s*Headgate)(\s*</span>)')
DIAGRAM = re.compile(r'<img alt="([^"]*)" src="[^"]*diagrams/([\w-]+)\.svg"\s*/?>')
MERMAID = re.compile(r"^```mermaid\n(.*?)^```$", re.MULTILINE | re.DOTALL)
TITLE = re.compile(r"^\s*accTitle: (.+)$", re.MULTILINE)


def _site_places() -> dict[str, str]:
    places = dict(PAGES)
    for pattern, folder in MORE:
        places |= {str(path.relative_to(ROOT)): f"{folder}/{path.name}" for path in sorted(ROOT.glob(pattern))}
    return places


PLACES = _site_places()
VERSION = re.findall(r'^__version__ = "([^"]+)"', (ROOT / "gateway/headgate/installation.py").read_text("utf-8"), re.MULTILINE)[0]
# Pages that a command writes from the code: nobody edits them.
GENERATED = ("settings.md", "reference/")
FILE_OF = {place: file for file, place in PLACES.items()}


def on_config(config: Any) -> Any:
    """Take the address of the project's files from the environment, as the packages do; without it, pages lead to no file."""
    if project := config["extra"]["project_url"].rstrip("/"):
        config["repo_url"] = project
        config["extra"]["source_url"] = f"{project}/blob/main"
        config["theme"]["features"].append("content.action.edit")
    return config


def on_page_context(context: Any, page: Any, config: Any, nav: Any) -> Any:
    """Lead "Edit this page" to the file that a page is made from."""
    here = page.file.src_uri
    page.edit_url = (
        f"{config['repo_url']}/edit/main/{FILE_OF.get(here, f'docs/{here}')}"
        if config["repo_url"] and (here in FILE_OF or not here.startswith(GENERATED))
        else None
    )
    return context


def on_files(files: Files, config: Any) -> Files:
    """Bring in the pages and pictures that are outside docs/, and what the theme needs."""
    for file, place in PLACES.items():
        files.append(File.generated(config, place, abs_src_path=str(ROOT / file)))
    for name in ("site.css", "site.js"):
        files.append(File.generated(config, name, abs_src_path=str(ROOT / "site" / name)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Lead the links of a page to where the site has their files."""
    here = page.file.src_uri
    if here == "index.md":
        page.meta["hide"] = ["navigation", "toc"]
    elif here in WIDE:
        page.meta["hide"] = ["toc"]
    source = FILE_OF.get(here, f"docs/{here}")
    page.meta["search"] = {"boost": _boost(here)}

    def led(found: re.Match[str]) -> str:
        picture, text, target = found.groups()
        if "://" in target or target.startswith(("#", "mailto:", "/")):
            return found[0]
        path, hash_, anchor = target.partition("#")
        file = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
        place = PLACES.get(file) or STANDS_FOR.get(file) or (PLACES.get(f"{file}/README.md"))
        if place is None and file.startswith("docs/") and files.get_file_from_path(file.removeprefix("docs/")):
            place = file.removeprefix("docs/")
        if place is not None:
            # The first page of the site is not the README: its headings are others.
            kept = f"{hash_}{anchor}" if file != "README.md" else ""
            return f"{picture}[{text}]({posixpath.relpath(place, posixpath.dirname(here) or '.')}{kept})"
        if not (ROOT / file).exists():
            return found[0]  # mkdocs says that it leads nowhere
        url = config["extra"].get("source_url")
        if url:
            return f"[{text}]({url.rstrip('/')}/{file})"
        return text if file.split("/")[-1].lower() in text.lower() or "`" in text else f"{text} (`{file}`)"

    numbers = itertools.count(1)
    root = posixpath.relpath("diagrams", posixpath.dirname(here) or ".")

    def pictured(found: re.Match[str]) -> str:
        """What GitHub draws by itself is drawn for the site by tools/diagrams.py."""
        name, title = f"{posixpath.basename(here).removesuffix('.md')}-{next(numbers)}", TITLE.search(found[1])
        if title is None:
            raise PluginError(f"{here}: a Mermaid diagram without accTitle: it needs one, and `make diagrams`")
        return f"![{title[1]}]({root}/{name}.svg)"

    markdown = MERMAID.sub(pictured, markdown)
    parts = FENCE.split(markdown)
    for number in range(0, len(parts), 2):
        parts[number] = LINK.sub(led, parts[number])
    return "".join(parts)


def _boost(here: str) -> float:
    """Return how a page counts in a search: how to do a thing comes before what it is called, and that before why it is so."""
    if here.startswith(INSIDE):
        return 0.1
    return 1.0 if here.startswith(REFERENCE) else 3.0


def on_post_page(output: str, **_: Any) -> str:
    """Give the theme's search a name for screen readers, and put the version into the header."""
    search = 'data-md-component="search" role="dialog"'
    output = output.replace(search, f'{search} aria-label="Search"')
    return NAME.sub(rf'\1 <span class="version">{VERSION}</span>\2', output, count=1)


def on_post_template(output_content: str, **_: Any) -> str:
    """The same for the page of what is not there."""
    return on_post_page(output_content)


def on_page_content(html: str, page: Any, config: Any, files: Files) -> str:
    """Put the diagrams into the page, so that they have its colours."""

    def drawn(found: re.Match[str]) -> str:
        svg = (ROOT / "docs" / "diagrams" / f"{found[2]}.svg").read_text("utf-8")
        svg = re.sub(r"<\?xml.*?\?>\s*", "", svg)
        svg = svg.replace("<svg ", f'<svg class="diagram" role="img" aria-label="{found[1]}" ', 1)
        if "data-source" not in svg:
            return svg
        # As large as its letters need; on a small screen it is scrolled, by keyboard too.
        return f'<span class="wide-diagram" tabindex="0" role="group" aria-label="{found[1]}">{svg}</span>'

    html = DIAGRAM.sub(drawn, html).replace("<th></th>", "<td></td>")  # a corner of a table heads nothing
    if page.file.src_uri != "index.md":
        return html
    # The style sheet makes figures of the first page's first table, and buttons of the links below it.
    html = html.replace("<table>", '<table class="figures">', 1).replace(
        '<p><a href="tutorial', '<p class="ways"><a href="tutorial', 1
    )
    return f'<div class="first-page">{html}</div>'
