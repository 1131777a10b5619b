"""The subscriptions of users' browsers, in SQLite. Yours is a table beside the users."""

import json
import os
import sqlite3
from contextlib import closing
from typing import Any

from headgate.consumers import Delivery
from headgate.events.topic import user_of

DATABASE = os.environ.get("DEVICES_DATABASE", "devices.sqlite3")
MOST = 10

with closing(sqlite3.connect(DATABASE)) as created:
    created.execute("CREATE TABLE IF NOT EXISTS devices (endpoint TEXT PRIMARY KEY, user TEXT, subscription TEXT)")


def run(statement: str, *values: str | int) -> list[Any]:
    with closing(sqlite3.connect(DATABASE, timeout=10)) as database, database:
        return database.execute(statement, values).fetchall()


def add(user: str, subscription: Any) -> bool:
    """Keep a browser of a user, who has MOST of them: the oldest gives way. A browser belongs to who used it last."""
    text = json.dumps(subscription)
    endpoint = subscription.get("endpoint") if isinstance(subscription, dict) else None
    if not isinstance(endpoint, str) or not endpoint.startswith("https://") or len(text) > 2000:
        return False
    run("INSERT OR REPLACE INTO devices VALUES (?, ?, ?)", endpoint, user, text)
    newest = "SELECT endpoint FROM devices WHERE user = ? ORDER BY rowid DESC LIMIT ?"
    run(f"DELETE FROM devices WHERE user = ? AND endpoint NOT IN ({newest})", user, user, MOST)
    return True


def remove(user: str, endpoint: str) -> None:
    run("DELETE FROM devices WHERE user = ? AND endpoint = ?", user, endpoint)


def subscriptions(delivery: Delivery) -> list[str]:
    """Called by the consumer."""
    return [text for (text,) in run("SELECT subscription FROM devices WHERE user = ?", user_of(delivery.topic) or "")]


def gone(endpoint: str) -> None:
    """Called by the consumer: the push service does not know this browser any more."""
    run("DELETE FROM devices WHERE endpoint = ?", endpoint)
