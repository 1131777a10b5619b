"""`headgate bench`: runs the bench from Headgate's sources, or says where to find it if there is only the wheel.

The bench is not in the wheel, because it compiles a load generator in C and installs the servers that it compares. An application
needs neither. Imports click only.
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import click

from .output import fail

_ABSENT = "the bench is not part of the installed package: it is in the folder bench/ of Headgate's sources"
_ADVICE = "Get the sources, run `make build` there, and then `make bench` or `.venv/bin/headgate bench`."


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def bench(arguments: tuple[str, ...]) -> None:
    """Measure Headgate and its peers, as bench/README.md describes. ARGUMENTS go to the bench: try --list or --quick."""
    sources = find_sources(Path(__file__), Path.cwd())
    if sources is None:
        fail(_ABSENT, _ADVICE)
    sys.path.insert(0, str(sources))
    sys.argv = ["headgate bench", *arguments]
    runpy.run_module("bench", run_name="__main__", alter_sys=True)


def find_sources(module: Path, folder: Path) -> Path | None:
    """Return the root of Headgate's sources: those that contain `module`, else `folder`, else None."""
    for root in (*module.resolve().parents, folder.resolve()):
        if (root / "bench" / "load" / "load.c").is_file() and (root / "gateway" / "headgate").is_dir():
            return root
    return None
