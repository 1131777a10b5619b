"""Posts to one place, with the pauses that it requests or needs. For webhooks and for push services.

In: requests. Out: answers, whatever their status, or `Retry`. A `Retry-After` stops all requests until its time. While the
place does not answer, one request at a time is sent there, with growing delays (pause.py).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Protocol

from headgate.consumers.base import Retry
from headgate.consumers.pause import Pause

from .answer import GONE, MAX_PAUSE_S, Answer


class Post(Protocol):
    """Posts to one place, one request at a time; implemented by `post.HttpPost`."""

    def post(self, headers: Mapping[str, str], body: bytes, path: str | None = None) -> Answer:
        """Send one request and return the answer, whatever its status. `path` None: the target's own.

        Raises:
            Retry: there is no answer.
            OutcomeUnknown: there is no answer to a request that was sent whole.
        """

    def close(self) -> None:
        """Close the connection; idempotent."""


class PacedPost:
    """Satisfies Post. `origin` is the name of the place in reasons, `now` the monotonic clock."""

    def __init__(self, post: Post, origin: str, now: Callable[[], float] = time.monotonic) -> None:
        self._post, self._origin, self._now = post, origin, now
        self._pause = Pause()
        self._paused_until_s = 0.0

    def post(self, headers: Mapping[str, str], body: bytes, path: str | None = None) -> Answer:
        """Send one request, unless there is a pause.

        Raises:
            Retry, OutcomeUnknown: as `Post`; also during a pause.
        """
        began_s = self._now()
        if self._paused_until_s > began_s:
            raise Retry(f"{self._origin} asked for a pause", self._paused_until_s - began_s)
        self._pause.check(began_s)
        try:
            answer = self._post.post(headers, body, path)
        except Retry as failed:
            raise type(failed)(failed.reason, self._pause.begin(began_s, self._now(), failed.reason).after_s) from failed
        self._pause.end()
        if answer.status >= 300 and answer.status != GONE and answer.retry_after_s is not None:
            self._paused_until_s = self._now() + min(answer.retry_after_s, MAX_PAUSE_S)
        return answer

    def close(self) -> None:
        """Close the connection; idempotent."""
        self._post.close()
