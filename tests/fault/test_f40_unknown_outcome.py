"""F40: a receiver takes the whole of it, and its answer is late, lost or none, so three copies at most, then a dead letter."""

from collections.abc import Callable, Iterator

import pytest

from headgate.consumers.apprise import Apprise, AppriseOptions
from headgate.consumers.email.consumer import Email
from headgate.consumers.webhook.consumer import Webhook, WebhookOptions
from headgate.consumers.work.dead_letters import DeadLetter, DeadLetters
from headgate.consumers.work.worker import MAX_UNKNOWN
from headgate.redis.client import Client
from headgate.services.publisher import Publisher
from headgate.settings.options import read_options
from tests.support.http_receiver import Answer, Receiver, hang, reset, say, status
from tests.support.mailer import email_options
from tests.support.smtp_server import SmtpServer
from tests.support.stepped_worker import MakeWorker, SteppedWorker

SECRET = "whsec_" + "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


@pytest.fixture
def publisher(redis_url: str) -> Iterator[Publisher]:
    """A publisher into the log that consumers read."""
    with Publisher(redis_url) as publisher:
        yield publisher


def work_off(make: Callable[[], SteppedWorker], publisher: Publisher, client: Client) -> DeadLetter:
    """Publish an event, and have it tried until its end, each time by a new worker."""
    make()
    publisher.publish("orders.1.failed", {"n": 1})
    for _ in range(3 * MAX_UNKNOWN):
        worker = make()
        worker.work()
        worker.make_due()
    assert worker.waiting() == 0
    (letter,) = DeadLetters(client, "notifications", "mail").page()
    return letter


@pytest.mark.parametrize("how", ["hang", "drop", "nonsense"])
def test_a_mail_without_an_answer_is_sent_three_times(
    smtp: SmtpServer, make_worker: MakeWorker, publisher: Publisher, redis_client: Client, how: str
) -> None:
    """The copies have one Message-ID."""
    smtp.behave("message", how)
    options = email_options(port=smtp.port, accept_timeout_s=0.1 if how == "hang" else 30.0)

    letter = work_off(lambda: make_worker(Email, options), publisher, redis_client)

    assert (letter.why, letter.task.attempt) == ("outcome_unknown", MAX_UNKNOWN)
    assert len(smtp.received) == MAX_UNKNOWN
    assert len({mail.header("Message-ID") for mail in smtp.received}) == 1


@pytest.mark.parametrize(
    ("answer", "timeout_s"),
    [
        pytest.param(reset, 30.0, id="reset"),
        pytest.param(say(), 30.0, id="closed"),
        pytest.param(say(b"HTTP/1.1 103 Early Hints\r\n\r\n"), 30.0, id="hints and no answer"),
        pytest.param(say(b"HTTP/1.1 103 Early Hints\r\nX: " + b"x" * 100_000), 30.0, id="a huge head"),
        pytest.param(hang(), 0.2, id="slow after the last byte"),
    ],
)
def test_a_webhook_without_an_answer_is_posted_three_times(
    make_worker: MakeWorker, publisher: Publisher, redis_client: Client, answer: Answer, timeout_s: float
) -> None:
    """The copies have one id."""
    with Receiver() as receiver:
        receiver.answer = answer
        given = {"url": receiver.url(), "secret": SECRET, "allow_private": ["127.0.0.1"], "timeout_s": timeout_s}
        options, _ = read_options(WebhookOptions, given)

        letter = work_off(lambda: make_worker(Webhook, options), publisher, redis_client)

        assert (letter.why, letter.task.attempt) == ("outcome_unknown", MAX_UNKNOWN)
        assert len(receiver.requests) == MAX_UNKNOWN
        assert len({request.headers["webhook-id"] for request in receiver.requests}) == 1


@pytest.mark.parametrize(("answer", "rto"), [(status(500), 30), (reset, 30), (hang(), 0.2)], ids=["refused", "reset", "slow"])
def test_a_message_that_apprise_could_not_send_is_sent_three_times(
    make_worker: MakeWorker, publisher: Publisher, redis_client: Client, answer: Answer, rto: float
) -> None:
    """It does not say which of the three it was."""
    with Receiver() as receiver:
        receiver.answer = answer
        url = receiver.url().replace("http://", "json://") + f"?cto=30&rto={rto}"
        options, _ = read_options(AppriseOptions, {"urls": [url]})

        letter = work_off(lambda: make_worker(Apprise, options), publisher, redis_client)

        assert (letter.why, letter.task.attempt) == ("outcome_unknown", MAX_UNKNOWN)
        assert len(receiver.requests) == MAX_UNKNOWN


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(say(b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"), id="hints"),
        pytest.param(say(b"HTTP/1.1 200 OK\r\nX: " + b"x" * 100_000), id="a huge head"),
        pytest.param(say(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"), id="cut in the body"),
    ],
)
def test_a_webhook_whose_status_line_came_is_done(
    make_worker: MakeWorker, publisher: Publisher, redis_client: Client, answer: Answer
) -> None:
    """One copy."""
    with Receiver() as receiver:
        receiver.answer = answer
        options, _ = read_options(WebhookOptions, {"url": receiver.url(), "secret": SECRET, "allow_private": ["127.0.0.1"]})
        worker = make_worker(Webhook, options)
        publisher.publish("orders.1.failed", {"n": 1})
        worker.finish()
        assert len(receiver.requests) == 1
    assert DeadLetters(redis_client, "notifications", "mail").count() == 0
