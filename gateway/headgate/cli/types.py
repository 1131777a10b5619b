"""`headgate types` and `headgate asyncapi`: files generated from the schemas of topics. Imports click only."""

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


@click.command()
@source_options
@click.option("--url", default="http://localhost:8000", show_default=True, help="Where the gateway is.")
@click.option("--title", default="Events", show_default=True, help="Title of the document.")
@click.option("--doc-version", default="1.0.0", show_default=True, help="Version of the document.")
@click.option("--yaml", "as_yaml", is_flag=True, help="Write YAML instead of JSON.")
@_OUT
@_CHECK
@json_option
@one_line_errors
def asyncapi(
    folder: str | None,
    registry: bool,
    namespace: str,
    redis_url: str | None,
    url: str,
    title: str,
    doc_version: str,
    as_yaml: bool,
    out: str | None,
    check: bool,
    as_json: bool,
) -> None:
    """Write an AsyncAPI 3.0 document of the Socket.IO side from the JSON Schemas of topics."""
    import json

    from headgate.events.topic import check_namespace
    from headgate.schemas.asyncapi import asyncapi as document_of

    if as_json and as_yaml:
        raise click.UsageError("--json goes without --yaml")
    namespace = check_namespace(namespace)
    catalogue = read_source(folder, registry, namespace, redis_url)
    document = document_of(catalogue, url=url, namespace=namespace, title=title, version=doc_version)
    if as_yaml:
        import yaml

        text = yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=120)
    else:
        text = json.dumps(document, indent=2, ensure_ascii=False) + "\n"
    _write(text, out, check, document if as_json else None)


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
