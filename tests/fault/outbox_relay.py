"""The relay of examples/outbox as a process that kills itself: `python -m tests.fault.outbox_relay STEP COUNT`.

It ends with SIGKILL at the COUNT-th time that it comes to a step: `claimed`, `publishing`, `published` or `acknowledged`; at
`none` never. Its leases are short, so that the next one takes over soon.
"""

import asyncio
import os
import runpy
import signal
import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from txoutbox import Hooks, OutboxMessage, Relay
from txoutbox.adapters.sqlite import SqliteStorage
from txoutbox.backoff import Backoff

RELAY = Path(__file__).resolve().parents[2] / "examples" / "outbox" / "relay.py"
LEASE = timedelta(seconds=0.3)


class Killing(Hooks):
    """Counts the times at a step down, and ends the process at the last."""

    def __init__(self, step: str, left: int) -> None:
        self._step, self._left = step, left

    def at(self, step: str) -> None:
        self._left -= step == self._step
        if not self._left:
            os.kill(os.getpid(), signal.SIGKILL)

    async def on_claimed(self, messages: Any) -> None:
        if messages:
            self.at("claimed")

    async def on_published(self, message: OutboxMessage) -> None:
        self.at("published")

    async def on_round(self, result: Any, duration: float) -> None:
        if result.published:
            self.at("acknowledged")


async def main(database: str, step: str, count: int) -> None:
    example = runpy.run_path(str(RELAY))
    killing = Killing(step, count)

    async def publish(row: OutboxMessage) -> None:
        killing.at("publishing")
        await example["publish"](row)

    backoff = Backoff(base=LEASE / 3, maximum=LEASE)
    config = replace(example["CONFIG"], lease=LEASE, publish_timeout=None, backoff=backoff, poll_max=0.05, batch_size=20)
    await Relay(SqliteStorage(database), publish, config=config, hooks=killing).run()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
