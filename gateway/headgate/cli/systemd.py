"""systemd: the listening sockets that it passes to a starting service, and the message that the service is ready.

In: the environment (`LISTEN_PID`, `LISTEN_FDS`, `NOTIFY_SOCKET`; sd_listen_fds(3), sd_notify(3)) and descriptors from 3 on. Out:
sockets. They stay open in systemd while the service restarts, so clients wait in their queue and none is refused.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from contextlib import suppress

from headgate.errors import InvalidRequest

FIRST_DESCRIPTOR = 3
_EXPECTED = "expected a listening stream socket (ListenStream=, Accept=no)"


def passed_sockets(environ: Mapping[str, str]) -> list[socket.socket]:
    """Return the sockets passed by systemd to this process; none without socket activation.

    Raises InvalidRequest: one of them is no listening stream socket.
    """
    if environ.get("LISTEN_PID") != str(os.getpid()):
        return []
    count = environ.get("LISTEN_FDS", "")
    if not count.isdecimal():
        raise InvalidRequest(f"LISTEN_FDS={count!r}: expected a number of sockets")
    return [_listening(FIRST_DESCRIPTOR + number) for number in range(int(count))]


def passed_socket(environ: Mapping[str, str]) -> socket.socket | None:
    """Return the single socket passed by systemd to this process, or None.

    Raises InvalidRequest: as `passed_sockets`, or there are several.
    """
    passed = passed_sockets(environ)
    if len(passed) > 1:
        raise InvalidRequest(f"systemd has passed {len(passed)} sockets: one process listens on one; use --workers for several")
    return passed[0] if passed else None


def notify_ready(environ: Mapping[str, str]) -> None:
    """Notify systemd that the service is ready (`Type=notify`); do nothing without systemd. systemd itself notices a failure."""
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
