"""The state of a notification, which is one event for one user. No I/O.

In: the known facts in any order, such as that a gateway wrote it to a page, a page handled it, a consumer sent it, or the user
saw it. Out: one state. It is derived from the facts and never stored, so an item marked as unread again has the state of its
other facts.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum


class NotificationState(Enum):
    """The fate of an event for its user, from the earliest to the latest. A pushed event stays pushed if a page gets it, too.

    `SENT` means that it is in the log, `DELIVERED` that a gateway wrote it to a client of the user, `HANDLED` that a page
    called a handler with it, `WITHDRAWN` that a consumer did not send it to the user, `PUSHED` and `MAILED` that a consumer
    sent it, `SHOWN` that a page reported showing it, and `READ` that its item is read or archived.
    """

    SENT = "sent"
    DELIVERED = "delivered"
    HANDLED = "handled"
    WITHDRAWN = "withdrawn"
    PUSHED = "pushed"
    MAILED = "mailed"
    SHOWN = "shown"
    READ = "read"


def state_of(facts: Iterable[NotificationState]) -> NotificationState:
    """Return the latest of the known facts, which may be in any order."""
    return max(facts, key=list(NotificationState).index, default=NotificationState.SENT)


# A consumer's records of an event for its user, and their facts about the notification.
READ, SEEN, MUTED, UNWANTED = "read", "seen", "muted", "unwanted"
WITHDRAWN = (READ, SEEN, MUTED, UNWANTED)
SENT_ON = {"mail": "mailed", "push": "pushed"}
OUTCOMES = {"mailed": NotificationState.MAILED, "pushed": NotificationState.PUSHED}
OUTCOMES |= dict.fromkeys(WITHDRAWN, NotificationState.WITHDRAWN)
