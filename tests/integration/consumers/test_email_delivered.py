"""Mails from the log to the mailbox: real runner, real Redis, real mail server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from headgate.consumers.email.consumer import Email
from headgate.consumers.work.dead_letters import DeadLetters
from headgate.consumers.work.runner import Runner
from headgate.consumers.work.spec import ConsumerSpec, RunnerOptions
from headgate.publisher import Publisher
from headgate.redis.client import Client, call
from headgate.redis.seen import mark_seen
from headgate.settings import Settings
from tests.support.mailer import email_options
from tests.support.redis_server import DEADLINE_S, wait_until
from tests.support.smtp_server import Received, SmtpServer

NAMESPACE = "notifications"
GROUP = "hg:{notifications}:group:on-call"
Run = Callable[..., Runner]


@pytest.fixture
def publisher(redis_url: str) -> Iterator[Publisher]:
    with Publisher(redis_url) as publisher:
        yield publisher


@pytest.fixture
def run(redis_url: str, smtp: SmtpServer) -> Iterator[Run]:
    """Run email consumers that send to `smtp`, until the test ends: `run(digest_s=2)`."""
    runners: list[Runner] = []

    def run(**given: Any) -> Runner:
        options = email_options(port=smtp.port, **given)
        tried = RunnerOptions(retry_first_s=0.05, retry_last_s=0.2)
        runner = Runner(ConsumerSpec("on-call", Email, options, ("#",), NAMESPACE, tried), redis_url, Settings())
        runner.open()
        runner.start()
        runners.append(runner)
        return runner

    yield run
    for runner in runners:
        assert runner.stop(DEADLINE_S)


def ids(mail: Received) -> list[str]:
    """Return the ids of the events that a mail tells of."""
    return mail.message.get_all("X-Headgate-Event", [])


def wait_held(client: Client, count: int) -> None:
    wait_until(lambda: call(client, "ZCARD", f"{GROUP}:held") == count, f"{count} to be deferred")


def end_waits(client: Client) -> None:
    """Let the time come that was waited for: the recipient's windows and rates have ended, and what is deferred is due."""
    for kind in ("window", "rate"):
        for key in call(client, "KEYS", f"{GROUP}:state:{kind}:*"):
            call(client, "DEL", key)
    call(
        client,
        "ZADD",
        f"{GROUP}:held",
        *(word for task in call(client, "ZRANGE", f"{GROUP}:held", 0, -1) for word in (1, task)),
    )


def test_each_recipient_gets_each_event_once(run: Run, publisher: Publisher, smtp: SmtpServer) -> None:
    """Through the log, split into parts, over one connection."""
    run(to=["a@example.com", "b@example.com"])
    for number in range(5):
        publisher.publish("orders.1.failed", {"title": f"Order {number}"}, id=f"e{number}")
    mails = smtp.wait_for_mails(10)
    assert sorted((mail.recipients[0], *ids(mail)) for mail in mails) == sorted(
        (recipient, f"e{number}") for recipient in ("a@example.com", "b@example.com") for number in range(5)
    )
    assert smtp.count("connection") == 1


def test_one_recipients_trouble_is_not_the_others(run: Run, publisher: Publisher, smtp: SmtpServer, redis_client: Client) -> None:
    """The server does not know one of them, and the event does not name the other rightly: two dead letters and one mail."""
    smtp.behave("RCPT", "550 5.1.1 unknown", times=1)
    run(to=None, to_function="tests.integration.consumers.whom:listed")
    publisher.publish("orders.1.failed", ["a@example.com", "b@example.com", "nobody"], id="e1")
    smtp.wait_for_mails(1)
    letters = DeadLetters(redis_client, NAMESPACE, "on-call")
    wait_until(lambda: letters.count() == 2, "two dead letters")
    assert sorted(letter.reason for letter in letters.page()) == [
        "recipient 3 of the event is no mail address: expected exactly one @",
        "the mail server answered 550 to the recipient: 5.1.1 unknown",
    ]
    assert {letter.why for letter in letters.page()} == {"rejected"}
    assert len(smtp.mails) == 1


def test_a_mail_that_comes_twice_is_recognisable(run: Run, publisher: Publisher, smtp: SmtpServer) -> None:
    """The server had it, its answer got lost: the same Message-ID comes again."""
    smtp.behave("message", "drop", times=1)
    run()
    publisher.publish("orders.1.failed", {}, id="e1")
    smtp.wait_for_mails(1)
    first, second = smtp.received
    assert first.message["Message-ID"] == second.message["Message-ID"]


def test_a_flood_becomes_one_mail_and_one_digest(run: Run, publisher: Publisher, smtp: SmtpServer, redis_client: Client) -> None:
    """The first at once, the rest together when the window ends."""
    run(digest_s=3600, digest_events=3)
    publisher.publish_many([("orders.1.failed", {"title": f"Order {number}"}, f"e{number}") for number in range(13)])
    wait_held(redis_client, 12)
    end_waits(redis_client)
    first, digest = smtp.wait_for_mails(2)
    assert (ids(first), ids(digest)) == (["e0"], ["e1", "e2", "e3"])
    assert "and 9 more" in digest.text
    assert digest.message["Subject"] == "Order 1 and 11 more"


def test_a_rate_spills_into_a_digest(run: Run, publisher: Publisher, smtp: SmtpServer, redis_client: Client) -> None:
    """So many at once, the rest together when there is room."""
    run(rate=2, rate_period_s=3600)
    publisher.publish_many([("orders.1.failed", {}, f"e{number}") for number in range(6)])
    wait_held(redis_client, 4)
    end_waits(redis_client)
    assert [ids(mail) for mail in smtp.wait_for_mails(3)] == [["e0"], ["e1"], ["e2", "e3", "e4", "e5"]]


def test_no_mail_about_what_the_browser_has_shown(run: Run, publisher: Publisher, smtp: SmtpServer, redis_client: Client) -> None:
    """The user's browser said so in time; the other user's did not."""
    run(unless_seen_s=1)
    mark_seen(redis_client, NAMESPACE, "ann", ["shown"])
    publisher.publish("orders.failed", {}, id="shown", user="ann")
    publisher.publish("orders.failed", {}, id="missed", user="bob")
    assert [ids(mail) for mail in smtp.wait_for_mails(1)] == [["missed"]]
