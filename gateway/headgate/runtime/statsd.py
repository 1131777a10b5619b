"""Sends lines to StatsD over UDP in few datagrams. It never waits and never raises, and it counts failures.

In: counts, gauges and timings, added up by the caller under their StatsD names. Out: datagrams. The host name is resolved at
the start and then once a minute in a separate thread, because a name server may be slow.

The line format follows StatsD's docs/metric_types.md: `name:3|c`, `name:4|g`, and `name:12.5|ms|@0.01` for a hundred timings of
12.5 ms in one line. A signed gauge changes the earlier value, so a negative value needs a zero before it.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping

# Fits into one Ethernet frame with IPv6 and the usual tunnels. StatsD recommends this size for a local network.
MAX_DATAGRAM_BYTES = 1432
RESOLVE_EVERY_S = 60.0

# Name, duration in seconds, and number of occurrences.
Timing = tuple[str, float, int]
# An address family, and an address as `socket.getaddrinfo` returns it.
_Address = tuple[socket.AddressFamily, tuple[str, int] | tuple[str, int, int, int] | tuple[int, bytes]]


class Statsd:
    """Sends to one address. Owned by one thread.

    Args:
        place: host name or address, and port.
        on_fault: called, in any thread, for every datagram that failed and every name that did not resolve.
    """

    def __init__(self, place: tuple[str, int], on_fault: Callable[[Exception], None]) -> None:
        self._place, self._on_fault = place, on_fault
        self._socket: socket.socket | None = None
        self._address: _Address | None = None
        self._connected_to: _Address | None = None
        self._looked_up_s = 0.0
        self._looking_up = threading.Thread()

    def start(self) -> None:
        """Resolve the host. Waits for the resolver, only this once."""
        self._looked_up_s = time.monotonic()
        self._look_up()

    def send(self, counts: Mapping[str, int], gauges: Mapping[str, float], timings: Iterable[Timing] = ()) -> None:
        """Send everything that is not empty. Never waits."""
        if time.monotonic() - self._looked_up_s >= RESOLVE_EVERY_S and not self._looking_up.is_alive():
            self._looked_up_s = time.monotonic()
            self._looking_up = threading.Thread(target=self._look_up, name="statsd look-up", daemon=True)
            self._looking_up.start()
        for datagram in datagrams(lines(counts, gauges, timings)):
            self._send(datagram)

    def close(self) -> None:
        """Close the socket. Idempotent."""
        if self._socket is not None:
            self._socket.close()
            self._socket = self._connected_to = None

    def _look_up(self) -> None:
        try:
            family, _, _, _, address = socket.getaddrinfo(*self._place, type=socket.SOCK_DGRAM)[0]
        except (OSError, UnicodeError) as error:  # keep the last address
            self._on_fault(error)
        else:
            self._address = (family, address)

    def _send(self, datagram: bytes) -> None:
        try:
            sock = self._connected()
            try:
                sock.send(datagram)
            except ConnectionRefusedError as error:
                # The port was closed for an earlier datagram, and this one was not sent. The port may be open now.
                self._on_fault(error)
                sock.send(datagram)
        except OSError as error:
            self._on_fault(error)

    def _connected(self) -> socket.socket:
        """Return a socket connected to the newest address, so that the kernel reports a closed port."""
        newest = self._address  # read once, because the resolver's thread may replace it at any moment
        if self._socket is None or self._connected_to != newest:
            self.close()
            if newest is None:
                raise OSError("its name was not found")
            family, address = newest
            sock = socket.socket(family, socket.SOCK_DGRAM)
            sock.setblocking(False)
            self._socket = sock
            sock.connect(address)
            self._connected_to = newest
        return self._socket


def lines(counts: Mapping[str, int], gauges: Mapping[str, float], timings: Iterable[Timing] = ()) -> Iterator[bytes]:
    """Yield one line per value, or two that belong together."""
    for name, count in counts.items():
        yield b"%b:%d|c" % (name.encode(), count)
    for name, value in gauges.items():
        zero = f"{name}:0|g\n" if value < 0 else ""
        yield f"{zero}{name}:{value + 0.0:.15g}|g".encode()  # -0.0 + 0.0 is 0.0, without a sign
    for name, seconds, times in timings:
        rate = f"|@{1 / times:.9f}".rstrip("0") if times > 1 else ""
        yield f"{name}:{seconds * 1000:.6g}|ms{rate}".encode()


def datagrams(of: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the lines, in order, in the fewest datagrams of at most MAX_DATAGRAM_BYTES. A longer line goes alone."""
    datagram = b""
    for line in of:
        if datagram and len(datagram) + 1 + len(line) > MAX_DATAGRAM_BYTES:
            yield datagram
            datagram = b""
        datagram += b"\n" + line if datagram else line
    if datagram:
        yield datagram
