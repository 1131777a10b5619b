"""Mails from the log to the mailbox: a stepped worker on a real Redis, with a postbox in memory, or a real mail server."""

from collections.abc import Callable
from dataclasses import fields
from typing import Any, cast

import pytest

from headgate.consumers.base import Context
from headgate.consumers.email.consumer import Email
from headgate.consumers.email.options import EmailOptions
from headgate.consumers.email.smtp import MailServer
from headgate.consumers.work.dead_letters import DeadLetters
from headgate.consumers.work.spec import RunnerOptions
from headgate.redis.client import Client, call
from headgate.services.inbox import Inbox
from headgate.services.publisher import Publisher
from tests.support.mailer import MemoryPostbox, email_options
from tests.support.smtp_server import Received
from tests.support.stepped_worker import MakeWorker, SteppedWorker

NAMESPACE = "notifications"
GROUP = "hg:{notifications}:group:on-call"
RUNNER = {field.name for field in fields(RunnerOptions)}
Make = Callable[..., SteppedWorker]


@pytest.fixture
def make(make_worker: MakeWorker, postbox: MemoryPostbox) -> Make:
    """Make email consumers that send to `postbox`: `make(digest_s=2)`."""

    class Posting(Email):
        def __init__(self, options: EmailOptions, context: Context) -> None:
            super().__init__(options, context, cast(MailServer, postbox))

    def make(**given: Any) -> SteppedWorker:
        runner = {name: given.pop(name) for name in list(given) if name in (*RUNNER, "patterns")}
        return make_worker(Posting, email_options(**given), name="on-call", **runner)

    return make


def ids(mail: Received) -> list[str]:
    """Return the ids of the events in a mail."""
    return mail.message.get_all("X-Headgate-Event", [])


def end_windows(client: Client) -> None:
    """Let the time come when the recipients' windows and rates have ended."""
    for kind in ("window", "rate"):
        for key in call(client, "KEYS", f"{GROUP}:state:{kind}:*"):
            call(client, "DEL", key)


def test_the_trouble_of_one_recipient_does_not_touch_the_others(
    make: Make, publisher: Publisher, postbox: MemoryPostbox, redis_client: Client
) -> None:
    """The server does not know one of them, and the event misnames the other. The result is two dead letters and one mail."""
    postbox.unknown = {"a@example.com"}
    worker = make(to=None, to_function="tests.integration.consumers.recipients:listed")
    publisher.publish("orders.1.failed", ["a@example.com", "b@example.com", "nobody"], id="e1")

    worker.finish()

    letters = DeadLetters(redis_client, NAMESPACE, "on-call").page()
    assert sorted(letter.reason for letter in letters) == [
        "a@example.com is unknown",
        "recipient 3 of the event is no mail address: expected exactly one @",
    ]
    assert {letter.why for letter in letters} == {"rejected"}
    assert [mail.recipients for mail in postbox.mails] == [["b@example.com"]]


def test_what_is_read_while_a_digest_waits_is_not_in_it(
    make: Make, publisher: Publisher, postbox: MemoryPostbox, redis_client: Client
) -> None:
    """Nor an event muted in between; a digest of nothing is no mail."""
    worker = make(
        unless_read_s=60, digest_s=3600, to=None, to_template="{{ event.user }}@example.com", patterns=("users.*.inbox.*.#",)
    )
    inbox = Inbox(publisher)
    for user in ("ann", "bob"):
        for name in ("first", "read", "unread", "muted"):
            kind = "news" if name == "muted" else "orders"
            publisher.publish(f"inbox.{kind}", {}, id=name, user=user)
    worker.work()
    worker.make_due()
    worker.work()
    assert [ids(mail) for mail in postbox.mails] == [["first"], ["first"]]

    inbox.mark_read("ann", ["orders/read"])
    inbox.mute("ann", "news", ["mail"])
    inbox.read_all("bob")
    end_windows(redis_client)
    worker.finish()

    assert [ids(mail) for mail in postbox.mails[2:]] == [["unread"]]
