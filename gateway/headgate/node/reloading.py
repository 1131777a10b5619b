"""Reloading: settings that change while a gateway runs.

In: settings that were read anew. Out: each part of the gateway has its new values; where one of them cannot be had, nothing has
changed. The others of the new settings wait for a restart, and are named.

A limit counts from now on: whoever is above it stays. Sessions and clients keep the bounds that they were opened with.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import NamedTuple

from headgate.settings import PREFIX, Settings

# Settings that take effect at once. A test holds docs/operations/install.md to this list.
RELOADED = (
    "log_level",
    "token_secret",
    "token_keys",
    "anonymous_subscribe",
    "anonymous_namespaces",
    "failed_logins_burst",
    "failed_logins_per_s",
    "max_clients",
    "shed_lag_s",
    "max_clients_per_user",
    "max_clients_per_address",
    "max_subscriptions",
    "max_wildcards",
    "max_refusals",
    "publish_per_s",
    "read_per_s",
    "read_burst",
    "schemas",
    "schema_check",
)
# Of them, those that wait for a restart where no token was taken before.
OF_TOKENS = ("token_secret", "token_keys")


class Changed(NamedTuple):
    """The settings that differ, as HEADGATE_ names: those that are in force now, and those that need a restart."""

    applied: list[str]
    needs_restart: list[str]


class Reloading:
    """See the module.

    Args:
        settings: those in force.
        prepare: called with the new settings first; returns what applies that which may fail. May raise.
        parts: each is called with the new settings; cannot fail.
    """

    def __init__(
        self,
        settings: Settings,
        prepare: Callable[[Settings], Callable[[], object]],
        parts: Sequence[Callable[[Settings], object]],
    ) -> None:
        self.settings = settings
        self._prepare, self._parts = prepare, parts

    def reload(self, wanted: Settings, excepted: Sequence[str] = ()) -> Changed:
        """Apply what can be; `excepted` are settings that need a restart here. Raises as `prepare`; nothing has changed then."""
        names = [each.name for each in dataclasses.fields(Settings)]
        differ = [name for name in names if getattr(wanted, name) != getattr(self.settings, name)]
        now = [name for name in differ if name in RELOADED and name not in excepted]
        settings = dataclasses.replace(self.settings, **{name: getattr(wanted, name) for name in now})
        apply = self._prepare(settings)
        apply()
        self.settings = settings
        for use in self._parts:
            use(settings)
        return Changed(
            *([PREFIX + name.upper() for name in some] for some in (now, [each for each in differ if each not in now]))
        )
