"""docs/settings.md, written from `headgate.settings.describe()`: no setting is described twice.

`python tools/settings_page.py` writes the page; with `--check` it writes nothing and exits 1 if the page is not what the
code says.
"""

from __future__ import annotations

import sys
from pathlib import Path

from headgate.settings import describe

PAGE = Path(__file__).resolve().parent.parent / "docs" / "settings.md"

HEAD = """\
# Settings

<!-- Generated from gateway/headgate/settings.py by `make settings`; `make lint` checks that it is up to date. -->

Every setting is a key of the Flask application's `app.config`, an environment variable, or an option of `headgate serve`;
the later of these wins. They are read once, at start, and every wrong one is reported together with the others. An
empty value counts as not set. A list is comma-separated.

| name | default | expected | what it does |
|---|---|---|---|
"""

# Read by the tools around the gateway, not by the gateway: (name, read by, what it does).
OTHERS = (
    (
        "HEADGATE_REDIS_SERVER",
        "the private Redis",
        "Path of the `redis-server` or `valkey-server` to start when `HEADGATE_REDIS_URL` is not set.",
    ),
    ("HEADGATE_CHROMIUM", "`make test`", "Path of the Chromium or Chrome that the end-to-end tests drive."),
    ("PYTHON", "`make`", "Interpreter to build `.venv` with; the first one that is 3.11 or newer when not set."),
    ("ARGS", "`make run`, `make unit`, `make e2e`", "More arguments for `headgate serve` or pytest: `make unit ARGS=-v`."),
)

OTHERS_HEAD = """
Read by the tools around the gateway, not by the gateway:

| name | read by | what it does |
|---|---|---|
"""


def page() -> str:
    """Return the whole page."""
    settings = (
        (f"`{name}`", f"`{default}`" if default else "not set", expected, doc) for name, default, expected, doc in describe()
    )
    others = ((f"`{name}`", reader, doc) for name, reader, doc in OTHERS)
    return HEAD + "".join(map(_row, settings)) + OTHERS_HEAD + "".join(map(_row, others))


def _row(cells: tuple[str, ...]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


def main(arguments: list[str]) -> int:
    """Write the page, or with `--check` compare it. Return the exit status."""
    if arguments not in ([], ["--check"]):
        print("usage: python tools/settings_page.py [--check]", file=sys.stderr)
        return 2
    wanted = page()
    if not arguments:
        PAGE.write_text(wanted, encoding="utf-8")
        return 0
    if PAGE.exists() and PAGE.read_text(encoding="utf-8") == wanted:
        print("docs/settings.md is up to date.")
        return 0
    print("docs/settings.md is not what gateway/headgate/settings.py says: run `make settings`.", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
