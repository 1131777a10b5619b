"""The start of `headgate serve`, with one process or several. It prints the lines, and takes sockets from systemd.

systemd passes listening sockets to a starting service, which notifies it when ready (`LISTEN_PID`, `LISTEN_FDS`,
`NOTIFY_SOCKET`; sd_listen_fds(3), sd_notify(3)). The sockets stay open in systemd while the service restarts, so clients wait
in their queue and none is refused.

This file does not import gevent or patch anything, because the process that forks the workers uses it.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, MutableMapping
from contextlib import suppress
from typing import Any

from headgate.errors import InvalidRequest
from headgate.events.topic import DEFAULT_NAMESPACE
from headgate.installation import __version__, build_in_use
from headgate.runtime.operator_lines import complain, say
from headgate.settings.file import need_file
from headgate.settings.settings import LET_IN, Settings
from headgate.transport.http_limits import BACKLOG
from headgate.workers.settings_file import SettingsFile


def read_file(environ: MutableMapping[str, str], config: str | None, *, is_needed: bool) -> SettingsFile:
    """Add the settings of the configuration file to `environ`, which wins; return the file, perhaps without a path.

    Raises HeadgateError if the file is needed and missing, or cannot be read.
    """
    if is_needed:
        need_file(config)
    file = SettingsFile.of_config(config)
    file.put(file.read(environ), environ)
    if file.path is not None:
        say(f"settings from {file.path}")
    return file


def say_ready(settings: Settings, address: object, *details: str, nobody: bool) -> None:
    """Print the address of the gateway, and the next step.

    The address may differ from `settings`, for port 0 or a socket from systemd. With `nobody`, no client may connect.
    """
    if isinstance(address, tuple):
        host = host_in_url(settings) if settings.port in (0, address[1]) else address[0]
        at = f"http://{host}:{address[1]}/"
    else:
        at = f"unix:{address}"
    build = (f"headgate {__version__}", *(["compiled"] if build_in_use() == "compiled" else []))
    namespace = "" if settings.namespaces[0] == DEFAULT_NAMESPACE else f" --namespace {settings.namespaces[0]}"
    next_step = f"nobody may connect: {LET_IN}" if nobody else f"open it, and see its events with: headgate tail '#'{namespace}"
    say(f"ready at {at} ({', '.join((*build, *details, 'Ctrl-C stops it'))}); {next_step}")


def host_in_url(settings: Settings) -> str:
    """Return the host for a URL, with an IPv6 address in brackets."""
    return f"[{settings.host}]" if ":" in settings.host else settings.host


def listen(settings: Settings) -> socket.socket | None:
    """Return a socket that listens at the gateway's address, `::` over IPv4 too; None after reporting why there is none.

    Call it before starting anything for the gateway. Clients wait in its queue until the gateway accepts them.
    """
    is_ipv6 = ":" in settings.host
    options: dict[str, Any] = {"family": socket.AF_INET6, "dualstack_ipv6": socket.has_dualstack_ipv6()} if is_ipv6 else {}
    try:
        return socket.create_server((settings.host, settings.port), backlog=BACKLOG, **options)
    except OSError as error:
        # The text of the error itself may have the address twice. The number for an unknown host name is not a system error.
        reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror or str(error)
        complain(f"cannot listen on {settings.host}:{settings.port}: {reason}; choose another with --host or --port")
        return None


FIRST_DESCRIPTOR = 3
_EXPECTED = "expected a listening stream socket (ListenStream=, Accept=no)"


def passed_sockets(environ: Mapping[str, str]) -> list[socket.socket]:
    """Return the sockets passed by systemd to this process, none without socket activation.

    Raises InvalidRequest if one of them is not a listening stream socket.
    """
    if environ.get("LISTEN_PID") != str(os.getpid()):
        return []
    count = environ.get("LISTEN_FDS", "")
    if not count.isdecimal():
        raise InvalidRequest(f"LISTEN_FDS={count!r}: expected a number of sockets")
    return [_listening(FIRST_DESCRIPTOR + number) for number in range(int(count))]


def passed_socket(environ: Mapping[str, str]) -> socket.socket | None:
    """Return the single socket passed by systemd to this process, or None.

    Raises InvalidRequest as `passed_sockets`, and for several sockets.
    """
    passed = passed_sockets(environ)
    if len(passed) > 1:
        raise InvalidRequest(f"systemd has passed {len(passed)} sockets: one process listens on one; use --workers for several")
    return passed[0] if passed else None


def notify_ready(environ: Mapping[str, str]) -> None:
    """Notify systemd that the service is ready (`Type=notify`). Does nothing without systemd, which detects failures itself."""
    address = environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
        notify.sendto(b"READY=1", "\0" + address[1:] if address.startswith("@") else address)


def _listening(descriptor: int) -> socket.socket:
    try:
        passed = socket.socket(fileno=descriptor)
    except OSError as error:
        raise InvalidRequest(f"descriptor {descriptor} of systemd: {os.strerror(error.errno or 0)}; {_EXPECTED}") from error
    passed.set_inheritable(False)
    if passed.type != socket.SOCK_STREAM or not passed.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        passed.detach()
        raise InvalidRequest(f"descriptor {descriptor} of systemd: {_EXPECTED}")
    return passed
