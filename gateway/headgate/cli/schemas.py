"""`headgate schemas` keeps the registry of schemas in Redis. `headgate types` writes their TypeScript. Imports only click."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from .options import json_option, namespace_option, open_redis, redis_option, with_options
from .output import Commands, Trusted, counted, echo, fail, print_document, print_done, print_json, wants_json

if TYPE_CHECKING:
    from headgate.redis.client import Client
    from headgate.services.schemas.catalogue import Catalogue
    from headgate.services.schemas.documents import Documents


@click.group(cls=Commands)
def schemas() -> None:
    """Keep the JSON Schemas of topics in Redis, for publishers on all machines (HEADGATE_SCHEMAS=redis)."""


@schemas.command()
@click.argument("folder", required=False)
@with_options(namespace_option, redis_option, json_option)
def push(folder: str | None, namespace: str, redis_url: str | None) -> None:
    """Replace the schemas in the registry with those of FOLDER. Default: HEADGATE_SCHEMAS, else schemas."""
    from headgate.services.schemas.registry import change_registry

    catalogue = _from_folder(folder)
    documents, topics = catalogue.documents, catalogue.topics
    client = open_redis(redis_url)
    before, after = change_registry(client, namespace, lambda _: documents, replaces_invalid=True)
    added, removed = after.texts.keys() - before.texts.keys(), before.texts.keys() - after.texts.keys()
    changed = {name for name in after.texts.keys() & before.texts.keys() if after.texts[name] != before.texts[name]}
    names_of = {"added": sorted(added), "removed": sorted(removed), "changed": sorted(changed)}
    signed = [f"{sign} {name}" for sign, names in (("+", added), ("-", removed), ("~", changed)) for name in sorted(names)]
    counts = f"{counted(len(after.texts), 'file')} for {counted(len(topics), 'pattern')}"
    print_done(
        "\n".join([*signed, f"version {after.version}: {counts}, in namespace {namespace}"]),
        {"version": after.version, "namespace": namespace, "files": len(after.texts), "patterns": len(topics), **names_of},
    )


@schemas.command("list")
@with_options(namespace_option, redis_option, json_option)
def list_(namespace: str, redis_url: str | None) -> None:
    """Print the version of the registry and each schema: its pattern, file and size."""
    from headgate.services.schemas.catalogue import read_catalogue

    client = open_redis(redis_url)
    held = _held(client, namespace)
    catalogue = read_catalogue(held)
    if not wants_json():
        echo(f"version {held.version}")
    for name, text in held.texts.items():
        patterns = [pattern for pattern, file in catalogue.topics.items() if file == name]
        if wants_json():
            print_json({"version": held.version, "file": name, "patterns": patterns, "bytes": len(text)})
            continue
        tab = Trusted(b"\t")
        echo(", ".join(patterns) or "(definitions)", tab, name, tab, f"{len(text)} bytes")


@schemas.command()
@click.argument("name")
@with_options(namespace_option, redis_option, json_option)
def show(name: str, namespace: str, redis_url: str | None) -> None:
    """Print one schema of the registry, by the NAME of its file or by its pattern."""
    client = open_redis(redis_url)
    held = _held(client, namespace)
    file = _file_of(held, name)
    if wants_json():
        import json

        print_json({"version": held.version, "file": file, "schema": json.loads(held.texts[file])})
        return
    for line in held.texts[file].split(b"\n"):
        echo(line)


@schemas.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@with_options(namespace_option, redis_option, json_option)
def remove(names: tuple[str, ...], namespace: str, redis_url: str | None) -> None:
    """Remove schemas from the registry, by the NAMEs of their files or by their patterns."""
    from headgate.services.schemas.catalogue import read_catalogue
    from headgate.services.schemas.documents import Documents
    from headgate.services.schemas.registry import change_registry

    def without(held: Documents) -> Documents:
        files = {_file_of(held, name) for name in names}
        left = Documents({name: text for name, text in held.texts.items() if name not in files})
        read_catalogue(left)  # no remaining schema refers to a removed one
        return left

    client = open_redis(redis_url)
    _, after = change_registry(client, namespace, without)
    print_done(
        f"version {after.version}: {counted(len(after.texts), 'file')}, in namespace {namespace}",
        {"version": after.version, "namespace": namespace, "files": len(after.texts)},
    )


@click.command()
@click.option("--schemas", "folder", metavar="FOLDER", help="Folder of schemas. Default: HEADGATE_SCHEMAS, else schemas.")
@click.option("--registry", is_flag=True, help="Read the registry in Redis instead of a folder.")
@namespace_option
@redis_option
@click.option("-o", "--out", metavar="FILE", help="File to write. Default: standard output.")
@click.option("--check", is_flag=True, help="Write nothing; exit with 1 if FILE is not up to date.")
@with_options(json_option)
def types(folder: str | None, registry: bool, namespace: str, redis_url: str | None, out: str | None, check: bool) -> None:
    """Write the TypeScript types of topics from their JSON Schemas: the map for connect<Topics>()."""
    from headgate.services.schemas.catalogue import read_catalogue
    from headgate.services.schemas.typescript import typescript

    if check and out is None:
        raise click.UsageError("--check goes with --out FILE")
    text = typescript(read_catalogue(_held(open_redis(redis_url), namespace)) if registry else _from_folder(folder))
    if out is None:
        if wants_json():
            print_json({"source": text})
        else:
            print_document(text)
        return
    path = Path(out)
    try:
        if not check:
            path.write_text(text, encoding="utf-8", newline="\n")
        elif not path.exists() or path.read_text(encoding="utf-8", errors="replace") != text:
            fail(f"{out} is not up to date with the schemas", "Run the same command without --check, and commit the file.")
    except OSError as error:
        fail(f"{out}: {error.strerror}")
    if wants_json():
        print_done(f"{out} is written", {"file": out, "written": not check})


def _from_folder(given: str | None) -> Catalogue:
    """Read the schemas of a folder, which is the given one, else HEADGATE_SCHEMAS, else `schemas`."""
    from headgate.errors import InvalidSchema
    from headgate.services.schemas.catalogue import read_catalogue
    from headgate.services.schemas.documents import NO_TOPIC, read_folder
    from headgate.settings.settings import REGISTRY, Settings

    configured = None if given else Settings.from_environment("HEADGATE_SCHEMAS").schemas
    folder = given or (configured if configured and configured != REGISTRY else "schemas")
    catalogue = read_catalogue(read_folder(folder))
    if not catalogue.topics:
        raise InvalidSchema(f"{folder}/", NO_TOPIC)
    return catalogue


def _held(client: Client, namespace: str) -> Documents:
    from headgate.services.schemas.registry import read_registry

    held = read_registry(client, namespace)
    if held is None:
        fail(f"no schemas are in the registry of namespace {namespace}: `headgate schemas push` puts them there")
    return held


def _file_of(held: Documents, name: str) -> str:
    from headgate.errors import InvalidSchema
    from headgate.services.schemas.catalogue import read_catalogue

    file = name if name in held.texts else read_catalogue(held).topics.get(name)
    if file is None:
        raise InvalidSchema(name, f"is not in the registry; it has {', '.join(held.texts) or 'none'}")
    return file
