"""The proxy keeps its promises: each way of breaking a connection, seen from both ends."""

import contextlib
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from tests.fault.chaos_proxy import ChaosProxy
from tests.fault.site import wait_for
from tests.support.held_port import HeldPort

DEADLINE_S = 30.0


@pytest.fixture
def echo() -> Iterator[tuple[str, int]]:
    """A server that sends its input back."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve(end: socket.socket) -> None:
        with end:
            try:
                while data := end.recv(65536):
                    end.sendall(data)
            except OSError:
                return

    def accept() -> None:
        while True:
            try:
                end, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=(end,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    yield listener.getsockname()
    listener.shutdown(socket.SHUT_RDWR)  # wakes the thread in accept
    listener.close()


@pytest.fixture
def proxy(echo: tuple[str, int]) -> Iterator[ChaosProxy]:
    """A proxy in front of it."""
    with ChaosProxy(echo) as proxy:
        yield proxy


def dial(proxy: ChaosProxy) -> socket.socket:
    """Return a proven connection through the proxy."""
    end = socket.create_connection(("127.0.0.1", proxy.port), DEADLINE_S)
    assert said(end, b"hello") == b"hello"
    return end


def said(end: socket.socket, data: bytes, wait_s: float = DEADLINE_S) -> bytes | None:
    """Send and return the answer; None: nothing within `wait_s`; b"": closed."""
    end.settimeout(wait_s)
    try:
        end.sendall(data)
        return end.recv(65536)
    except TimeoutError:
        return None


def is_reset(proxy: ChaosProxy) -> bool:
    """Whether a new connection is reset, at once or when it is used."""
    try:
        with socket.create_connection(("127.0.0.1", proxy.port), DEADLINE_S) as end:
            return said(end, b"x") == b"" or said(end, b"y") == b""
    except (ConnectionResetError, BrokenPipeError):
        return True


def test_a_pause_delays_and_loses_nothing(proxy: ChaosProxy) -> None:
    """Bytes that were sent in between arrive afterwards."""
    with dial(proxy) as end:
        proxy.pause()
        assert said(end, b"late", 0.1) is None
        proxy.heal()
        end.settimeout(DEADLINE_S)
        assert end.recv(100) == b"late"


def test_a_black_hole_swallows_and_its_connections_stay_dead(proxy: ChaosProxy) -> None:
    """Without a sign of it; a new connection works again after healing."""
    with dial(proxy) as end:
        proxy.black_hole()
        assert said(end, b"lost", 0.1) is None
        proxy.heal()
        assert said(end, b"still lost", 0.1) is None
        with dial(proxy) as fresh:
            assert said(fresh, b"again") == b"again"


def test_a_half_open_connection_carries_one_direction() -> None:
    """Bytes of the side that connected arrive; answers do not."""
    heard: list[bytes] = []
    listener = socket.create_server(("127.0.0.1", 0))
    with (
        listener,
        ChaosProxy(listener.getsockname()) as own,
        socket.create_connection(("127.0.0.1", own.port), DEADLINE_S) as near,
        listener.accept()[0] as far,
    ):
        near.sendall(b"one")
        heard.append(far.recv(10))
        own.half_open()
        near.sendall(b"two")
        heard.append(far.recv(10))
        far.sendall(b"answer")
        near.settimeout(0.1)
        with pytest.raises(TimeoutError):
            near.recv(10)
    assert heard == [b"one", b"two"]


def test_a_reset_is_a_reset(proxy: ChaosProxy) -> None:
    """Not an orderly end of stream."""
    with dial(proxy) as end:
        proxy.reset()
        with pytest.raises(ConnectionResetError):
            wait_for(lambda: said(end, b"x") == b"never", "a reset")


def test_refused_connections_are_reset_until_healed(proxy: ChaosProxy) -> None:
    """As without a listener."""
    proxy.refuse()
    assert is_reset(proxy)
    proxy.heal()
    dial(proxy).close()


def test_a_throttle_bounds_the_rate(proxy: ChaosProxy) -> None:
    """40 KB at 100 KB/s take at least 0.3 s, however fast the machine is."""
    with dial(proxy) as end:
        proxy.throttle(100_000)
        began_s = time.monotonic()
        end.sendall(b"x" * 40_000)
        left = 40_000
        while left:
            left -= len(end.recv(65536))
        assert time.monotonic() - began_s > 0.3


def test_a_target_that_is_gone_resets(proxy: ChaosProxy) -> None:
    """The connection to the proxy is made, and ended."""
    with contextlib.closing(HeldPort()) as gone, ChaosProxy(("127.0.0.1", gone.port)) as own:
        assert is_reset(own)
