"""Servers of Redis, one gateway and its browsers, as small as the rules of lineage allow: publish, crash, promote, cut, resume.

A server is the data of one namespace (its events and its epochs) and the memory of one process. Data are copied from server to
server, put to disk, brought back from it, at any moment. The gateway and the browsers follow the rules of decision 18, with the
product's own `Lineage`. The oracle knows which event each browser has at which offset.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from headgate.redis.lineage import Lineage, alone, read_lineage

SERVERS, BROWSERS = 3, 3
# memory: a process goes on only in its own epoch · judge: a position above the end of its epoch is reported as rolled back
# rename: a position on the line takes the newest epoch · ask: before a loss is reported, Redis is asked
# fork: the gateway compares the line that it knows with the new one
# report: publishers and the gateway report the newest event that they know of to a process that may not remember it
ALL_RULES = frozenset({"memory", "judge", "rename", "ask", "fork", "report"})
Data = tuple[tuple[int, ...], tuple[tuple[str, int], ...]]
EMPTY: Data = ((), ())


class Broken(AssertionError):
    """The oracle has found a promise that was not kept."""


@dataclass(slots=True)
class Server:
    """Events by offset, epochs with their first offsets, and the newest offset that this process has written, by epoch."""

    log: tuple[int, ...] = ()
    epochs: tuple[tuple[str, int], ...] = ()
    written: dict[str, int] = field(default_factory=dict)
    disk: Data = EMPTY
    snapshot: dict[str, int] = field(default_factory=dict)  # the process's writes when it wrote to disk

    @property
    def epoch(self) -> str:
        return self.epochs[-1][0] if self.epochs else ""

    @property
    def lineage(self) -> Lineage:
        return read_lineage(self.epoch, [(epoch, first, number) for number, (epoch, first) in enumerate(self.epochs)])


@dataclass(slots=True)
class Browser:
    """A position, and the events that it has above `base`."""

    epoch: str = ""
    offset: int = 0
    base: int = 0
    view: tuple[int, ...] = ()
    connected: bool = False


class World:
    """See the module. `rules` turns single rules off, so that a test can show that the oracle needs them."""

    def __init__(self, rules: frozenset[str] = ALL_RULES) -> None:
        self.rules = rules
        self.servers = [Server() for _ in range(SERVERS)]
        self.browsers = [Browser() for _ in range(BROWSERS)]
        self.address = 0
        self.attached: int | None = None
        self.epoch = ""
        self.offset = self.head = 0  # its events, and the newest offset that it knows of
        self.lineage = alone("")
        self.heard: frozenset[str] = frozenset()
        self.named: dict[tuple[str, int], int] = {}
        self.receipts: dict[str, int] = {}  # the newest offset that publishers know of, by epoch
        self.events = self.begun = 0

    def clone(self) -> World:
        other = World.__new__(World)
        other.__dict__.update(self.__dict__)
        other.servers = [replace(server, written=dict(server.written)) for server in self.servers]
        other.browsers = [replace(browser) for browser in self.browsers]
        other.named, other.receipts = dict(self.named), dict(self.receipts)
        return other

    def key(self) -> object:
        """A state, but for the order in which browsers are numbered."""
        return (
            tuple(
                (each.log, each.epochs, tuple(sorted(each.written.items())), each.disk, tuple(sorted(each.snapshot.items())))
                for each in self.servers
            ),
            tuple(sorted(self.receipts.items())),
            tuple(sorted((each.epoch, each.offset, each.base, each.view, each.connected) for each in self.browsers)),
            (
                self.address,
                self.attached,
                self.epoch,
                self.offset,
                self.head,
                tuple(sorted(self.lineage.ends.items())),
                tuple(sorted(self.lineage.lost)),
            ),
        )

    # -- steps, which return whether anything could happen ----------------------------------------------------------

    def steps(self) -> list[tuple[str, int, int]]:
        found = [("attach", 0, 0), ("fence", 0, 0), ("publish", 0, 0), ("publish_where_attached", 0, 0)]
        for one in range(SERVERS):
            found += [("promote", one, 0), ("crash", one, 0), ("put_back", one, 0), ("persist", one, 0), ("replicate", one, 0)]
            found.append(("revert", one, 0))
        for one in range(BROWSERS):
            found += [("connect", one, 0), ("cut", one, 0), ("deliver", one, 0), ("hear_elsewhere", one, 0)]
        return found

    def take(self, step: tuple[str, int, int]) -> bool:
        name, one, _ = step
        return bool(getattr(self, f"_{name}")(*(() if name in _ALONE else (one,))))

    def _publish(self) -> bool:
        self._append(self.servers[self.address])
        return True

    def _publish_where_attached(self) -> bool:
        """A publisher with a connection that still leads to the server before."""
        if self.attached is None or self.attached == self.address:
            return False
        self._append(self.servers[self.attached])
        return True

    def _append(self, server: Server) -> None:
        self._report(server, server.epoch, self.receipts.get(server.epoch, 0))
        self._own(server)
        self.events += 1
        server.log = (*server.log, self.events)
        offset = len(server.log)
        server.written[server.epoch] = self.receipts[server.epoch] = offset
        if self.named.setdefault((server.epoch, offset), self.events) != self.events:
            raise Broken(f"two events have the name {server.epoch}-{offset}")

    def _report(self, server: Server, epoch: str, offset: int) -> None:
        """Have the process forget an epoch that it wrote, if it does not remember an event of it."""
        if "report" in self.rules and server.written.get(epoch, offset) < offset:
            del server.written[epoch]

    def _own(self, server: Server) -> None:
        """Begin another epoch, unless this process has written the newest event."""
        owned = server.written.get(server.epoch) == len(server.log) if "memory" in self.rules else bool(server.epochs)
        if not owned:
            self.begun += 1
            server.written.pop(server.epoch, None)
            server.epochs = (*server.epochs, (f"e{self.begun}", len(server.log) + 1))
            server.written[server.epoch] = len(server.log)

    def _promote(self, number: int) -> bool:
        moved, self.address = number != self.address, number
        return moved

    def _persist(self, number: int) -> bool:
        server = self.servers[number]
        changed = (server.disk, server.snapshot) != ((server.log, server.epochs), server.written)
        server.disk, server.snapshot = (server.log, server.epochs), dict(server.written)
        return changed

    def _crash(self, number: int) -> bool:
        """The process ends; another one begins with the data on disk. Its connections break."""
        server = self.servers[number]
        server.log, server.epochs = server.disk
        server.written = {}
        if self.attached == number:
            self.attached = None
        return True

    def _put_back(self, number: int) -> bool:
        """The same process loads the data on disk."""
        server = self.servers[number]
        changed = server.disk != (server.log, server.epochs)
        server.log, server.epochs = server.disk
        return changed

    def _revert(self, number: int) -> bool:
        """The machine is put back to a snapshot with its memory. Its connections break."""
        server = self.servers[number]
        changed = (server.disk, server.snapshot) != ((server.log, server.epochs), server.written)
        (server.log, server.epochs), server.written = server.disk, dict(server.snapshot)
        if self.attached == number:
            self.attached = None
        return changed

    def _replicate(self, number: int) -> bool:
        """Give a replica all that the primary has."""
        primary, replica = self.servers[self.address], self.servers[number]
        if number == self.address or (replica.log, replica.epochs) == (primary.log, primary.epochs):
            return False
        replica.log, replica.epochs = primary.log, primary.epochs
        return True

    # -- the gateway ------------------------------------------------------------------------------------------------

    def _attach(self) -> bool:
        """Connect to the server that the address leads to, and configure the log."""
        self.attached = self.address
        self._report(self.servers[self.attached], self.epoch, self.head)
        self._own(self.servers[self.attached])
        return self._fence()

    def _fence(self) -> bool:
        if self.attached is None:
            return False
        server = self.servers[self.attached]
        before = (self.epoch, self.offset)
        self._report(server, self.epoch, self.head)
        if not server.epochs or (server.epoch == self.epoch and len(server.log) < self.offset):
            self._own(server)
        if not self.epoch:
            self.epoch, self.offset, self.lineage = server.epoch, len(server.log), server.lineage
        elif server.epoch != self.epoch:
            self._change_line(server)
        elif len(server.log) < self.offset:
            raise Broken("a process has lost what it remembers having written")
        self.offset = self.head = len(server.log)
        self.heard |= {self.epoch, *self.lineage.ends}
        self._check(server)
        return before != (self.epoch, self.offset)

    def _change_line(self, server: Server) -> None:
        lineage, head = server.lineage, len(server.log)
        end = self.lineage.fork(lineage, head) if "fork" in self.rules else lineage.end_of(self.epoch, head)
        self.lineage = lineage.following(self.lineage)
        self.epoch = server.epoch
        for browser in self.browsers:
            if browser.connected:
                self._judge(browser, end, server)

    def _judge(self, browser: Browser, end: int | None, server: Server) -> None:
        """Report to a browser its events off the line; it goes on after the end that its epoch has there."""
        if end is None:
            # Of an epoch that only another gateway has heard of, and that Redis has lost again, the beginning is unknown.
            if set(browser.view) & set(server.log) and browser.epoch in self.heard:
                raise Broken("a log counts as lost that is still there")
            browser.base = browser.offset = len(server.log)
            browser.view = ()
        elif browser.offset > end and "judge" in self.rules:
            kept = max(0, end - browser.base)
            for offset, event in enumerate(browser.view[kept:], browser.base + kept + 1):
                if offset <= len(server.log) and server.log[offset - 1] == event:
                    raise Broken(f"offset {offset} is told as rolled back, and is there")
            browser.view = browser.view[:kept]
            browser.base, browser.offset = min(browser.base, end), end
        if "rename" in self.rules or browser.epoch == "" or end is None:
            browser.epoch = self.epoch

    # -- browsers ---------------------------------------------------------------------------------------------------

    def _connect(self, number: int) -> bool:
        browser = self.browsers[number]
        if browser.connected or self.attached is None or not self.epoch:
            return False
        server = self.servers[self.attached]
        if not browser.epoch:
            browser.epoch, browser.offset, browser.base = self.epoch, self.offset, self.offset
        else:
            end = self.lineage.end_of(browser.epoch, self.offset)
            if "ask" in self.rules and (end is None or browser.offset > end):
                # Before a loss is reported, Redis is asked, because this gateway may lag.
                if server.epoch != self.epoch:
                    return False
                self.head = max(self.head, len(server.log))
                end = self.lineage.end_of(browser.epoch, len(server.log))
            self._judge(browser, end, server)
        browser.connected = True
        return True

    def _cut(self, number: int) -> bool:
        was, self.browsers[number].connected = self.browsers[number].connected, False
        return was

    def _deliver(self, number: int) -> bool:
        """Bring a browser its next event out of the log, of the intended epoch, or not at all."""
        browser = self.browsers[number]
        if not browser.connected or self.attached is None or browser.offset >= self.offset:
            return False
        server = self.servers[self.attached]
        if server.epoch != self.epoch or len(server.log) <= browser.offset:
            return False
        browser.view = (*browser.view, server.log[browser.offset])
        browser.offset += 1
        return True

    def _hear_elsewhere(self, number: int) -> bool:
        """Another gateway, which is where the address leads, brings a browser all that there is."""
        browser, server = self.browsers[number], self.servers[self.address]
        if browser.connected or not browser.epoch:
            return False
        self._own(server)
        end = server.lineage.end_of(browser.epoch, len(server.log))
        if end is None or browser.offset > end:
            return False  # its word of the loss is the same as this one's
        browser.view += server.log[browser.offset :]
        browser.epoch, browser.offset = server.epoch, len(server.log)
        return True

    # -- the oracle -------------------------------------------------------------------------------------------------

    def _check(self, server: Server) -> None:
        """A browser holds exactly the events of the log. One ahead of the gateway is judged when another epoch begins."""
        for number, browser in enumerate(self.browsers):
            if not browser.connected or browser.offset > self.offset:
                continue
            held, there = browser.view, server.log[browser.base : browser.offset]
            if held != there:
                raise Broken(f"browser {number} holds {held} behind {browser.base}, the log {there}")

    def settle(self) -> None:
        """Let everything come to rest, and look once more."""
        self._attach()
        for number in range(BROWSERS):
            self._connect(number)
            while self._deliver(number):
                pass
        self._fence()
        for browser in self.browsers:
            if browser.connected and browser.offset != self.offset:
                raise Broken(f"a browser stays at {browser.offset} of {self.offset}")


_ALONE = {"attach", "fence", "publish", "publish_where_attached"}
