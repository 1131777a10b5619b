"""An email consumer as tests make one: options as in TOML, a state in memory unless another is given, and deliveries for it."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from headgate.consumers.base import Context, Delivery, State
from headgate.consumers.email.consumer import Email
from headgate.consumers.email.options import EmailOptions
from headgate.options import read_options
from tests.support.consumers_state import MemoryState
from tests.support.smtp_server import SmtpServer

DEFAULTS = {"security": "none", "mail_from": "Headgate <alerts@example.org>", "to": ["ops@example.com"]}


def email_options(**given: Any) -> EmailOptions:
    """Return the options of a table that says `given` and what every table must; a None takes something out."""
    options, faults = read_options(EmailOptions, {"host": "127.0.0.1", **DEFAULTS, **given})
    assert options is not None, faults
    return options


def delivery(data: Any = None, *, number: int = 1, key: str = "ops@example.com", **more: Any) -> Delivery:
    """Return event `number` of a log as it is delivered."""
    body = json.dumps({} if data is None else data).encode()
    values = {"topic": "orders.42.failed", "id": f"event-{number}", "time_ms": 1_790_000_000_000, "epoch": "e" * 16, **more}
    return Delivery(data=body, offset=number, namespace="shop", consumer="on-call", key=key, **values)


class Unpublished:
    """A publisher for consumers that publish nothing."""

    def publish(self, *_: Any, **__: Any) -> Any:
        """Fail the test."""
        raise AssertionError("the email consumer publishes nothing")


@pytest.fixture
def mailer(smtp: SmtpServer) -> Iterator[Callable[..., Email]]:
    """Make email consumers that send to `smtp`: `mailer(digest_s=60)`; `state` is another state than one in memory."""
    with contextlib.ExitStack() as made:

        def make(state: State | None = None, **given: Any) -> Email:
            context = Context("on-call", "shop", state or MemoryState(), Unpublished())
            email = Email(email_options(port=smtp.port, **given), context)
            made.callback(email.close)
            return email

        yield make
