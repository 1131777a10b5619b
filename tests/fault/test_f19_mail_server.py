"""F19: the mail server is down, silent, or refuses, while events to mail go on and browsers are connected."""

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headgate.consumers.work.dead_letters import DeadLetters
from headgate.redis.client import open_client
from headgate.services.publisher import Publisher
from tests.fault.figures import Figures
from tests.fault.many_clients import Swarm
from tests.fault.sightings import disconnects
from tests.fault.site import NAMESPACE, Site, wait_for
from tests.support.consume_process import ConsumeProcess
from tests.support.smtp_server import SmtpServer

# The ways to fail, one after the other: no connection, no answer, 4xx, an answer that gets lost.
FAULTS: list[Callable[[SmtpServer], None]] = [
    lambda smtp: smtp.refuse(),
    lambda smtp: smtp.behave("message", "hang"),
    lambda smtp: smtp.behave("RCPT", "451 4.3.0 later"),
    lambda smtp: smtp.behave("message", "drop"),
]
OUTAGE_S = {"short": 3.0, "full": 600.0}
BETWEEN_MAILS_S = {"short": 0.1, "full": 0.5}
# A mail that was accepted is sent again if the machine stands still for so long before the answer is read.
TIMEOUT_S = 4
CONFIG = """
[consumers.on-call]
type = "email"
patterns = ["mails.#"]
workers = 2
retry_first_s = 0.1
retry_last_s = {retry_last_s}
host = "127.0.0.1"
port = {port}
security = "none"
timeout_s = {timeout_s}
accept_timeout_s = {timeout_s}
mail_from = "alerts@example.org"
to = ["ops@example.com"]
"""


@pytest.fixture
def smtp(start_smtp: Callable[..., SmtpServer]) -> SmtpServer:
    """A mail server of this test's own."""
    return start_smtp()


@pytest.fixture
def consuming(site: Site, smtp: SmtpServer, tmp_path: Path) -> Iterator[ConsumeProcess]:
    """Consumers as an operator runs them, with back-off that suits the length of the outage."""
    retry_last_s = OUTAGE_S[site.load.name] / 10
    (tmp_path / "headgate.toml").write_text(CONFIG.format(port=smtp.port, timeout_s=TIMEOUT_S, retry_last_s=retry_last_s))
    process = ConsumeProcess(tmp_path, {"HEADGATE_REDIS_URL": site.redis.url})
    with process:
        yield process
        print(f"--- output of headgate consume ---\n{process.output}")


@pytest.fixture
def swarm(site: Site) -> Iterator[Swarm]:
    """The load's clients. The feed of their gateways makes no difference here, so the test waits the ten minutes once."""
    with contextlib.closing(site.swarm().open()) as swarm:
        yield swarm


@pytest.mark.timeout(1500)
def test_an_outage_of_the_mail_server_costs_no_mail_and_doubles_none(
    site: Site, consuming: ConsumeProcess, smtp: SmtpServer, swarm: Swarm, figures: Figures
) -> None:
    """Each mail is accepted once when the server is back, refused ones are set aside at once, and no browser notices."""
    outage_s = OUTAGE_S[site.load.name]
    wanted: list[str] = []
    with site.publishing() as publishing, Publisher(site.redis.url) as publisher:

        def mail() -> None:
            wanted.append(publisher.publish("mails.order.failed", {"title": f"Number {len(wanted)}"}).id)

        publishing.wait_for(20)
        mail()
        smtp.wait_for_mails(1)
        began_s = time.monotonic()
        for number, fault in enumerate(FAULTS, 1):
            smtp.begin_behaving()
            fault(smtp)
            while time.monotonic() - began_s < outage_s * number / len(FAULTS):
                mail()
                time.sleep(BETWEEN_MAILS_S[site.load.name])  # the rate of events
        smtp.begin_behaving()
        with contextlib.closing(open_client(site.redis.url)) as client:
            letters = DeadLetters(client, NAMESPACE, "on-call")

            def all_mailed() -> bool:
                letters.retry_all()  # as an operator does with those that lost three answers
                return len(smtp.mails) >= len(wanted)

            caught_up_s = wait_for(all_mailed, "all mails", deadline_s=outage_s / 5 + 60)
            smtp.behave("RCPT", "550 5.1.1 unknown", times=1)
            refused = publisher.publish("mails.order.failed", {}).id
            dead_after_s = wait_for(letters.count, "the dead letter")
            (letter,) = letters.page()
        mail()
        smtp.wait_for_mails(len(wanted))
        history = publishing.stop()
    site.come_to_rest(swarm, history)
    assert not disconnects(swarm)
    assert (letter.why, letter.task.id, letter.task.attempt) == ("rejected", refused, 1)
    sent = Counter(mail.header("X-Headgate-Event") for mail in smtp.mails)
    assert sent == Counter(wanted)
    assert len({mail.header("Message-ID") for mail in smtp.mails}) == len(wanted)
    figures("F19", f"mails after an outage of {outage_s:g} s, each accepted once", len(wanted), "", "all, once")
    figures("F19", "last mail accepted after the server is back", caught_up_s, "s", "≤ the longest pause and back-off")
    figures("F19", "dead letter after a 5xx", dead_after_s, "s", "at once")
    figures("F19", "clients disconnected", len(disconnects(swarm)), "", "0")
