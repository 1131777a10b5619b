"""`headgate vapid-keys`: create the keys of Web Push. Imports only click."""

from __future__ import annotations

import click

from .options import json_option, with_options
from .output import echo, fail, print_json, wants_json


@click.command("vapid-keys")
@click.option(
    "--file", "path", metavar="FILE", help="Write them into this new file, which only its owner can read. Default: print them."
)
@with_options(json_option)
def vapid_keys(path: str | None) -> None:
    """Create the two keys of Web Push, as lines of an environment file (docs/howto/web-push.md).

    Pages subscribe with the public key; the consumer signs with the private one. Create them once, because
    with other keys every browser has to subscribe again. An existing file is never changed.
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
        fail(f"{path}: the file is there already, and is not changed; expected a new file")
    except OSError as error:
        fail(f"{path}: {(error.strerror or 'cannot be written').lower()}")
    if wants_json():
        print_json({"public_key": public, "file": path})
    else:
        echo(lines[0])
    echo(f"headgate: the keys are in {path}. Keep the private one secret.", err=True)
