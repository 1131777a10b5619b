"""The state of a notification: what has become of one event for one user. No I/O.

In: the known facts, in any order: a gateway wrote it to a page, a page handled it, a consumer sent it, the user saw it. Out: one
state. It is derived from the facts and stored nowhere: an item that is marked as unread again has the state that the other facts
give it.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

from headgate.runtime.machine import between


class NotificationState(Enum):
    """What has become of an event for its user.

    `SENT`: it is in the log. `DELIVERED`: a gateway wrote it to a client of the user. `HANDLED`: a page's handler was called with
    it. `WITHDRAWN`: a consumer had it for the user and did not send it. `PUSHED`, `MAILED`: a consumer sent it. `SHOWN`: a page
    reported that it has shown it. `READ`: its item is read, archived, or no longer there.
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
# What may follow each state. A fact that does not is one about the past: what is pushed stays pushed when a page gets it too.
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
    """Return the state of a notification of which these facts are known, in any order."""
    state = NotificationState.SENT
    for fact in facts:
        if (state, fact) in NOTIFICATION.table:
            state = NOTIFICATION.after(state, fact)
    return state


# What a consumer records that it has done with an event for its user, and what this is to the notification.
READ, SEEN, MUTED, UNWANTED = "read", "seen", "muted", "unwanted"
WITHDRAWN = (READ, SEEN, MUTED, UNWANTED)
SENT_ON = {"mail": "mailed", "push": "pushed"}
OUTCOMES = {"mailed": _S.MAILED, "pushed": _S.PUSHED, **dict.fromkeys(WITHDRAWN, _S.WITHDRAWN)}
