"""One server, one generator and a fresh bus, set up for one measurement and taken down after it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from .bus import Bus
from .child import Child
from .generator import Generator
from .machine import cores
from .variants import Kind, Variant, held_port


@dataclass(frozen=True)
class Stage:
    """The running parts that a scenario measures; of several gateways, `server` and `port` are the first."""

    variant: Variant
    bus: Bus
    server: Child
    generator: Generator
    port: int
    folder: Path

    def further_generator(self, *, connects: Sequence[str], room: int) -> Generator:
        """Return one more generator for this server, whose clients join with other texts. It does not publish."""
        folder = self.folder / "further"
        folder.mkdir()
        server_core, load_core = cores()
        return Generator(
            folder,
            load_core,
            ports=[self.port],
            server_pids=[self.server.pid],
            server_core=server_core,
            bus_socket=self.bus.socket,
            connects=connects,
            ready=self.variant.joined,
            room=room,
            path=self.variant.path,
        )


@dataclass(frozen=True)
class Audience:
    """Addresses of one kind, and which of them each client listens at: one sequence per client, of equal length."""

    kind: Kind
    clients: Sequence[Sequence[int]]


@contextmanager
def stage(
    variant: Variant,
    *,
    size_bytes: int,
    room: int,
    connects: Sequence[str] = (),
    audience: Audience | None = None,
    offer_deflate: bool = False,
    receive_buffer_bytes: int | None = None,
    has_tcp: bool = False,
) -> Iterator[Stage]:
    """Start bus, server and generator, all of them ended with the block.

    Args:
        variant: the server.
        size_bytes: payload of the events that will be published.
        room: how many clients there will be at most.
        connects: CONNECT texts, used in turn; the variant's own if there is none.
        audience: who listens at which addresses; without it every event is for every client.
        offer_deflate: whether the clients offer permessage-deflate.
        receive_buffer_bytes: SO_RCVBUF of the clients; the kernel's default if None.
        has_tcp: whether the bus also listens on a TCP port.

    Raises:
        Failed: one of them does not start.
    """
    server_core, load_core = cores()
    to, joined = None, variant.joined
    if audience:
        addressing = variant.addressing[audience.kind]
        to, joined = addressing.to, addressing.joined(len(audience.clients[0]))
        connects = [addressing.connect(addresses) for addresses in audience.clients]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="headgate-bench-")))
        bus = Bus(folder, load_core, stack.enter_context(held_port()) if has_tcp else 0)
        stack.enter_context(bus)
        ports, servers = [], []
        for number in range(variant.gateways):
            own = folder / f"server-{number}"
            own.mkdir()
            ports.append(stack.enter_context(held_port()))
            servers.append(stack.enter_context(variant.start(bus, ports[-1], server_core, own, size_bytes)))
        generator = Generator(
            folder,
            load_core,
            ports=ports,
            server_pids=[server.pid for server in servers],
            server_core=server_core,
            bus_socket=bus.socket,
            bus_pid=bus.pid,
            connects=connects or [variant.connect],
            ready=joined,
            audience=audience.clients if audience else (),
            room=room,
            path=variant.path,
            offer_deflate=offer_deflate,
            receive_buffer_bytes=receive_buffer_bytes,
        )
        stack.enter_context(generator)
        generator.publishes(variant.template(bus, ports[0], size_bytes, to))
        yield Stage(variant, bus, servers[0], generator, ports[0], folder)
