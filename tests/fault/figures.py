"""The table of docs/faults.md: measured figures only, written by a full run (`make faults`)."""

import datetime
import os
import platform
from pathlib import Path
from typing import Any

from tests.fault.site import Load

PAGE = Path("docs", "faults.md")
_HEAD = """# The cost of faults: measured

`make faults` (`pytest -m nightly tests/fault`) writes this page; do not edit it. The load is two gateways, which reach one
Redis through a TCP proxy of our own each, 1,000 clients with five topics each, and 50 events of 1 KB per second. Clients,
proxies, publisher and checker run on the same machine as the gateways. At the end the checker (`tests/fault/checker.py`)
compares the receipts of publishers, the events that every client saw, and the log of Redis. In every row, no event of that log
was lost, doubled, reordered or unreported, and every event that a client received and Redis lost was reported to it. Otherwise
the run fails and does not write this page.

The trials of F25 and F26 lose the end of the log in five ways: a crash, restored files, older data loaded into a running
server, the promotion of a lagging replica, and an old primary that lives on at the same address. The site has two gateways, 16
to 28 clients, two publishers that try again every 50 ms, and two processes of a consumer.

F41 mixes all faults at random, at an address that moves, behind three Sentinels with two replicas, and on a Cluster of three
primaries with a replica each. 200 browsers of every policy come, go, stop reading, resume all at once, change their
subscriptions, and have 10,000 patterns that no other client has; two pages use Headgate's own client. The trial kills gateways,
publishers, consumers and servers, pauses a server or a Sentinel for 30 s, breaks connections, sends bursts of 1 MB events,
loses the end of the log, moves a primary (planned, and twice in a row), moves a slot, and flushes or replaces the function
library. Each browser, page, publisher and consumer has an account (`tests/fault/checker.py`, `tests/fault/accounts.py`). Every
receipt is in the log, or `check` says that it was rolled back and a fault that loses events happened at the time of its publish.
A consumer has done all events of the log, and none of them again unless a fault lay between. `HEADGATE_SEED` repeats the plan of
a row's faults, not its timing.

F43 simulates 1,000 people who read their inboxes, with three tabs on each of two devices. All tabs are pages with Headgate's
own inbox, and Redis has two replicas and three Sentinels. Tabs lose their connection, gateways, consumers and the primary are
killed, and the primary moves. Every tab must end with every item, and with the counts and states of Redis. `HEADGATE_SEED`
repeats faults and actions, not their timing.

F33 and F34 move the primary under load while the old one lives on.

F44 makes two faults at once: a gateway is killed, drains or stands still, or all browsers come back, while a fault of the mixture
hits Redis, or Redis is emptied. Each browser has an account after each pair.

"""


class Figures:
    """Collects rows: fault, measurement, measured, goal."""

    def __init__(self, rows: dict[str, list[list[Any]]], load: Load) -> None:
        self._rows, self._load = rows, load

    def __call__(self, fault: str, what: str, value: float, unit: str, goal: str, seed: int | None = None) -> None:
        """Write one figure down, and print it; with the seed that repeats its faults, if they were random."""
        measured = f"{value:,.0f} {unit}" if float(value).is_integer() else f"{value:,.2f} {unit}"
        print(f"{fault} ({self._load.name}): {what}: {measured} (goal {goal})")
        self._rows.setdefault(self._load.name, []).append([fault, what, measured.strip(), goal, seed])

    @staticmethod
    def write(rows: dict[str, list[list[Any]]], root: Path) -> None:
        """Write the results of a full run to docs/. A figure that this run did not measure stays as it was."""
        today = datetime.date.today().isoformat()
        measured = [[*row, today if seed is None else f"{today}, seed {seed}"] for *row, seed in rows.get("full", [])]
        if not measured:
            return
        page = root / PAGE
        before = [line.strip("| ").split(" | ") for line in page.read_text().splitlines() if line.startswith("| F")]
        # Rows of one seed are of one run, so none of an earlier run is left among them.
        runs = {(fault, what.partition(":")[0]) for fault, what, *_, seed in rows["full"] if seed is not None}
        before = [row for row in before if (row[0], row[1].partition(":")[0]) not in runs]
        all_rows = list({(row[0], row[1]): row for row in [*before, *measured]}.values())
        all_rows.sort(key=lambda row: int(row[0][1:]))
        machine = f"{os.cpu_count()} cores, {platform.system()} {platform.release()}, Python {platform.python_version()}"
        table = "\n".join(f"| {' | '.join(row)} |" for row in all_rows)
        head = "| fault | measurement | measured | goal | on |\n|---|---|---|---|---|\n"
        page.write_text(f"{_HEAD}The machine: {machine}.\n\n{head}{table}\n")
