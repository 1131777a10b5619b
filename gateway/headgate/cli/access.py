"""`headgate token` and `headgate revoke`: let a user in, for development, and keep one out. Imports click only."""

from __future__ import annotations

import click

from .options import redis_option, seconds
from .output import one_line_errors


@click.command()
@click.option("--user", required=True, metavar="NAME", help="Whom the token is for.")
@click.option("--subscribe", multiple=True, metavar="PATTERN", help="May subscribe to this; repeatable. {sub} is the user.")
@click.option("--publish", "publish_", multiple=True, metavar="PATTERN", help="May publish to this; repeatable.")
@click.option(
    "--namespace",
    "namespaces",
    multiple=True,
    metavar="NAME",
    help="Namespace that it is for; repeatable. Default: the gateway's first.",
)
@click.option("--ttl", default="1h", show_default=True, metavar="TIME", help="How long it holds: 90, 90s, 15m, 1h or 7d.")
@click.option("--kid", metavar="ID", help="Which configured secret signs it, where there are several.")
@one_line_errors
def token(
    user: str, subscribe: tuple[str, ...], publish_: tuple[str, ...], namespaces: tuple[str, ...], ttl: str, kid: str | None
) -> None:
    """Print a token for development, signed with HEADGATE_TOKEN_SECRET (or a secret of HEADGATE_TOKEN_KEYS).

    Every user may also subscribe to users.NAME.#, whatever the token says.
    """
    from headgate.auth.tokens import Tokens
    from headgate.errors import SettingsError
    from headgate.settings import Settings

    settings = Settings.from_environment("HEADGATE_TOKEN_")
    tokens = Tokens.configured(settings)
    if tokens is None:
        raise SettingsError(["no secret to sign with: set HEADGATE_TOKEN_SECRET, for the gateway too"])
    names = list(namespaces)
    click.echo(tokens.mint(user, list(subscribe), list(publish_), seconds(ttl), key_id=kid, namespaces=names))


@click.command()
@click.option("--user", metavar="NAME", help="Refuse this user, whatever the token.")
@click.option("--token-id", metavar="ID", help="Refuse the token with this jti.")
@click.option(
    "--for", "for_", default="1h", show_default=True, metavar="TIME", help="For how long: 90, 90s, 15m, 1h or 7d; 0 lifts it."
)
@redis_option
@one_line_errors
def revoke(user: str | None, token_id: str | None, for_: str, redis_url: str | None) -> None:
    """Refuse a user or a token on every gateway, and disconnect who is connected with it, within a second."""
    import os

    from headgate.auth.audit import audit
    from headgate.publisher import Publisher
    from headgate.runtime import logging as logs

    for_s = seconds(for_)
    with Publisher(redis_url) as publisher:
        publisher.revoke(user=user, token_id=token_id, for_s=for_s)
    logs.configure("info")
    who = f"uid {os.getuid()} on the command line"
    audit.revoked(kind="user" if user is not None else "token", name=user or token_id or "", for_s=for_s, by=who)
    named = f"user {user!r}" if user is not None else f"token {token_id!r}"
    click.echo(f"revoked {named} for {for_s} s" if for_s else f"lifted the revocation of {named}")
