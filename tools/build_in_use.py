"""Which build of the hot modules Python imports here: `python -m tools.build_in_use compiled` ends with 1 if it is another."""

from __future__ import annotations

import sys

import headgate
from headgate.compiled import build_in_use

if __name__ == "__main__":
    build, wanted = build_in_use().value, sys.argv[1]
    print(f"headgate: {build}, in {headgate.__path__[0]}")
    sys.exit(build != wanted)
