"""`headgate token`, `headgate revoke` and `headgate regrant`: create a development token, block a user, and change a connected
user's grants. Imports click only.
"""

from __future__ import annotations

import click

from .options import json_option, operator_name, redis_option, seconds, with_options
from .output import counted, exit_for, print_done, print_one


@click.command()
@click.option("--user", required=True, metavar="NAME", help="Whom the token is for.")
@click.option("--subscribe", multiple=True, metavar="PATTERN", help="May subscribe to this; repeatable. {sub}: the user's word.")
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
@with_options(json_option)
def token(
    user: str, subscribe: tuple[str, ...], publish_: tuple[str, ...], namespaces: tuple[str, ...], ttl: str, kid: str | None
) -> None:
    """Print a token for development, signed with HEADGATE_TOKEN_SECRET (or a secret of HEADGATE_TOKEN_KEYS).

    Every user may also subscribe to its own topics (users.me.# in a page), whatever the token says.
    """
    from headgate.auth.tokens import Tokens
    from headgate.errors import SettingsError
    from headgate.settings.settings import Settings

    settings = Settings.from_environment("HEADGATE_TOKEN_")
    tokens = Tokens.configured(settings)
    if tokens is None:
        raise SettingsError(["no secret to sign with: set HEADGATE_TOKEN_SECRET, for the gateway too"])
    names, ttl_s = list(namespaces), seconds(ttl)
    minted = tokens.mint(user, list(subscribe), list(publish_), ttl_s, key_id=kid, namespaces=names)
    print_one(minted, {"token": minted, "user": user, "expires_in_s": ttl_s})


@click.command()
@click.option("--user", metavar="NAME", help="Refuse this user, whatever the token.")
@click.option("--token-id", metavar="ID", help="Refuse the token with this jti.")
@click.option(
    "--for", "for_", default="1h", show_default=True, metavar="TIME", help="For how long: 90, 90s, 15m, 1h or 7d; 0 lifts it."
)
@with_options(redis_option, json_option)
def revoke(user: str | None, token_id: str | None, for_: str, redis_url: str | None) -> None:
    """Block a user or a token on every gateway, and disconnect its clients, within a second."""
    from headgate.auth.audit import audit
    from headgate.runtime import logging as logs
    from headgate.services.publisher import Publisher

    for_s = seconds(for_)
    with Publisher(redis_url) as publisher:
        publisher.revoke(user=user, token_id=token_id, for_s=for_s)
    logs.configure("info")
    kind = "user" if user is not None else "token"
    audit.revoked(kind=kind, name=user or token_id or "", for_s=for_s, by=operator_name())
    named = f"user {user!r}" if user is not None else f"token {token_id!r}"
    line = f"revoked {named} for {for_s} s" if for_s else f"lifted the revocation of {named}"
    print_done(line, {"user": user, "token_id": token_id, "revoked_for_s": for_s})


@click.command()
@click.argument("user")
@click.option("--subscribe", multiple=True, metavar="PATTERN", help="May subscribe to this; repeatable.")
@click.option("--publish", "publish_", multiple=True, metavar="PATTERN", help="May publish to this; repeatable.")
@click.option("--nothing", is_flag=True, help="May do nothing, but for the topics of its own.")
@click.option(
    "--for", "for_", default="1h", show_default=True, metavar="TIME", help="How long patterns hold: 90, 90s, 15m, 1h or 7d."
)
@with_options(redis_option, json_option)
def regrant(
    user: str, subscribe: tuple[str, ...], publish_: tuple[str, ...], nothing: bool, for_: str, redis_url: str | None
) -> None:
    """Replace the grants of USER's connected clients on every gateway.

    Without patterns, the authenticator or a fresh token decides. Patterns replace what a token grants until the time is over or
    `headgate regrant USER` removes them. Exit code 1 if a gateway did not answer in time.
    """
    from headgate.services.clients import Clients

    if nothing and (subscribe or publish_):
        raise click.UsageError("--nothing goes with no pattern")
    patterns = (subscribe, publish_) if nothing or subscribe or publish_ else (None, None)
    done = Clients(redis_url).regrant(user, subscribe=patterns[0], publish=patterns[1], for_s=seconds(for_), by=operator_name())
    print_done(f"checked the grants of {counted(done.count, 'client')} again", done)
    exit_for(done.silent)
