"""`headgate keys` manages keys of the HTTP API, and `headgate vapid-keys` creates those of Web Push. Imports only click."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from .options import json_option, namespaces_option, open_redis, operator_name, redis_option, seconds, with_options
from .output import DONE_UNTOLD, Commands, OutputRefused, echo, fail, print_done, print_json, print_one, utc_time, wants_json

if TYPE_CHECKING:
    from headgate.redis.api_keys import StoredKey


@click.group(cls=Commands)
def keys() -> None:
    """Create, list and revoke keys of the HTTP API (docs/http-api.md)."""


@keys.command("create")
@click.argument("name")
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    required=True,
    metavar="SCOPE",
    help="What it may do, such as publish:orders.#, read:orders.#, clients or admin; repeatable. docs/http-api.md lists them.",
)
@namespaces_option("Namespace that it is for, or * for all; repeatable. Default: the gateway's first.")
@click.option("--ttl", metavar="TIME", help="When it ends: 90, 90s, 15m, 1h or 7d from now. Default: when it is revoked.")
@with_options(json_option, redis_option)
def create(name: str, scopes: tuple[str, ...], namespaces: tuple[str, ...], ttl: str | None, redis_url: str | None) -> None:
    """Create a key with this NAME and print it. It is shown only once."""
    import sys

    from msgspec.structs import asdict

    from headgate.auth.api_keys import MAX_TTL_S, Key, new_key
    from headgate.auth.audit import audit
    from headgate.redis import api_keys
    from headgate.runtime import logging as logs

    who = operator_name()
    ttl_s = None if ttl is None else seconds(ttl, "--ttl", 1, MAX_TTL_S)
    made = new_key(name, scopes, namespaces=namespaces, ttl_s=ttl_s, by=who)
    api_keys.add(open_redis(redis_url), made.stored)
    logs.configure("info")
    audit.acted("key made", by=who, key=made.stored.id, name=name, scopes=" ".join(made.stored.scopes))
    try:
        if wants_json():
            print_json({"key": made.text, **asdict(Key.of(made.stored))})
            return
        echo(made.text)
    except OutputRefused as error:
        # Not the key itself, because standard error is often a log.
        lost = f"headgate: the key is made, but standard output does not take it ({error})"
        echo(f"{lost}: headgate keys revoke {made.stored.id}", err=True)
        sys.exit(DONE_UNTOLD)
    echo(f"headgate: key {made.stored.id} ({_line(made.stored)}). It is not kept, so keep it yourself.", err=True)


@keys.command("list")
@with_options(json_option, redis_option)
def list_keys(redis_url: str | None) -> None:
    """List the keys, oldest first: id, name, scopes, namespaces, expiry. The keys themselves are never shown."""
    from headgate.auth.api_keys import Key
    from headgate.redis import api_keys

    keys = api_keys.find_all(open_redis(redis_url))
    for each in keys:
        print_one(f"{each.id} {_line(each)}", Key.of(each))
    if not keys and not wants_json():
        echo("there are no keys", err=True)


@keys.command("revoke")
@click.argument("key_id", metavar="ID")
@with_options(redis_option, json_option)
def revoke_key(key_id: str, redis_url: str | None) -> None:
    """Revoke the key with this ID on every gateway, within two seconds."""
    from headgate.auth.api_keys import check_key_id
    from headgate.auth.api_keys import revoke_key as revoke
    from headgate.auth.audit import audit
    from headgate.runtime import logging as logs

    key_id = check_key_id(key_id)
    was = revoke(open_redis(redis_url), key_id)
    if was is None:
        fail(f"there is no key {key_id} (any more)")
    logs.configure("info")
    audit.acted("key revoked", by=operator_name(), key=key_id, name=was.name)
    print_done(f"revoked key {key_id} ({was.name})", {"revoked": key_id, "name": was.name})


def _line(key: StoredKey) -> str:
    import time

    parts = [key.name, " ".join(key.scopes)]
    if key.namespaces is not None:
        parts.append(f"namespaces {', '.join(key.namespaces)}")
    if key.expires_s is not None:
        parts.append(f"{'expired' if key.expires_s <= time.time() else 'expires'} {utc_time(key.expires_s)}")
    return "; ".join(parts)


@click.command("vapid-keys")
@click.option(
    "--file", "path", metavar="FILE", help="Write them into this new file, which only its owner can read. Default: print them."
)
@with_options(json_option)
def vapid_keys(path: str | None) -> None:
    """Create the two keys of Web Push, as lines of an environment file (docs/howto/web-push.md).

    Pages subscribe with the public key, and the consumer signs with the private one. Create them once, because with other keys
    every browser has to subscribe again. An existing file is never changed.
    """
    import os

    from headgate.installation import needing

    with needing("push", "headgate vapid-keys"):
        from headgate.consumers.webpush.encryption import new_keys

    private, public = new_keys()
    lines = (f"VAPID_PUBLIC_KEY={public}", f"VAPID_PRIVATE_KEY={private}")
    if path is None:
        if wants_json():
            print_json({"public_key": public, "private_key": private})
        else:
            for line in lines:
                echo(line)
        return
    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.writelines(f"{line}\n" for line in lines)
    except FileExistsError:
        fail(f"{path}: the file exists already, and is not changed; expected a new file")
    except OSError as error:
        fail(f"{path}: {(error.strerror or 'cannot be written').lower()}")
    if wants_json():
        print_json({"public_key": public, "file": path})
    else:
        echo(lines[0])
    echo(f"headgate: the keys are in {path}. Keep the private one secret.", err=True)
