"""One load generator for a server on another machine, driven through standard input and output: `python -m bench.agent`.

In: one line of JSON with the arguments of `Generator` and the command to publish with, as `template`; then commands of the load
generator, one to a line. Out: one line of JSON for each of them. It listens on no port and obeys only the program that started it
(bench/remote.py; through ssh, from another machine). The end of input ends it, and its generator with it.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from . import generator, machine

# A run ends at its set time; only a hanging generator takes longer.
LONGEST_S = 3600.0


def main() -> None:
    """Serve one driver."""
    generator.build()
    setup = json.loads(sys.stdin.readline())
    template = setup.pop("template").encode()
    with tempfile.TemporaryDirectory(prefix="headgate-bench-") as name, generator.Generator(Path(name), **setup) as load:
        load.publishes(template)
        print(json.dumps({"outcome": "ready", "machine": machine.describe()}), flush=True)
        for line in sys.stdin:
            load.tell(line.rstrip("\n"))
            print(json.dumps(load.answer(LONGEST_S)), flush=True)


if __name__ == "__main__":
    main()
