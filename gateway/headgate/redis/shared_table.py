"""The shared table: the values that the gateway processes of a database share through Redis, under a lease.

In: the row of this process (loads.py); for each use, such as counts of clients, the changed fields. Out: the rows of all live
processes; for each use, the fields of the others; whether another gateway serves these namespaces (registry.py).

In Redis: the hash LOADS with a row for each process, and for each use of each process the hash `table_key(kind, process)`. Such
a hash ends LEASE_S after the last write of its process. The row has its version, so the others read it only after a change, and
in full now and then.

A turn takes one greenlet and one connection. It reads the time, writes and reads rows in a pipeline, and reads changed hashes
in another. A full turn comes every RENEW_EVERY_S. A use that hurries gets a turn soon, at most one each GAP_S.

Rules. 1. An unreachable Redis causes one line in the log, and each process keeps its share. 2. A process compares its row in
Redis with the row that it wrote. If they differ (a flush, an ended lease, a failover that lost the last writes), it writes
everything again, and every use learns that writes were lost. 3. "No other gateway lives" is reported only from a registry
without loss for a lease.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from time import monotonic, time
from typing import Protocol

import msgspec
import structlog

from headgate.errors import BusUnavailable, HeadgateError
from headgate.runtime.loop import Lock, Signal
from headgate.runtime.periodic import PeriodicTask

from .client import Client, call, call_all
from .connections import Command
from .functions import write_all
from .keys import LOADS, table_key
from .loads import LEASE_S, LEFT_S, Load, LoadTable, clock, process_name, read_rows
from .registry import leave, registering

log = structlog.get_logger("headgate.shared_table")

RENEW_EVERY_S, GAP_S = LEASE_S / 3, 0.25
# One full turn in this many, about one a minute, tidies up and reads whole copies.
TIDY_EVERY = 12
# The highest count of processes on one Redis.
MAX_PROCESSES = 1000
# Fields in one command.
_STRIDE = 500

Fields = Mapping[str, bytes | None]
# A use that reads nothing now.
NOTHING: Sequence[str] = ()


class Use(Protocol):
    """One kind of shared values. No method waits."""

    kind: str

    def fields(self, *, whole_row: bool) -> Mapping[str, str | bytes | int | None]:
        """Return the changed fields (None: removed), or all fields if `whole_row`."""

    def wanted_fields(self) -> Sequence[str] | None:
        """Return the names of the fields to read from the others, or None for all. Without `receive` in this turn: NOTHING."""

    def receive(self, others: Mapping[str, Fields], *, lost: bool) -> None:
        """Take the fields of each other live process. `lost`: Redis had lost writes of this process."""


class SharedTable:
    """Shares values with the other processes. `id` is `<name>:<random>`. `tried` is set after the first turn, whatever its
    outcome. `fault` is the message of the error that ended the last turn, or "".

    Set `own` (the content of the row), `on_rows` (called with the rows after each full turn) and `on_lost` (called when Redis has
    lost writes of this process; must not wait) before `start`.

    Args:
        name: returns the name of this process for people. Called in the process that calls `start`.
        now_s, wall_s: the monotonic clock, and this machine's wall clock.
    """

    def __init__(
        self,
        client: Client,
        namespaces: Iterable[str],
        name: Callable[[], str] = process_name,
        now_s: Callable[[], float] = monotonic,
        wall_s: Callable[[], float] = time,
    ) -> None:
        self._client, self._namespaces = client, tuple(namespaces)
        self._name, self._now_s, self._wall_s = name, now_s, wall_s
        self.id = _new_id(name())
        self.own: Callable[[], Load] = lambda: Load(0, 0, "")
        self.on_rows: Callable[[LoadTable], object] = lambda rows: None
        self.on_lost: Callable[[], object] = lambda: None
        self.tried = Signal()
        self.fault = ""
        self._turned = Signal()  # set after the next turn that succeeds
        self._is_unreachable = False  # in the last turn
        self._uses: list[Use] = []
        self._hurried: list[Use] = []
        self._versions: dict[str, int] = {}
        self._filled: set[str] = set()  # kinds with a hash in Redis
        self._copies: dict[tuple[str, str], tuple[int, Fields]] = {}
        self._row: bytes | None = None  # as last written; None: unknown
        self._written_s: int | None = None  # by Redis' clock
        self._since_s = 0
        self._whole_row, self._retired = True, False
        self._full_turns, self._full_turn_at_s = 0, 0.0
        self._lost_at_s = -math.inf
        self._lock = Lock()
        self._task = PeriodicTask(self._step, lambda: log.exception("shared table failed"), RENEW_EVERY_S, GAP_S)

    def add(self, use: Use) -> Callable[[], None]:
        """Add a use. Return a function that hurries it, which never waits."""
        self._uses.append(use)

        def hurry() -> None:
            if use not in self._hurried:
                self._hurried.append(use)
            self._task.hurry()

        return hurry

    @property
    def begun(self) -> bool:
        """Whether `start` was called."""
        return self._task.begun

    def start(self) -> None:
        """Begin. Idempotent."""
        if not self._task.begun:
            self.id = _new_id(self._name())  # of this process, even if its parent made the gateway before a fork
            self._task.start()

    def renew(self) -> None:
        """Request a full turn, because Redis may have lost everything. Never waits."""
        self._full_turn_at_s = 0.0
        self._task.hurry()

    def next_turn(self, within_s: float) -> bool:
        """Wait for the end of a turn that succeeds, at most this long; return whether there was one."""
        return self._task.begun and self._turned.wait(within_s)

    def retire(self) -> bool:
        """Stop serving. Return whether certainly no other process serves any of these namespaces. Waits for Redis.

        This process stays in the table until `close`. Only the first call has an effect.
        """
        alone = self._leave_registry()
        self.renew()
        return alone

    def close(self) -> None:
        """Remove this process, unless Redis was just unreachable. Idempotent. Waits for Redis."""
        was_open = self._task.close()
        self._leave_registry()
        if was_open and not self._is_unreachable:
            try:
                keys = [table_key(use.kind, self.id) for use in self._uses]
                call_all(self._client, [("HDEL", LOADS, self.id), *(("UNLINK", key) for key in keys)])
            except HeadgateError:
                log.debug("shared table not left")  # it ends with the lease

    def turn(self, uses: Sequence[Use] | None = None) -> None:
        """Write and read some uses, or everything. Logs a fault once. Waits for Redis."""
        with self._lock:
            try:
                self._turn(self._uses if uses is None or self._whole_row else uses, is_full=uses is None)
            except HeadgateError as error:
                self._log_once(error)
                self._is_unreachable = isinstance(error, BusUnavailable)
                self._row, self._whole_row = None, True  # the write may have succeeded
            except Exception:
                self._row, self._whole_row = None, True
                raise
            else:
                self.fault, self._is_unreachable = "", False
                turned, self._turned = self._turned, Signal()
                turned.set()
            finally:
                self.tried.set()

    def _leave_registry(self) -> bool:
        """Remove this process from the registry. Return whether certainly no other one is there."""
        if self._retired or not self._task.begun:
            return False
        with self._lock:
            self._retired = True
            if self._is_unreachable:  # the process would wait for a command after the other, and its id ends with the lease
                return False
            try:
                alone = leave(self._client, self.id, self._namespaces)
            except HeadgateError as error:
                self._log_once(error)
                return False
        return alone and self._now_s() - self._lost_at_s > LEASE_S

    def _step(self) -> float:
        uses, self._hurried = self._hurried, []
        is_full = self._now_s() >= self._full_turn_at_s
        if is_full:
            self._full_turn_at_s = self._now_s() + RENEW_EVERY_S
        self.turn(None if is_full else uses)
        return self._full_turn_at_s - self._now_s()

    def _turn(self, uses: Sequence[Use], *, is_full: bool) -> None:
        redis_s, skew_s = clock(self._client, self._wall_s)
        now_s, before_s = int(redis_s), self._written_s
        has_ended = before_s is not None and now_s - before_s >= LEASE_S
        whole_row = self._whole_row = self._whole_row or has_ended
        whole = is_full and self._full_turns % TIDY_EVERY == 0
        commands: list[Command] = []
        for use in self._uses if whole_row else uses:
            commands += self._writing(use, whole_row=whole_row)
        only_writes = not (is_full or whole_row) and all(use.wanted_fields() is NOTHING for use in uses)
        commands.insert(0, ("HMGET", LOADS, self.id) if only_writes else ("HGETALL", LOADS))
        own, row = self._own(now_s, skew_s)
        commands.append(("HSET", LOADS, self.id, row))
        if whole or whole_row:
            commands.append(("EXPIRE", LOADS, LEFT_S))
        if is_full and not self._retired:
            commands += registering(now_s, self.id, self._namespaces, tidy=whole or whole_row)
        reply = write_all(self._client, commands)[0]
        if only_writes:
            if reply == [self._row]:
                self._row, self._written_s = row, now_s
                return
            reply = call(self._client, "HGETALL", LOADS)
        rows = read_rows(now_s, reply, own.server)
        is_own = self.id in rows.fields and self._row in (None, rows.fields[self.id]) and not only_writes
        lost = before_s is not None and (has_ended or not is_own)
        self._row, self._written_s, self._since_s = row, now_s, own.since_s
        living = {each: other for each, other in rows.living.items() if each != self.id}
        others = dict(sorted(living.items())[: MAX_PROCESSES - 1])
        receiving = self._uses if lost or whole_row else uses
        copies = self._read(receiving, others, rows.gone, whole=whole or lost)
        for use in receiving:
            use.receive(copies[use.kind], lost=lost)
        if is_full:
            self._full_turns += 1
            self.on_rows(rows._replace(loads={**rows.loads, **({} if self._retired else {self.id: own})}))
        if lost:
            self._lost_at_s, self._full_turns = self._now_s(), 0
            log.info("shared table written again", namespaces=",".join(self._namespaces))
            self.on_lost()
        self._whole_row = lost and not whole_row
        if self._whole_row or (lost and not is_full):
            self.renew()

    def _writing(self, use: Use, *, whole_row: bool) -> list[Command]:
        """Return the commands that write a use and renew its lease."""
        key, fields = table_key(use.kind, self.id), use.fields(whole_row=whole_row)
        if fields or whole_row:
            self._versions[use.kind] = self._versions.get(use.kind, 0) + 1
        there = [(name, value) for name, value in fields.items() if value is not None]
        gone = [name for name, value in fields.items() if value is None]
        commands: list[Command] = [("UNLINK", key)] if whole_row else []
        for first in range(0, len(there), _STRIDE):
            commands.append(("HSET", key, *(part for pair in there[first : first + _STRIDE] for part in pair)))
        for first in range(0, len(gone), _STRIDE):
            commands.append(("HDEL", key, *gone[first : first + _STRIDE]))
        if there or (not whole_row and use.kind in self._filled):
            self._filled.add(use.kind)
            commands.append(("EXPIRE", key, LEASE_S))
        elif whole_row:
            self._filled.discard(use.kind)
        return commands

    def _own(self, now_s: int, skew_s: float) -> tuple[Load, bytes]:
        own = msgspec.structs.replace(
            self.own(),
            since_s=self._since_s or now_s,
            serves="" if self._retired else ",".join(sorted(self._namespaces)),
            at_s=now_s,
            name=self._name(),
            skew_ms=round(skew_s * 1000),
            versions=dict(self._versions),
        )
        return own, msgspec.json.encode(own)

    def _read(
        self, uses: Sequence[Use], others: Mapping[str, Load], gone: Sequence[str], *, whole: bool
    ) -> dict[str, dict[str, Fields]]:
        """Return the fields of the others, by kind and process, and remove the rows of dead processes."""
        commands: list[Command] = [("HDEL", LOADS, *gone)] if gone else []
        reading: list[tuple[str, str, Sequence[str] | None]] = []
        copies: dict[str, dict[str, Fields]] = {use.kind: {key: {} for key in others} for use in uses}
        for use in uses:
            wanted = use.wanted_fields()
            for process, row in others.items():
                version = row.versions.get(use.kind, 0)
                known, fields = self._copies.get((use.kind, process), (0, {}))
                if wanted is None and version == known and not whole:
                    copies[use.kind][process] = fields
                elif version and (wanted is None or wanted):
                    key = table_key(use.kind, process)
                    commands.append(("HGETALL", key) if wanted is None else ("HMGET", key, *wanted))
                    reading.append((use.kind, process, wanted))
        replies = call_all(self._client, commands)[1 if gone else 0 :] if commands else []
        self._copies = {each: copy for each, copy in self._copies.items() if each[1] in others}
        for (kind, process, wanted), reply in zip(reading, replies, strict=True):
            if wanted is None:
                fields = {name.decode("utf-8", "replace"): value for name, value in reply.items()}
                self._copies[kind, process] = (others[process].versions[kind], fields)
            else:
                fields = dict(zip(wanted, reply, strict=True))
            copies[kind][process] = fields
        return copies

    def _log_once(self, error: HeadgateError) -> None:
        """Log a fault, unless it is the same as the one before."""
        if error.message != self.fault:
            self.fault = error.message
            log.warning("shared table out of reach", error=error.message, effect="each process keeps its share of limits")


def _new_id(name: str) -> str:
    return f"{name}:{secrets.token_hex(4)}"
