"""Reloading: settings that change while a gateway runs.

In: newly read settings. Out: the settings for the parts of the gateway to apply, and the names of those that wait for
a restart.

A limit counts from now on, and clients above it stay. Sessions and clients keep the bounds that they were opened with.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

from headgate.settings.settings import PREFIX, Settings

# Settings that take effect at once. A test holds docs/operations/install.md to this list.
RELOADED = (
    "log_level",
    "token_secret",
    "token_keys",
    "anonymous_subscribe",
    "anonymous_namespaces",
    "failed_logins_burst",
    "max_clients",
    "max_clients_per_user",
    "max_clients_per_address",
    "max_subscriptions",
    "publish_per_s",
    "read_per_s",
    "schemas",
    "schema_check",
)
# Of these, the ones that wait for a restart where tokens were not accepted before.
OF_TOKENS = ("token_secret", "token_keys")


class Changed(NamedTuple):
    """The settings that differ, as HEADGATE_ names: those in force now, and those that need a restart."""

    applied: list[str]
    needs_restart: list[str]


def changes(current: Settings, wanted: Settings, excepted: Sequence[str] = ()) -> tuple[Settings, Changed]:
    """Return the settings that can take effect now, and the differences. `excepted` settings need a restart here."""
    names = [each.name for each in dataclasses.fields(Settings)]
    differ = [name for name in names if getattr(wanted, name) != getattr(current, name)]
    now = [name for name in differ if name in RELOADED and name not in excepted]
    later = [name for name in differ if name not in now]
    settings = dataclasses.replace(current, **{name: getattr(wanted, name) for name in now})
    return settings, Changed(*([PREFIX + name.upper() for name in some] for some in (now, later)))
