"""The subscriptions of users' browsers, in SQLite. Yours is a table beside the users."""

import json
import sqlite3

from headgate import user_of
from headgate.consumers import Delivery


def run(statement: str, *values: object) -> list[tuple[str]]:
    with sqlite3.connect("devices.sqlite3", timeout=10) as database:
        return database.execute(statement, values).fetchall()


run("CREATE TABLE IF NOT EXISTS devices (endpoint TEXT PRIMARY KEY, user TEXT, subscription TEXT)")


def add(user: str, subscription: object) -> bool:
    """Keep a browser for its last user, and the ten newest of a user. Return whether it is a subscription."""
    endpoint, text = isinstance(subscription, dict) and subscription.get("endpoint"), json.dumps(subscription)
    if not str(endpoint).startswith("https://") or len(text) > 2000:
        return False
    run("REPLACE INTO devices VALUES (?, ?, ?)", endpoint, user, text)
    newest = "SELECT endpoint FROM devices WHERE user = ? ORDER BY rowid DESC LIMIT 10"
    run(f"DELETE FROM devices WHERE user = ? AND endpoint NOT IN ({newest})", user, user)
    return True


# The consumer calls the next two: for the browsers of an event's user, and when the push service no longer knows one.
def subscriptions(delivery: Delivery) -> list[str]:
    return [text for (text,) in run("SELECT subscription FROM devices WHERE user = ?", user_of(delivery.topic))]


def gone(endpoint: str) -> None:
    run("DELETE FROM devices WHERE endpoint = ?", endpoint)
