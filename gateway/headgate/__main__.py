"""The command `headgate`: the command line, or one line that says what to install for it."""

from __future__ import annotations

import sys

from .extras import MissingExtra, needing


def main() -> None:
    """Run the command line."""
    try:
        with needing("server", "the headgate command"):
            from .cli.main import main as command_line
    except MissingExtra as error:
        sys.exit(f"headgate: {error}")
    command_line()


if __name__ == "__main__":
    main()
