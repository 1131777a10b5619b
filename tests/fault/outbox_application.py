"""An application with an outbox that kills itself: `python -m tests.fault.outbox_application DATABASE FIRST COUNT STEP`.

It makes COUNT orders from FIRST on, a third of them rolled back, and ends with SIGKILL in the last one, at `row`, before it
commits, or at `committed`; at `none` never.
"""

import os
import signal
import sqlite3
import sys

from txoutbox.adapters.sqlite import SqliteStorage

TOPICS = 5


def main(database: str, first: int, count: int, step: str) -> None:
    storage = SqliteStorage(database)
    connection = sqlite3.connect(database, timeout=30, isolation_level=None)
    for number in range(first, first + count):
        is_last = number == first + count - 1
        topic = f"orders.{number % TOPICS}"
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("INSERT INTO orders (id) VALUES (?)", (number,))
        storage.insert(connection, topic, {"id": number}, key=topic)
        if is_last and step == "row":
            os.kill(os.getpid(), signal.SIGKILL)
        connection.execute("ROLLBACK" if number % 3 == 0 and not is_last else "COMMIT")
        if is_last and step == "committed":
            os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
