"""Mails from the log to the mailbox: a stepped worker on a real Redis, with a postbox in memory."""

from typing import cast

from headgate.consumers.base import Context
from headgate.consumers.email.consumer import Email
from headgate.consumers.email.options import EmailOptions
from headgate.consumers.email.smtp import MailServer
from headgate.redis.client import Client, call
from headgate.services.inbox import Inbox
from headgate.services.publisher import Publisher
from tests.support.mailer import MemoryPostbox, email_options
from tests.support.stepped_worker import MakeWorker


def test_what_is_read_while_a_digest_waits_is_not_in_it(
    make_worker: MakeWorker, publisher: Publisher, postbox: MemoryPostbox, redis_client: Client
) -> None:
    """Nor an event muted in between; a digest of nothing is no mail."""

    class Posting(Email):
        def __init__(self, options: EmailOptions, context: Context) -> None:
            super().__init__(options, context, cast(MailServer, postbox))

    options = email_options(digest_s=3600, to=None, to_template="{{ event.user }}@example.com")
    worker = make_worker(Posting, options, ("users.*.inbox.*.#",), "on-call", unless_read_s=60)
    inbox = Inbox(publisher)
    for user in ("ann", "bob"):
        for name in ("first", "read", "unread", "muted"):
            kind = "news" if name == "muted" else "orders"
            publisher.publish(f"inbox.{kind}", {}, id=name, user=user)
    worker.work()
    worker.make_due()
    worker.work()
    ids = [mail.message.get_all("X-Headgate-Event") for mail in postbox.mails]
    assert ids == [["first"], ["first"]]

    inbox.mark_read("ann", ["orders/read"])
    inbox.mute("ann", "news", ["mail"])
    inbox.read_all("bob")
    for key in call(redis_client, "KEYS", "hg:{notifications}:group:on-call:state:rate:*"):
        call(redis_client, "DEL", key)
    worker.finish()

    assert [mail.message.get_all("X-Headgate-Event") for mail in postbox.mails[2:]] == [["unread"]]
