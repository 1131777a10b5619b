"""The table of docs/logs.md, written from the source (log_events.py): no event is written that the page does not have.

`python -m tools.logs_page` writes it; with `--check` it writes nothing and exits 1 if the page differs from the code.
"""

from __future__ import annotations

import sys
from pathlib import Path

from .generated import row, write_or_check
from .log_events import log_events

PAGE = Path(__file__).resolve().parent.parent / "docs" / "logs.md"
BEGIN = "<!-- Generated from the code by `make settings`; `make lint` checks that it is up to date. -->\n"
HEAD = "\n| event | logger | level | fields |\n|---|---|---|---|\n"


def page() -> str:
    """Return the whole page: the handwritten part, and the table after BEGIN."""
    by_hand, begin, _ = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    rows = (
        (f"`{event.name}`", ", ".join(sorted(event.loggers)), ", ".join(sorted(event.levels)), ", ".join(event.fields) or "–")
        for event in log_events()
    )
    return by_hand + begin + HEAD + "".join(map(row, rows))


def main(arguments: list[str]) -> int:
    """Write the page, or with `--check` compare it. Return the exit status."""
    return write_or_check(arguments, PAGE, page(), "the source")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
