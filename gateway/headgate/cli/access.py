"""`headgate token`, `revoke`, `regrant` and `who-can`, for rights of users. Imports only click.

They create a development token, block a user, change a connected user's grants, and list every grant, key and consumer that may
see the events of a pattern. The list is from the settings and the consumers of the configuration file and the environment, and
from explicit grants and API keys in Redis. Rights known only at a login (a token's claims, an application's authenticator) are
marked as such, because no list of them exists.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import click

if TYPE_CHECKING:
    from headgate.consumers.work.spec import ConsumerSpec
    from headgate.redis.client import Client
    from headgate.settings.settings import Settings

from .options import (
    config_option,
    effective_settings,
    json_option,
    namespaces_option,
    open_redis,
    operator_name,
    redis_option,
    seconds,
    with_options,
)
from .output import counted, echo, exit_for, print_done, print_one, wants_json


@click.command()
@click.option("--user", required=True, metavar="NAME", help="User of the token.")
@click.option("--subscribe", multiple=True, metavar="PATTERN", help="May subscribe to this; repeatable. {sub}: the user's word.")
@click.option("--publish", "publish_", multiple=True, metavar="PATTERN", help="May publish to this; repeatable.")
@namespaces_option("Namespace that it is for; repeatable. Default: the gateway's first.")
@click.option("--ttl", default="1h", show_default=True, metavar="TIME", help="Lifetime: 90, 90s, 15m, 1h or 7d.")
@click.option("--kid", metavar="ID", help="Configured secret that signs it, if there are several.")
@with_options(json_option)
def token(
    user: str, subscribe: tuple[str, ...], publish_: tuple[str, ...], namespaces: tuple[str, ...], ttl: str, kid: str | None
) -> None:
    """Print a token for development, signed with HEADGATE_TOKEN_SECRET (or a secret of HEADGATE_TOKEN_KEYS).

    Every user may also subscribe to its own topics (users.me.# in a page), with any token.
    """
    from headgate.auth.api_keys import MAX_TTL_S
    from headgate.auth.tokens import Tokens
    from headgate.errors import SettingsError
    from headgate.settings.settings import Settings

    names, ttl_s = list(namespaces), seconds(ttl, "--ttl", 1, MAX_TTL_S)
    settings = Settings.from_environment("HEADGATE_TOKEN_")
    tokens = Tokens.configured(settings)
    if tokens is None:
        raise SettingsError(["no secret to sign with: set HEADGATE_TOKEN_SECRET, for the gateway too"])
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
    from headgate.auth.revocation import MAX_REVOKED_S
    from headgate.runtime import logging as logs
    from headgate.services.publisher import Publisher

    if (user is None) == (token_id is None):
        raise click.UsageError("expected either --user NAME or --token-id ID")
    for_s = seconds(for_, "--for", 0, MAX_REVOKED_S)
    with Publisher(redis_url) as publisher:
        gateways = publisher.revoke(user=user, token_id=token_id, for_s=for_s)
    logs.configure("info")
    kind = "user" if user is not None else "token"
    audit.revoked(kind=kind, name=user or token_id or "", for_s=for_s, by=operator_name())
    named = f"user {user!r}" if user is not None else f"token {token_id!r}"
    line = f"revoked {named} for {for_s} s" if for_s else f"lifted the revocation of {named}"
    print_done(line, {"user": user, "token_id": token_id, "revoked_for_s": for_s, "gateways": gateways})


@click.command()
@click.argument("user")
@click.option("--subscribe", multiple=True, metavar="PATTERN", help="May subscribe to this; repeatable.")
@click.option("--publish", "publish_", multiple=True, metavar="PATTERN", help="May publish to this; repeatable.")
@click.option("--nothing", is_flag=True, help="Grant nothing, except the user's own topics.")
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
    from headgate.auth.regrants import MAX_REGRANTED_S
    from headgate.services.clients import Clients

    for_s = seconds(for_, "--for", 1, MAX_REGRANTED_S)
    if nothing and (subscribe or publish_):
        raise click.UsageError("--nothing goes with no pattern")
    patterns = (subscribe, publish_) if nothing or subscribe or publish_ else (None, None)
    done = Clients(redis_url).regrant(user, subscribe=patterns[0], publish=patterns[1], for_s=for_s, by=operator_name())
    print_done(f"checked the grants of {counted(done.count, 'client')} again", done)
    exit_for(done.silent)


class ViewRight(NamedTuple):
    """An origin of the right to see events.

    Attributes:
        kind: development, anonymous, own topics, token, regrant, key or consumer.
        name: of the user, the key or the consumer; a description for a kind without names.
        patterns: its grants that overlap the given pattern.
        sees: `all` of that pattern, a `part` of it, or the events that its `claims` grant.
    """

    kind: str
    name: str
    patterns: tuple[str, ...]
    sees: str


@click.command("who-can")
@click.argument("pattern")
@click.option("--namespace", metavar="NAME", help="Namespace of the events. Default: the gateway's first.")
@with_options(config_option, redis_option, json_option)
def who_can(pattern: str, namespace: str | None, config: str | None, redis_url: str | None) -> None:
    """List every grant, key and consumer with access to all or some events of PATTERN.

    Run it with the gateway's settings. An application's `authorize` may still refuse some of them.
    """
    from headgate.auth.repair import read_regrants
    from headgate.events.topic import check_pattern

    check_pattern(pattern)
    settings, consumers = _configured(config)
    served = settings.served(namespace)
    client = open_redis(redis_url, settings)
    regrants = sorted(read_regrants(client).items())
    rows = [
        *_by_settings(settings, served, pattern),
        *(right for user, (own, _) in regrants for right in _view_rights("regrant", user, own.subscribe, pattern)),
        *_by_key(client, settings, served, pattern),
        *(
            right
            for of in consumers
            if of.namespace == served
            for right in _view_rights("consumer", of.name, of.patterns, pattern)
        ),
    ]
    for right in rows:
        how = {"all": "all of it", "part": "a part of it", "claims": "what its claims say"}[right.sees]
        through = f" through {', '.join(right.patterns)}" if right.patterns else ""
        print_one(f"{right.kind}: {right.name}: {how}{through}", right._asdict())
    if not wants_json():
        echo("an application's own authenticator decides at each login, so there is no list", err=True)


def _configured(config: str | None) -> tuple[Settings, tuple[ConsumerSpec, ...]]:
    from headgate.consumers.process.config import read_consumers, read_names
    from headgate.settings.file import find_file
    from headgate.settings.settings import environment

    path = find_file(config)
    if path is None or not read_names(path, environment()):
        return effective_settings(config, {}), ()
    return read_consumers(path, environment())


def _by_settings(settings: Settings, namespace: str, pattern: str) -> Iterator[ViewRight]:
    if settings.dev:
        yield ViewRight("development", "anyone who reaches the gateway", ("#",), "all")
    elif namespace in (settings.anonymous_namespaces or (settings.served(None),)):
        yield from _view_rights("anonymous", "anyone without a token", settings.anonymous_subscribe, pattern)
    from headgate.events.topic import user_name

    words = pattern.split(".")
    if words[0] == "users" and len(words) > 1 and words[1] not in ("*", "#"):
        if (user := user_name(words[1])) is not None:
            yield from _view_rights("own topics", user, (f"users.{words[1]}.#",), pattern)
    else:
        yield from (right._replace(sees="part") for right in _view_rights("own topics", "every user", ("users.*.#",), pattern))
    if settings.token_secret or settings.token_keys or settings.token_jwks_url:
        yield ViewRight("token", "anyone with a token whose `subscribe` covers it", (), "claims")


def _by_key(client: Client, settings: Settings, namespace: str, pattern: str) -> Iterator[ViewRight]:
    import time

    from headgate.auth.identity import EVERY
    from headgate.auth.scopes import ADMIN, patterns_of
    from headgate.redis.api_keys import find_all

    if settings.admin_key is not None:
        yield ViewRight("key", "HEADGATE_ADMIN_KEY", ("#",), "all")
    now_s = time.time()
    for key in find_all(client):
        if key.expires_s is not None and key.expires_s <= now_s:
            continue
        of = (settings.served(None),) if key.namespaces is None else key.namespaces
        if ADMIN in key.scopes or EVERY in of or namespace in of:
            yield from _view_rights("key", f"{key.id} ({key.name})", patterns_of(key.scopes, "read"), pattern)


def _view_rights(kind: str, name: str, granted: tuple[str, ...], pattern: str) -> Iterator[ViewRight]:
    from headgate.auth.grants import compiled
    from headgate.events.topic import overlaps

    reaching = tuple(each for each in granted if overlaps(each, pattern))
    if reaching:
        # One of them must contain the whole pattern, as for a subscribe.
        yield ViewRight(kind, name, reaching, "all" if compiled(reaching).contain(pattern) else "part")
