"""The command line `headgate` with its commands, which _SECTIONS lists.

In: arguments, with defaults from the environment (HEADGATE_…). Out: results on standard output, one clear line on standard error
for every fault. Exit codes: 0, 1 for a fault, 2 for wrong usage, 3 when the work was done but standard output did not accept the
result, 130 after Ctrl-C.

This file imports only click. A command's module is imported when the command runs, and imports the rest then, because `serve`
must patch the standard library before any other module of ours is loaded.
"""

from __future__ import annotations

import click

from headgate.installation import __version__

from .output import Commands

# Section of the help → command → module in this package, attribute.
_SECTIONS = {
    "Events": {
        "publish": ("events", "publish"),
        "tail": ("log", "tail"),
        "replay": ("log", "replay"),
        "trace": ("log", "trace"),
        "presence": ("operations", "presence"),
    },
    "Gateways and consumers": {
        "serve": ("gateway", "serve"),
        "demo": ("gateway", "demo"),
        "consume": ("consumers", "consume"),
        "consumers": ("consumers", "consumers"),
        "dead-letters": ("consumers", "dead_letters"),
        "rebalance": ("operations", "rebalance"),
        "pause": ("operations", "pause"),
        "resume": ("operations", "resume"),
    },
    "Diagnosis": {
        "status": ("status", "status"),
        "check": ("doctor", "check"),
        "doctor": ("doctor", "doctor"),
        "config": ("config", "config"),
    },
    "Users and access": {
        "token": ("access", "token"),
        "revoke": ("access", "revoke"),
        "regrant": ("access", "regrant"),
        "keys": ("keys", "keys"),
        "vapid-keys": ("keys", "vapid_keys"),
        "who-can": ("access", "who_can"),
        "clients": ("operations", "clients"),
        "disconnect": ("operations", "disconnect"),
    },
    "Schemas of topics": {"schemas": ("schemas", "schemas"), "types": ("schemas", "types")},
}


@click.group(cls=Commands, sections=_SECTIONS, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="%(prog)s %(version)s")
def main() -> None:
    """Headgate: real-time notifications from Python services to browsers, without silent loss."""
