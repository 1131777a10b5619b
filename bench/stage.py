"""One server, one generator and a fresh bus, set up for one measurement and taken down after it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from .bus import Bus, held_port
from .child import Child
from .generator import Generator
from .machine import cores
from .variants import Kind, Variant


@dataclass(frozen=True)
class Stage:
    """The running parts that a scenario measures."""

    variant: Variant
    bus: Bus
    server: Child
    generator: Generator
    port: int
    folder: Path

    def further_generator(self, *, connects: Sequence[str], room: int) -> Generator:
        """Return one more generator for this server, with clients that join with other texts. It does not publish."""
        folder = self.folder / "further"
        folder.mkdir()
        return Generator(
            folder,
            port=self.port,
            server_pids=[self.server.pid],
            bus=self.bus.socket,
            connects=connects,
            ready=self.variant.joined,
            room=room,
            path=self.variant.path,
        )


@dataclass(frozen=True)
class Audience:
    """Addresses of one kind, and which of them each client listens at: one sequence per client, of equal length.

    The load generator draws the address of each event at random, evenly, the same for every server, and accounts for each client
    apart (load/audience.h).
    """

    kind: Kind
    clients: Sequence[Sequence[int]]


def own(users: int) -> Audience:
    """As many clients as users, each listening to what is its own."""
    return Audience("own", [(user,) for user in range(users)])


def topics(clients: int, each: int, of: int) -> Audience:
    """Clients that listen to `each` exact topics out of `of`, each topic with equally many (if they add up)."""
    return Audience("topics", [[(client * each + nth) % of for nth in range(each)] for client in range(clients)])


@contextmanager
def stage(
    variant: Variant,
    *,
    size_bytes: int,
    clients: int | Audience,
    joined: int | None = None,
    connects: Sequence[str] = (),
    has_tcp: bool = False,
) -> Iterator[Stage]:
    """Start bus, server and generator, all of them ended with the block.

    Args:
        variant: the server.
        size_bytes: payload of the events that will be published.
        clients: how many clients there will be, each of which gets every event; or the listeners of each address.
        joined: how many of them join before the block; all if None.
        connects: CONNECT texts, used in turn; the variant's own if there is none.
        has_tcp: whether the bus also listens on a TCP port.

    Raises:
        Failed: one of them does not start.
    """
    server_core, load_core = cores()
    audience: Sequence[Sequence[int]] = ()
    to, ready, room = None, variant.joined, clients if isinstance(clients, int) else len(clients.clients)
    if isinstance(clients, Audience):
        addressing, audience = variant.addressing[clients.kind], clients.clients
        to, ready = addressing.to, addressing.joined(len(audience[0]))
        connects = [addressing.connect(addresses) for addresses in audience]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="headgate-bench-")))
        bus = stack.enter_context(Bus(folder, load_core, stack.enter_context(held_port()) if has_tcp else 0))
        port = stack.enter_context(held_port())
        server = stack.enter_context(variant.start(bus, port, server_core, folder, size_bytes))
        generator = Generator(
            folder,
            port=port,
            server_pids=[server.pid],
            bus=bus.socket,
            bus_pid=bus.pid,
            connects=connects or [variant.connect],
            ready=ready,
            audience=audience,
            room=room,
            path=variant.path,
        )
        stack.enter_context(generator)
        generator.publishes(variant.template(bus, port, size_bytes, to))
        if joined != 0:
            generator.connects(joined or room)
        yield Stage(variant, bus, server, generator, port, folder)
