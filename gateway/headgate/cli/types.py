"""`headgate types`: TypeScript generated from the schemas of topics. Imports click only."""

from __future__ import annotations

from pathlib import Path

import click

from .options import json_option
from .output import fail, one_line_errors, print_document, print_done, print_json
from .schema_source import read_source, source_options

_OUT = click.option("-o", "--out", metavar="FILE", help="File to write. Default: standard output.")
_CHECK = click.option("--check", is_flag=True, help="Write nothing; exit with 1 if FILE is not up to date.")


@click.command()
@source_options
@_OUT
@_CHECK
@json_option
@one_line_errors
def types(
    folder: str | None,
    registry: bool,
    namespace: str,
    redis_url: str | None,
    out: str | None,
    check: bool,
    as_json: bool,
) -> None:
    """Write the TypeScript types of topics from their JSON Schemas: the map for connect<Topics>()."""
    from headgate.schemas.typescript import typescript

    catalogue = read_source(folder, registry, namespace, redis_url)
    text = typescript(catalogue)
    _write(text, out, check, {"source": text} if as_json else None)


def _write(text: str, out: str | None, check: bool, result: object = None) -> None:
    """Write text to a file or to standard output, or check that the file has it. `--json` prints `result`."""
    if check and out is None:
        raise click.UsageError("--check goes with --out FILE")
    if out is None:
        if result is None:
            print_document(text)
        else:
            print_json(result)
        return
    path = Path(out)
    try:
        if not check:
            path.write_text(text, encoding="utf-8", newline="\n")
        elif not path.exists() or path.read_text(encoding="utf-8", errors="replace") != text:
            fail(f"{out} is not up to date with the schemas", "Run the same command without --check, and commit the file.")
    except OSError as error:
        fail(f"{out}: {error.strerror}")
    if result is not None:
        print_done(f"{out} is written", {"file": out, "written": not check}, as_json=True)
