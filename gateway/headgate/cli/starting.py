"""The lines that `headgate serve` prints at its start, with one process and with several.

This file imports no gevent and patches nothing, because the process that forks the workers uses it.
"""

from __future__ import annotations

import os
import socket
from collections.abc import MutableMapping

from headgate.consumers.process.config import need_file
from headgate.events.topic import DEFAULT_NAMESPACE
from headgate.installation import Build, __version__, build_in_use
from headgate.runtime.importing import APPLICATION, check_string
from headgate.runtime.operator_lines import complain, say
from headgate.settings.settings import LET_IN, Settings
from headgate.workers.settings_file import SettingsFile


def read_file(environ: MutableMapping[str, str], config: str | None, *, is_needed: bool) -> SettingsFile:
    """Add the settings of the configuration file to `environ`, which wins; return the file, whose path may be None.

    Raises HeadgateError: the file is needed and missing, or cannot be read.
    """
    if is_needed:
        need_file(config)
    file = SettingsFile.of_config(config)
    file.put(file.read(environ), environ)
    if file.path is not None:
        say(f"settings from {file.path}")
    return file


def say_mode(settings: Settings) -> None:
    """Announce development mode, if it is on."""
    if settings.dev:
        say("development mode: anyone on this machine may subscribe to everything and publish. Never use it in public.")


def say_ready(settings: Settings, address: object, *details: str, nobody: bool) -> None:
    """Print where the gateway serves, and the next step.

    The address may differ from `settings`: port 0, or a socket from systemd. `nobody`: no client may connect.
    """
    if isinstance(address, tuple):
        host = host_in_url(settings) if settings.port in (0, address[1]) else address[0]
        at = f"http://{host}:{address[1]}/"
    else:
        at = f"unix:{address}"
    build = (f"headgate {__version__}", *(["compiled"] if build_in_use() is Build.COMPILED else []))
    namespace = "" if settings.namespaces[0] == DEFAULT_NAMESPACE else f" --namespace {settings.namespaces[0]}"
    next_step = f"nobody may connect: {LET_IN}" if nobody else f"open it, and see its events with: headgate tail '#'{namespace}"
    say(f"ready at {at} ({', '.join((*build, *details, 'Ctrl-C stops it'))}); {next_step}")


def host_in_url(settings: Settings) -> str:
    """Return the host for a URL, with an IPv6 address in brackets."""
    return f"[{settings.host}]" if ":" in settings.host else settings.host


def check_target(target: str | None) -> None:
    """Check whether the application can exist, before starting anything for it; its module is not imported yet.

    Raises InvalidRequest: it certainly does not.
    """
    if target is not None:
        check_string(target, APPLICATION, default="app")


def may_listen(settings: Settings) -> bool:
    """Check whether the gateway can have its address, before starting anything for it; if not, report why."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        with socket.socket(family) as tried:
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            tried.bind((settings.host, settings.port))
    except OSError as error:
        complain_of_address(settings, error)
        return False
    return True


def complain_of_address(settings: Settings, error: OSError) -> None:
    # The text of the error itself may have the address twice. The number for an unknown host name is not a system error.
    reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror or str(error)
    complain(f"cannot listen on {settings.host}:{settings.port}: {reason}; choose another with --host or --port")
