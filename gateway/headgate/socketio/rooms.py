"""The rooms of an application, in a client manager that sends by the gateway's fan-out.

The application emits events, and other processes send theirs by the client manager's queue (Redis and the like). An event to
one client goes to its session. An event to a room is framed once, for the fan-out (delivery/fanout.py), which joins consecutive
events of a room into one write.

`adopt` inserts `RoomManager` between the class of any client manager and python-socketio's `Manager`, because all call
`Manager.emit`.

An event to a room goes out in the loop's next turn, or when enough of them wait for one write. Everything else for a client
calls `FanOut.settle` first, to keep the order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import count
from typing import TYPE_CHECKING, Any, cast

from socketio import Manager

from headgate.delivery.client import Client
from headgate.delivery.fanout import BUDGET_S, MAX_SLICE_BYTES, STRIDE, Matched, Pass, slices
from headgate.delivery.matcher import Audience
from headgate.events.wire.frames import Frame
from headgate.runtime.loop import Turns, current, spawn

from .member import Member

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .server import Server

# Pending answers of clients of other processes. This process does not see those clients leave.
MAX_ASKED_ELSEWHERE = 10_000


class RoomAudience(Audience["Client"]):
    """The members of a room at the time of an emit."""

    __slots__ = ("listed", "members")

    def __init__(self, members: Iterable[Member]) -> None:
        self.members = tuple(members)
        # A member has what the fan-out needs of a client: `connection`, `direct`, `gone` and `offer`.
        self.listed = cast("tuple[Client, ...]", self.members)

    @property
    def clients(self) -> tuple[Client, ...]:
        """Return each member once."""
        return self.listed


class FanOut:
    """Events on their way to rooms, in the order of emission."""

    def __init__(self) -> None:
        self._waiting: list[Matched] = []
        self._waiting_bytes = self._start = 0
        self._pass: Pass | None = None
        self._at_work = self._writing = False

    def put(self, frame: Frame, audience: RoomAudience) -> None:
        """Send an event to the members of a room soon. Never waits."""
        self._waiting.append(Matched(frame, audience))
        self._waiting_bytes += len(frame.wire)
        if self._waiting_bytes > MAX_SLICE_BYTES:
            self.settle()
        elif not self._at_work:
            self._at_work = True
            spawn(self._work)

    def settle(self) -> None:
        """Send everything to the sockets or the queues now. Never waits."""
        while self._advance(float("inf")):
            pass

    def _work(self) -> None:
        turns = Turns()
        try:
            while self._advance(BUDGET_S):
                turns.give()
        finally:
            self._at_work = False

    def _advance(self, budget_s: float) -> bool:
        """Write for at most `budget_s`; return whether more is left."""
        if self._writing or (self._pass is None and not self._waiting):
            return False  # called while a failed write ends its client
        if self._pass is None:
            self._start += STRIDE
            slice_ = next(slices(self._waiting))
            self._pass, taken = Pass(slice_, self._start), len(slice_)
        else:
            taken = self._pass.extend(self._waiting)
        self._waiting_bytes -= sum(len(matched.frame.wire) for matched in self._waiting[:taken])
        del self._waiting[:taken]
        self._writing = True
        try:
            if self._pass.advance(budget_s):
                self._pass = None
        finally:
            self._writing = False
        return self._pass is not None or bool(self._waiting)


class RoomManager(Manager):  # type: ignore[misc]
    """See the module. It has the attributes of python-socketio's managers.

    Rooms are dictionaries of clients with their sessions, at a fifth of the cost of a bidict, and each client has a list of its
    rooms. python-socketio searches all rooms for each leaving client. 4,000 leaving at once stopped all others for 0.9 s there,
    and for 0.15 s here. It also keeps joining clients in a list.
    """

    _clients: dict[tuple[str, str], str]  # by namespace and session
    _entered: dict[tuple[str, str], set[object]]
    _audiences: dict[tuple[str, object], RoomAudience]
    _ack_ids: Iterator[int]
    _asked_elsewhere: dict[tuple[Any, int], None]

    def prepare(self) -> None:
        """Set the attributes of a manager constructed by its original class."""
        self._clients, self._entered, self._audiences = {}, {}, {}
        self._ack_ids, self._asked_elsewhere = count(1), {}

    # -- events -------------------------------------------------------------------------------------------------------

    def emit(
        self,
        event: str,
        data: object,
        namespace: str,
        room: Any = None,
        skip_sid: Any = None,
        callback: Callable[..., object] | None = None,
        to: Any = None,
        **kwargs: object,
    ) -> None:
        """Emit an event to a client, a room, several rooms, or a namespace, as python-socketio does."""
        server: Server = self.server
        room = to or room
        rooms = self.rooms.get(namespace)
        arguments = list(data) if isinstance(data, tuple) else [] if data is None else [data]
        is_ours = current() is not getattr(self, "thread", None)  # which takes events from a queue, without waiting for clients
        if rooms is None or not (is_ours or not isinstance(room, str) or room in rooms):
            if is_ours:
                server.eio_packets(self._packet(namespace, event, arguments))  # raises if it cannot be encoded
            return
        skipped = skip_sid if isinstance(skip_sid, list) else [] if skip_sid is None else [skip_sid]
        to_one = isinstance(room, str) and room in rooms.get(None, ())
        if callback is not None:
            # Each client's packet has a different id.
            for sid, eio_sid in list(self.get_participants(namespace, room)):
                if sid not in skipped:
                    ack_id = self._generate_ack_id(sid, callback)
                    packet = self._packet(namespace, event, arguments, ack_id)
                    member = server.member(eio_sid)
                    try:
                        packets = [] if member is None else server.eio_packets(packet)
                    except Exception:
                        del self.callbacks[sid][ack_id]  # no answer will come
                        raise
                    if member is None:
                        server._send_packet(eio_sid, packet)
                    else:
                        server.to_one(member, server.framed(packets), may_wait=is_ours and to_one)
            return
        packets = server.eio_packets(self._packet(namespace, event, arguments))
        if to_one and not skipped and (member := server.member(rooms[None][room])) is not None:
            server.to_one(member, server.framed(packets), may_wait=is_ours)
            return
        audience = self._audience(namespace, room, skipped, packets)
        if audience.members:
            server.to_room(server.framed(packets), audience, namespace, may_wait=is_ours)

    def _packet(self, namespace: str, event: str, arguments: list[object], id_: int | None = None) -> Any:
        return self.server.packet_class(_EVENT, namespace=namespace, data=[event, *arguments], id=id_)

    def _audience(self, namespace: str, room: Any, skipped: list[str], packets: list[Any]) -> RoomAudience:
        """Return the sessions for an event. Returns the same object until the room changes."""
        several = hasattr(room, "__len__") and not isinstance(room, str)
        if several or skipped:
            return self._gathered(
                (eio_sid for sid, eio_sid in self.get_participants(namespace, room) if sid not in skipped), packets
            )
        key = (namespace, room)
        if (audience := self._audiences.get(key)) is None:
            members = self.rooms[namespace].get(room, {})
            audience = self._gathered(members.values(), packets)
            if members and len(audience.members) == len(members):
                self._audiences[key] = audience
        return audience

    def _gathered(self, eio_sids: Iterable[str], packets: list[Any]) -> RoomAudience:
        """Return the members of these sessions. Test clients have none and get the packets from python-socketio."""
        server: Server = self.server
        members: list[Member] = []
        for eio_sid in list(eio_sids):
            if (member := server.member(eio_sid)) is not None:
                members.append(member)
            else:
                for packet in packets:
                    server._send_eio_packet(eio_sid, packet)
        return RoomAudience(members)

    # -- answers ------------------------------------------------------------------------------------------------------

    def _generate_ack_id(self, sid: Any, callback: Callable[..., object]) -> int:
        """Return the id for an event, with `callback` for the answer. A client of this process takes its callbacks with it."""
        if any(sid in clients.get(None, ()) for clients in self.rooms.values()):
            ack_id: int = super()._generate_ack_id(sid, callback)
            return ack_id
        # One counter for all clients, so that a late answer never matches another client's event.
        ack_id = next(self._ack_ids)
        self.callbacks.setdefault(sid, {})[ack_id] = callback
        self._asked_elsewhere[sid, ack_id] = None
        if len(self._asked_elsewhere) > MAX_ASKED_ELSEWHERE:
            self._forget_asked(*next(iter(self._asked_elsewhere)))
        return ack_id

    def trigger_callback(self, sid: Any, id: int, data: Any) -> None:
        """Give an answer to its callback. python-socketio's method keeps an entry for each client for ever."""
        try:
            super().trigger_callback(sid, id, data)
        finally:
            if (sid, id) in self._asked_elsewhere:
                self._forget_asked(sid, id)

    def _forget_asked(self, sid: Any, ack_id: int) -> None:
        del self._asked_elsewhere[sid, ack_id]
        waiting = self.callbacks.get(sid, {})
        waiting.pop(ack_id, None)
        if not waiting:
            self.callbacks.pop(sid, None)

    # -- rooms --------------------------------------------------------------------------------------------------------

    def get_participants(self, namespace: str, room: Any) -> list[tuple[str, str]]:
        """Return the clients of a room, or of several rooms, with their sessions."""
        rooms: Mapping[object, dict[str, str]] = self.rooms.get(namespace, {})
        clients: dict[str, str] = {}
        for each in room if hasattr(room, "__len__") and not isinstance(room, str) else (room,):
            clients |= rooms.get(each, {})
        return list(clients.items())

    def pre_connect(self, eio_sid: str, namespace: str) -> str | None:
        """Add a session's client before its connect handler; return its id, or None for a second client."""
        if (namespace, eio_sid) in self._clients:
            return None
        sid: str = self.server.eio.generate_id()
        self.basic_enter_room(sid, namespace, None, eio_sid=eio_sid)
        self.pending_connect.setdefault(namespace, set()).add(sid)
        self.basic_enter_room(sid, namespace, sid, eio_sid=eio_sid)
        return sid

    def sid_from_eio_sid(self, eio_sid: str, namespace: str) -> str | None:
        """Return the client of a session in a namespace, if any."""
        return self._clients.get((namespace, eio_sid))

    def connect(self, sid: str, namespace: str) -> str:
        """Accept a client after its connect handler, or at once by its session id, as python-socketio does."""
        if not self.is_pre_connected(sid, namespace):
            sid = self.pre_connect(sid, namespace) or sid
        if (pending := self.pending_connect.get(namespace)) is not None:
            pending.discard(sid)
            if not pending:
                del self.pending_connect[namespace]
        return sid

    def basic_enter_room(self, sid: str, namespace: str, room: Any, eio_sid: str | None = None) -> None:
        """Enter a room, as python-socketio does."""
        if eio_sid is None and namespace not in self.rooms:
            raise ValueError("sid is not connected to requested namespace")
        if sid != room and self.is_sid_room(namespace, room):
            raise ValueError("cannot enter a sid room")
        rooms: dict[object, dict[str, str]] = self.rooms.setdefault(namespace, {})
        session = rooms[None][sid] if eio_sid is None else eio_sid  # raises for a client that has left, before creating a room
        rooms.setdefault(room, {})[sid] = session
        if room is None:
            self._clients[namespace, session] = sid
        elif sid != room:
            self._entered.setdefault((namespace, sid), set()).add(room)
        self._audiences.pop((namespace, room), None)

    def basic_leave_room(self, sid: str, namespace: str, room: Any) -> None:
        """Leave a room, as python-socketio does."""
        if room is None:
            self._clients.pop((namespace, self.rooms.get(namespace, {}).get(None, {}).get(sid)), None)
        super().basic_leave_room(sid, namespace, room)
        self._audiences.pop((namespace, room), None)
        if (entered := self._entered.get((namespace, sid))) is not None:
            entered.discard(room)
            if not entered:
                del self._entered[namespace, sid]

    def basic_disconnect(self, sid: str, namespace: str, **kwargs: object) -> None:
        """Leave all rooms. python-socketio's method searches all rooms."""
        if namespace not in self.rooms:
            return
        for room in (*self._entered.get((namespace, sid), ()), sid, None):
            if sid in self.rooms.get(namespace, {}).get(room, ()):
                self.basic_leave_room(sid, namespace, room)
        self.callbacks.pop(sid, None)
        for pending in (self.pending_connect, self.pending_disconnect):
            if sid in pending.get(namespace, ()):
                pending[namespace].remove(sid)
                if not pending[namespace]:
                    del pending[namespace]

    def get_rooms(self, sid: str, namespace: str) -> list[Any]:
        """Return the rooms of a client, including its own."""
        own = [sid] if sid in self.rooms.get(namespace, {}).get(sid, ()) else []
        return own + list(self._entered.get((namespace, sid), ()))


_EVENT = 2
_adopting: dict[type[Manager], type[RoomManager]] = {}


def adopt(manager: object) -> None:
    """Make a client manager of any class based on python-socketio's send by our fan-out. Others stay unchanged."""
    if isinstance(manager, Manager) and not isinstance(manager, RoomManager):
        manager.__class__ = adopting(type(manager))
        cast(RoomManager, manager).prepare()


def adopting(kind: type[Manager]) -> type[RoomManager]:
    """Return a class of client managers with `RoomManager` between it and python-socketio's `Manager`."""
    if kind not in _adopting:
        bases = (RoomManager,) if kind is Manager else (kind, RoomManager)
        _adopting[kind] = type(kind.__name__, bases, {"__module__": kind.__module__})
    return _adopting[kind]
