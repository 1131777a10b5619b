"""A record of each event's way to the sockets of a model, from bytes and frames alone: the oracle of ledger and tallies.

In: the writes of the model's connections, and the audience of each event as a plain reading of the subscriptions has it. Out:
counts to compare with those of the gateway. An event is identified by the epoch that wrote it, which its data contains, and its
offset.
"""

from collections import Counter
from collections.abc import Iterable

from headgate.delivery.ledger import DeliveryCounts
from headgate.delivery.tally import Tally
from headgate.events.wire.frames import Frame
from tests.support.websocket_codec import frame_at

Place = tuple[str, int]


class SocketRecord:
    """See the module.

    Attributes:
        audience: clients that an event was for when it came.
        written: those with sockets to which it went at once.
        queued: those with sockets to which it went out of their queues.
        from_log: those with connections that took it from the log.
        routed, sent, read: the same of all events, plain ones too: to clients, to sockets, and from the log.
    """

    def __init__(self, namespace: str) -> None:
        self._begin = f'42/{namespace},["event",'.encode()
        self.audience: Counter[Place] = Counter()
        self.written: Counter[Place] = Counter()
        self.queued: Counter[Place] = Counter()
        self.from_log: Counter[Place] = Counter()
        self.routed = self.sent = self.read = 0

    def came(self, frame: Frame, clients: int) -> None:
        """A pass has taken an event, which is for so many clients."""
        self.routed += clients
        place = self._place(frame.packet)
        if place is not None:
            self.audience[place] += clients

    def wrote(self, data: bytes, sent: int) -> None:
        """The fan-out has written joined frames, of which the socket took so many bytes, and so has had the begun frames."""
        at = 0
        while at < sent:
            frame = frame_at(data, at)
            assert frame is not None
            self._note(data[frame.start : frame.end], self.written)
            at = frame.end

    def took(self, frames: Iterable[Frame]) -> None:
        """These frames have left the queue for the socket."""
        for frame in frames:
            self._note(frame.packet, self.queued)

    def streamed(self, frames: Iterable[Frame], *, to_socket: bool) -> None:
        """The connection has taken these from the log, for the socket or for its queue."""
        for frame in frames:
            self.read += 1
            self.sent += to_socket
            self.from_log[self._place(frame.packet) or ("", 0)] += 1

    def check_ledger(self, balance: DeliveryCounts) -> None:
        """Hold the sums of the gateway against this record, when no pass is under way."""
        theirs, ours = (balance.routed, balance.from_log, balance.sent), (self.routed, self.read, self.sent)
        assert theirs == ours, f"routed, from the log, sent: {theirs}, and the sockets say {ours}"

    def check_tallies(self, tallies: Iterable[tuple[Place, Tally]], balance: DeliveryCounts) -> None:
        """Hold tallies against this record when nothing waits. Those of one event, in several epochs, count together."""
        found: dict[Place, Counter[str]] = {}
        for place, tally in tallies:
            counts = found.setdefault(place, Counter())
            for name in ("matched", "written", "queued", "kept", "discarded", "conflated", "left_to_log", "gone", "from_log"):
                assert getattr(tally, name) >= 0, (place, name)
                counts[name] += getattr(tally, name)
        for place in {*found, *self.audience, *self.from_log}:
            counts = found.get(place, Counter())
            ours = (self.audience[place], self.written[place], self.queued[place], self.from_log[place])
            assert (counts["matched"], counts["written"], counts["queued"], counts["from_log"]) == ours, (
                f"{place}: {counts}, and the sockets say {ours}"
            )
            assert counts["kept"] == 0, (place, counts)
        # Plain publishes, and events that a client had from the log, are in the ledger alone.
        for name in ("discarded", "conflated", "left_to_log", "gone"):
            assert sum(counts[name] for counts in found.values()) <= getattr(balance, name), name

    def _note(self, packet: bytes, counts: Counter[Place]) -> None:
        if packet.startswith(self._begin):
            self.sent += 1
            place = self._place(packet)
            if place is not None and b'"replayed":true}' not in packet:
                counts[place] += 1

    def _place(self, packet: bytes) -> Place | None:
        # 42/n,["event","topic",["epoch",…],{…,"offset":7…}]; the data of a plain publish begins with null.
        _, mark, meta = packet.rpartition(b'"offset":')
        if not mark:
            return None
        return packet.split(b'"', 6)[5].decode(), int(meta.partition(b"}")[0].partition(b",")[0])
