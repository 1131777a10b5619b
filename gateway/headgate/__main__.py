"""The command `headgate`: the command line, or one line with what to install for it."""

from __future__ import annotations

import gc
import os
import sys

from headgate.installation import MissingExtra, needing


def main() -> None:
    """Run the command line."""
    _open_standard_streams()
    if os.getpid() == 1:  # in a container, where a signal without a handler does nothing
        import signal

        signal.signal(signal.SIGTERM, lambda *_: os._exit(128 + signal.SIGTERM))
    try:
        with needing("server", "the headgate command"):
            from .cli.main import main as command_line
    except MissingExtra as error:
        sys.exit(f"headgate: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
    try:
        command_line()
    finally:
        # Before it exits, Python scans every object for cycles, several times. For a gateway that took a fifth of the processor
        # time of a start and a stop. The collector skips frozen objects.
        gc.freeze()


def _open_standard_streams() -> None:
    """Open standard streams that the parent closed. Otherwise a socket would get their numbers, and our log lines."""
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # the lowest number that is free
            setattr(sys, name, os.fdopen(descriptor, "w" if descriptor else "r", closefd=False))


if __name__ == "__main__":
    main()
