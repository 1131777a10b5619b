"""The state of a notification, which is one event for one user. No I/O.

In: the known facts, in any order: a gateway wrote it to a page, a page handled it, a consumer sent it, the user saw it. Out: one
state. It is derived from the facts and never stored, so an item marked as unread again has the state of its other facts.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

from headgate.runtime.machine import between


class NotificationState(Enum):
    """The fate of an event for its user.

    `SENT`: it is in the log. `DELIVERED`: a gateway wrote it to a client of the user. `HANDLED`: a page called a handler with it.
    `WITHDRAWN`: a consumer had it for the user and did not send it. `PUSHED`, `MAILED`: a consumer sent it. `SHOWN`: a page
    reported that it has shown it. `READ`: its item is read, archived, or gone.
    """

    SENT = "sent"
    DELIVERED = "delivered"
    HANDLED = "handled"
    WITHDRAWN = "withdrawn"
    PUSHED = "pushed"
    MAILED = "mailed"
    SHOWN = "shown"
    READ = "read"


_S = NotificationState
# Possible successors of each state. Any other fact concerns the past: a pushed event stays pushed when a page gets it too.
NOTIFICATION = between(
    "notification",
    {
        _S.SENT: (_S.DELIVERED, _S.HANDLED, _S.WITHDRAWN, _S.PUSHED, _S.MAILED, _S.SHOWN, _S.READ),
        _S.DELIVERED: (_S.HANDLED, _S.WITHDRAWN, _S.PUSHED, _S.MAILED, _S.SHOWN, _S.READ),
        _S.HANDLED: (_S.WITHDRAWN, _S.PUSHED, _S.MAILED, _S.SHOWN, _S.READ),
        _S.WITHDRAWN: (_S.PUSHED, _S.MAILED, _S.SHOWN, _S.READ),
        _S.PUSHED: (_S.MAILED, _S.SHOWN, _S.READ),
        _S.MAILED: (_S.SHOWN, _S.READ),
        _S.SHOWN: (_S.READ,),
        _S.READ: (),
    },
)


def state_of(facts: Iterable[NotificationState]) -> NotificationState:
    """Return the state of a notification from its known facts, in any order."""
    state = NotificationState.SENT
    for fact in facts:
        if (state, fact) in NOTIFICATION.table:
            state = NOTIFICATION.after(state, fact)
    return state


# A consumer's records of an event for its user, and their facts about the notification.
READ, SEEN, MUTED, UNWANTED = "read", "seen", "muted", "unwanted"
WITHDRAWN = (READ, SEEN, MUTED, UNWANTED)
SENT_ON = {"mail": "mailed", "push": "pushed"}
OUTCOMES = {"mailed": _S.MAILED, "pushed": _S.PUSHED, **dict.fromkeys(WITHDRAWN, _S.WITHDRAWN)}
