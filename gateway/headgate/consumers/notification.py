"""The state of a notification, which is one event for one user. No I/O.

In: the known facts in any order, such as that a gateway wrote it to a page, a page handled it, a consumer sent it, or the user
saw it. Out: one state. It is derived from the facts and never stored, so an item marked as unread again has the state of its
other facts.
"""

from __future__ import annotations

from collections.abc import Iterable

# From the earliest to the latest fact. It is in the log, a gateway wrote it to a client of the user, a page called a handler with
# it, a consumer did not send it to the user, or pushed or mailed it, a page reported showing it, its item is read or archived. A
# pushed event stays pushed if a page gets it, too.
STATES = ("sent", "delivered", "handled", "withdrawn", "pushed", "mailed", "shown", "read")


def state_of(facts: Iterable[str]) -> str:
    """Return the latest of the known facts, which may be in any order."""
    return max(facts, key=STATES.index, default="sent")


# A consumer's records of an event for its user, and their facts about the notification.
READ, SEEN, MUTED, UNWANTED = "read", "seen", "muted", "unwanted"
WITHDRAWN = (READ, SEEN, MUTED, UNWANTED)
SENT_ON = {"mail": "mailed", "push": "pushed"}
OUTCOMES = {"mailed": "mailed", "pushed": "pushed"} | dict.fromkeys(WITHDRAWN, "withdrawn")
