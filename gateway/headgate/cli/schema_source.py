"""The options for the source of schemas: a folder, or the registry of a namespace. Imports click only."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, ParamSpec

import click

from .options import namespace_option, redis_option

if TYPE_CHECKING:
    from headgate.schemas.catalogue import Catalogue

P = ParamSpec("P")
DEFAULT_FOLDER = "schemas"


def source_options(command: Callable[P, None]) -> Callable[P, None]:
    """Add --schemas, --registry, --namespace and --redis: the arguments of `read_source`."""
    for option in (
        redis_option,
        namespace_option,
        click.option("--registry", is_flag=True, help="Read the registry in Redis instead of a folder."),
        click.option(
            "--schemas", "folder", metavar="FOLDER", help=f"Folder of schemas. Default: HEADGATE_SCHEMAS, else {DEFAULT_FOLDER}."
        ),
    ):
        command = option(command)
    return command


def folder_of(given: str | None) -> str:
    """Return the folder of schemas: the given one, else that of HEADGATE_SCHEMAS, else `schemas`."""
    from headgate.settings.settings import REGISTRY, Settings

    set_ = None if given else Settings.from_environment("HEADGATE_SCHEMAS").schemas
    return given or (set_ if set_ and set_ != REGISTRY else DEFAULT_FOLDER)


def read_source(folder: str | None, registry: bool, namespace: str, redis_url: str | None) -> Catalogue:
    """Return the schemas selected by the options.

    Raises:
        InvalidSchema: there are none, or they cannot be used.
        BusUnavailable, BusRefused: the registry cannot be read.
    """
    from headgate.errors import InvalidSchema
    from headgate.schemas.catalogue import read_catalogue
    from headgate.schemas.documents import read_folder

    if not registry:
        where = folder_of(folder)
        found = read_catalogue(read_folder(where))
        if not found.topics:
            raise InvalidSchema(f"{where}/", "has no schema of a topic; expected files such as orders.*.shipped.json")
        return found
    from headgate.events.topic import check_namespace
    from headgate.redis.client import open_client
    from headgate.schemas.registry import read_registry
    from headgate.services.publisher import find_redis_url

    namespace = check_namespace(namespace)
    held = read_registry(open_client(redis_url or find_redis_url()), namespace)
    if held is None:
        raise InvalidSchema(f"registry of {namespace}", "nobody has pushed schemas there: `headgate schemas push`")
    return read_catalogue(held)
