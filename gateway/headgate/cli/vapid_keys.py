"""`headgate vapid-keys`: make the keys of Web Push. Imports click only."""

from __future__ import annotations

import click

from .output import echo, fail, one_line_errors


@click.command("vapid-keys")
@click.option(
    "--file", "path", metavar="FILE", help="Write them into this new file, which only its owner can read. Default: print them."
)
@one_line_errors
def vapid_keys(path: str | None) -> None:
    """Make the two keys of Web Push, as lines of an environment file (docs/howto/web-push.md).

    Pages subscribe with the public key; the consumer signs with the private one. Make them once: with other keys every browser
    has to subscribe again. So a file that is there already is not changed.
    """
    import os

    from headgate.optional_dependencies import needing

    with needing("push", "headgate vapid-keys"):
        from headgate.consumers.webpush.encryption import new_keys

    private, public = new_keys()
    lines = f"VAPID_PUBLIC_KEY={public}\nVAPID_PRIVATE_KEY={private}"
    if path is None:
        echo(lines.partition("\n")[0])
        echo(lines.partition("\n")[2])
        return
    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(f"{lines}\n")
    except FileExistsError:
        fail(f"{path}: the file is there already, and is not changed; expected a new file")
    except OSError as error:
        fail(f"{path}: {(error.strerror or 'cannot be written').lower()}")
    echo(f"VAPID_PUBLIC_KEY={public}")
    echo(f"headgate: the keys are in {path}. Keep the private one secret.", err=True)
