"""An email consumer as tests make one: options as in TOML, a state and an postbox in memory, and deliveries for it."""

import json
from collections.abc import Callable
from typing import Any, cast

import pytest

from headgate.consumers.base import Context, Delivery
from headgate.consumers.email.consumer import Email
from headgate.consumers.email.message import Mail
from headgate.consumers.email.options import EmailOptions
from headgate.consumers.email.smtp import MailServer
from headgate.consumers.work.state import State
from headgate.settings.options import read_options
from tests.support.consumers_state import MemoryState
from tests.support.smtp_server import Received

DEFAULTS = {"security": "none", "mail_from": "Headgate <alerts@example.org>", "to": ["ops@example.com"]}


def email_options(**given: Any) -> EmailOptions:
    """Return the options of a table with `given` and the required ones; a None takes something out."""
    options, faults = read_options(EmailOptions, {"host": "127.0.0.1", **DEFAULTS, **given})
    assert options is not None, faults
    return options


def delivery(data: Any = None, *, number: int = 1, key: str = "ops@example.com", **more: Any) -> Delivery:
    """Return event `number` of a log as it is delivered."""
    body = json.dumps({} if data is None else data).encode()
    values = {"topic": "orders.42.failed", "id": f"event-{number}", "time_ms": 1_790_000_000_000, "epoch": "e" * 16, **more}
    return Delivery(data=body, offset=number, namespace="shop", consumer="on-call", key=key, **values)


class MemoryPostbox:
    """Stands for MailServer: keeps each of its mails, but first raises each error of `refusals`."""

    def __init__(self) -> None:
        self.mails: list[Received] = []
        self.refusals: list[Exception] = []

    def send(self, mail: Mail) -> None:
        if self.refusals:
            raise self.refusals.pop(0)
        self.mails.append(Received(mail.sender, [mail.recipient], mail.content, accepted=True))

    def pause_s(self) -> float:
        return 7.0 if self.refusals else 0.0

    def close(self) -> None:
        """As MailServer."""


@pytest.fixture
def postbox() -> MemoryPostbox:
    """The postbox of `mailer`."""
    return MemoryPostbox()


@pytest.fixture
def mailer(postbox: MemoryPostbox) -> Callable[..., Email]:
    """Make email consumers that send to `postbox`: `mailer(digest_s=60)`; `state` is another state than one in memory."""

    def make(state: State | None = None, rate: int = 0, rate_period_s: float = 3600, **given: Any) -> Email:
        context = Context("on-call", "shop", state or MemoryState(), cast(Any, None), rate, rate_period_s)
        return Email(email_options(**given), context, cast(MailServer, postbox))

    return make
