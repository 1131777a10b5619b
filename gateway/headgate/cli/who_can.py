"""`headgate who-can PATTERN`: every grant, key and consumer that may see the events of a pattern. Imports click only.

In: the settings and the consumers of the configuration file and the environment; explicit grants and API keys from Redis. Out:
a line for each that may see all or part of the pattern. Rights known only at a login (a token's claims, an application's
authenticator) are marked as such, because no list of them exists.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import click

from .options import config_option, effective_settings, json_option, open_redis, redis_option, with_options
from .output import echo, print_one, wants_json

if TYPE_CHECKING:
    from headgate.consumers.work.spec import ConsumerSpec
    from headgate.redis.client import Client
    from headgate.settings.settings import Settings

# Means all namespaces of a key.
_EVERY = "*"


class Seer(NamedTuple):
    """An origin of the right to see events.

    Attributes:
        kind: development, anonymous, own topics, token, regrant, key or consumer.
        name: of the user, the key or the consumer; a description for a kind without names.
        patterns: its grants that overlap the given pattern.
        sees: `all` of that pattern, a `part` of it, or whatever its `claims` grant.
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
    from headgate.auth.regrants import read_regrants
    from headgate.events.topic import check_pattern

    check_pattern(pattern)
    settings, consumers = _configured(config)
    served = settings.served(namespace)
    client = open_redis(redis_url, settings)
    regrants = sorted(read_regrants(client).items())
    rows = [
        *_by_settings(settings, served, pattern),
        *(seer for user, (own, _) in regrants for seer in _seer("regrant", user, own.subscribe, pattern)),
        *_by_key(client, settings, served, pattern),
        *(seer for of in consumers if of.namespace == served for seer in _seer("consumer", of.name, of.patterns, pattern)),
    ]
    for seer in rows:
        how = {"all": "all of it", "part": "a part of it", "claims": "what its claims say"}[seer.sees]
        through = f" through {', '.join(seer.patterns)}" if seer.patterns else ""
        print_one(f"{seer.kind}: {seer.name}: {how}{through}", seer._asdict())
    if not wants_json():
        echo("an application's own authenticator decides at each login: nobody has a list of that", err=True)


def _configured(config: str | None) -> tuple[Settings, tuple[ConsumerSpec, ...]]:
    from headgate.consumers.process.config import find_file, read_consumers, read_names
    from headgate.settings.settings import environment

    path = find_file(config)
    if path is None or not read_names(path, environment()):
        return effective_settings(config, {}), ()
    consumers = read_consumers(path, environment())
    return consumers.settings, consumers.consumers


def _by_settings(settings: Settings, namespace: str, pattern: str) -> Iterator[Seer]:
    if settings.dev:
        yield Seer("development", "anyone who reaches the gateway", ("#",), "all")
    elif namespace in (settings.anonymous_namespaces or (settings.served(None),)):
        yield from _seer("anonymous", "anyone without a token", settings.anonymous_subscribe, pattern)
    from headgate.events.topic import user_name

    words = pattern.split(".")
    if words[0] == "users" and len(words) > 1 and words[1] not in ("*", "#"):
        if (user := user_name(words[1])) is not None:
            yield from _seer("own topics", user, (f"users.{words[1]}.#",), pattern)
    else:
        yield from (seer._replace(sees="part") for seer in _seer("own topics", "every user", ("users.*.#",), pattern))
    if settings.token_secret or settings.token_keys or settings.token_jwks_url:
        yield Seer("token", "whoever has one whose `subscribe` covers it", (), "claims")


def _by_key(client: Client, settings: Settings, namespace: str, pattern: str) -> Iterator[Seer]:
    import time

    from headgate.redis.api_keys import find_all

    if settings.admin_key is not None:
        yield Seer("key", "HEADGATE_ADMIN_KEY", ("#",), "all")
    now_s = time.time()
    for key in find_all(client):
        if key.expires_s is not None and key.expires_s <= now_s:
            continue
        of = (settings.served(None),) if key.namespaces is None else key.namespaces
        if "admin" in key.scopes:
            yield Seer("key", f"{key.id} ({key.name})", ("#",), "all")
        elif _EVERY in of or namespace in of:
            granted = tuple(scope.removeprefix("read:") for scope in key.scopes if scope.startswith("read:"))
            yield from _seer("key", f"{key.id} ({key.name})", granted, pattern)


def _seer(kind: str, name: str, granted: tuple[str, ...], pattern: str) -> Iterator[Seer]:
    from headgate.auth.grants import compiled
    from headgate.events.topic import overlaps

    reaching = tuple(each for each in granted if overlaps(each, pattern))
    if reaching:
        # As in a subscribe, one of them must contain the whole pattern.
        yield Seer(kind, name, reaching, "all" if compiled(reaching).contain(pattern) else "part")
