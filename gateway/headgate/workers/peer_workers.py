"""Makes the workers of one process manager look like one gateway to their clients.

`health` (all_health.py) and `exposition` (counted.py) cover all workers, with one deadline.

`hand_over` gives a connection and the bytes already read to the living worker that owns a session. A session id starts with two
letters for the worker's row, followed by 20 random letters. It is not proof of anything. It selects a row of this machine's
scoreboard and contains no address.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import structlog

from headgate.runtime.log_throttle import LogThrottle
from headgate.runtime.loop import spawn
from headgate.runtime.metrics import Family, exposition_of, families
from headgate.runtime.operator_lines import complain
from headgate.workers import counted, worker_sockets
from headgate.workers.all_health import joined
from headgate.workers.scoreboard import Row, Scoreboard, State

WORKER_UP = "headgate_worker_up"
# A row is written as two letters out of these 32.
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdef"
_OWNER = re.compile(rb"[?&]sid=([A-Za-f]{2})[A-Za-z0-9_-]{20}[& ]")

log = structlog.get_logger("headgate.workers")


class PeerWorkers:
    """See the module.

    Args:
        own: this worker's row of the scoreboard.
        ready: returns this worker's health.
        adopt: takes the descriptor of a connection accepted by another worker, and the bytes already read.
    """

    def __init__(
        self,
        scoreboard: Scoreboard,
        folder: Path,
        own: int,
        ready: Callable[[], Mapping[str, Any]],
        adopt: Callable[[int, bytes], None],
    ) -> None:
        self._scoreboard, self._folder, self._own, self._ready = scoreboard, folder, own, ready
        self._log_throttle = LogThrottle()
        self._totals = counted.Totals()  # last read by this worker
        self._socket = worker_sockets.WorkerSocket(self._path(scoreboard.row(own)), self._answer, adopt)

    def close(self) -> None:
        """Store the counts of this worker for the others, and stop answering. Idempotent."""
        self._keep({self._scoreboard.row(self._own).age: families()}, self._scoreboard.rows())
        self._socket.close()

    def health(self) -> dict[str, Any]:
        """Return the worst health of all workers, and each one's. Waits at most ANSWER_S."""
        rows = self._scoreboard.rows()
        answers = {
            age: None if answer is None else msgspec.json.decode(answer)
            for age, answer in self._ask(rows, worker_sockets.HEALTH).items()
        }
        return joined(rows, answers)

    def exposition(self) -> tuple[str, bytes]:
        """Return the content type and body of all workers' metrics for Prometheus. Waits at most ANSWER_S."""
        rows = self._scoreboard.rows()
        answers = {
            age: msgspec.json.decode(answer, type=list[Family])
            for age, answer in self._ask(rows, worker_sockets.METRICS).items()
            if answer is not None
        }
        totals = self._keep(answers, rows)
        whole = counted.exposed(answers, {row.age: row.number for row in rows}, totals)
        up = [(WORKER_UP, {counted.WORKER_LABEL: str(row.number)}, float(row.age in answers)) for row in rows]
        text = "1 for a worker that answered this scrape, 0 for one that did not."
        return exposition_of([*(each for each in whole if each[0] != WORKER_UP), (WORKER_UP, "gauge", text, up)])

    def hand_over(self, request: bytes, descriptor: int) -> bool:
        """Hand a connection to the worker that owns the session of its next request; return whether it took it.

        Returns False for a request without a session or with one of ours. The caller closes the descriptor. Switches greenlets.
        """
        index = owner_of(request)
        if index is None or index == self._own:
            return False
        try:
            row = self._scoreboard.row(index)
            if row.state in (State.FREE, State.BOOTING):
                return False
            return (
                worker_sockets.ask(self._path(row), worker_sockets.CONNECTION, request, descriptor, worker_sockets.HAND_OVER_S)
                == worker_sockets.TAKEN
            )
        except IndexError:
            return False
        except OSError as error:
            # Throttled, because a client may repeat the id of an ended owner.
            if (left_out := self._log_throttle.due("hand over")) is not None:
                log.warning("a connection could not be handed over", to=index + 1, reason=str(error), left_out=left_out)
            return False

    def _path(self, row: Row) -> Path:
        return self._folder / f"{row.age}.sock"

    def _ask(self, rows: list[Row], kind: bytes) -> dict[int, bytes | None]:
        """Return the answers of serving and leaving workers, by age; None for a worker without an answer in time."""
        answers: dict[int, bytes | None] = {}

        def ask(row: Row) -> None:
            try:
                answers[row.age] = worker_sockets.ask(self._path(row), kind) or None
            except OSError:
                answers[row.age] = None

        asked = [row for row in rows if row.state is not State.BOOTING]
        greenlets = [spawn(ask, row) for row in asked if row.slot != self._own]
        answers |= {row.age: self._answer(kind) for row in asked if row.slot == self._own}
        for greenlet in greenlets:
            greenlet.join()
        return answers

    def _answer(self, kind: bytes) -> bytes:
        if kind == worker_sockets.HEALTH:
            return msgspec.json.encode(self._ready())
        if kind == worker_sockets.METRICS:
            return msgspec.json.encode(families())
        return b""

    def _keep(self, seen: Mapping[int, list[Family]], rows: list[Row]) -> counted.Totals:
        living = [row.age for row in rows]
        try:
            self._totals = counted.keep(self._folder, seen, living)
        except OSError as error:
            complain(f"the counts of ended workers are not kept: {error.strerror}")
            self._totals = counted.remember(self._totals, seen, living)  # otherwise the sums would decrease for this scrape
        return self._totals


def letters_of(row: int) -> str:
    """Return the prefix of a worker's session ids."""
    return _LETTERS[row // len(_LETTERS)] + _LETTERS[row % len(_LETTERS)]


def owner_of(request: bytes) -> int | None:
    """Return the row in the session id of a request, from its first line; None without a session id."""
    line, _, _ = request.partition(b"\n")
    if (match := _OWNER.search(line)) is None:
        return None
    letters = match[1].decode()
    return _LETTERS.index(letters[0]) * len(_LETTERS) + _LETTERS.index(letters[1])
