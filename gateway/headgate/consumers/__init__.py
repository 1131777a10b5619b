"""Consumers beyond the browser, which read a namespace's log durably. Your own consumer imports from here.

A consumer is a named consumer group on the log. It handles each event of the log at least once, at its own pace. See
docs/consumers.md.
"""

from __future__ import annotations

from headgate.settings.options import option, required, text

from .base import Consumer, Context, Defer, Delivery, OutcomeUnknown, Reject, Retry

__all__ = ["Consumer", "Context", "Defer", "Delivery", "OutcomeUnknown", "Reject", "Retry", "option", "required", "text"]
