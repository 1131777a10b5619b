"""The email consumer against a real mail server: whom it writes to, what, when, and what it never lets through."""

from __future__ import annotations

import contextlib
import dataclasses
import email.header
import sys
import time
import types
from collections.abc import Callable, Sequence
from email import message_from_bytes, policy
from typing import Any

import pytest

from headgate.consumers.base import Defer, Delivery, Reject, Retry
from headgate.consumers.email.consumer import Email
from tests.support.consumers_state import MemoryState
from tests.support.mailer import delivery
from tests.support.smtp_server import Received, SmtpServer

MakeMailer = Callable[..., Email]
FAILED = {"title": "Order 42 failed", "text": "The payment was refused.", "order": 42, "url": "https://example.com/orders/42"}
ONE_CLICK = "List-Unsubscribe=One-Click"
HEADERS = [
    "From", "To", "Subject", "Date", "Message-ID", "Auto-Submitted", "List-Unsubscribe", "List-Unsubscribe-Post",
    "X-Headgate-Event", "MIME-Version", "Content-Type",
]  # fmt: skip


def test_a_mail_says_what_happened_in_text_and_html(mailer: MakeMailer, smtp: SmtpServer) -> None:
    """The layout of our own: title, text, the rest of the data, a link; nothing of it is markup."""
    mailer().handle(delivery({**FAILED, "note": "<b>bold</b>"}))
    message = smtp.mails[0].message
    assert (message["From"], message["To"], message["Subject"]) == (
        "Headgate <alerts@example.org>",
        "ops@example.com",
        "Order 42 failed",
    )
    assert (message["Auto-Submitted"], message["X-Headgate-Event"]) == ("auto-generated", "event-1")
    assert abs(message["Date"].datetime.timestamp() - time.time()) < 600
    for line in ("The payment was refused.", "order: 42", "https://example.com/orders/42", "<b>bold</b>"):
        assert line in smtp.mails[0].text
    part = message.get_body(("html",))
    assert part is not None
    html = str(part.get_content())
    assert "&lt;b&gt;bold&lt;/b&gt;" in html
    assert '<a class="go" href="https://example.com/orders/42">' in html


@pytest.mark.parametrize("data", [None, 3, "text", [1, {"a": None}], {"title": 5, "url": "javascript:alert(1)", "items": {}}])
def test_any_data_makes_a_mail(data: Any, mailer: MakeMailer, smtp: SmtpServer) -> None:
    """What has no title is named by its topic, and only web addresses become links."""
    mailer().handle(delivery(data, topic="orders.42.failed"))
    assert smtp.mails[0].message["Subject"] == "orders.42.failed"
    assert b'href="javascript' not in smtp.mails[0].content


def test_a_message_id_is_the_same_for_every_attempt_and_for_nothing_else(mailer: MakeMailer, smtp: SmtpServer) -> None:
    """A double is recognisable: by consumer, event and recipient, whoever sends it."""
    mailer().handle(delivery(FAILED))
    mailer().handle(delivery(FAILED, attempt=2))
    mailer().handle(delivery(FAILED, key="other@example.com"))
    mailer().handle(delivery(FAILED, number=2))
    first, again, other_recipient, other_event = [mail.message["Message-ID"] for mail in smtp.mails]
    assert first == again
    assert len({first, other_recipient, other_event}) == 3
    assert first.endswith("@example.org>")


def test_each_address_is_a_part_of_the_work(mailer: MakeMailer) -> None:
    """Addresses are spelt one way and named once; the domain's letters are ASCII's."""
    sink = mailer(to=["a@Example.COM", "a@example.com", "b@bücher.example"])
    assert sink.keys(delivery()) == ("a@example.com", "b@xn--bcher-kva.example")


def test_a_template_names_the_recipient(mailer: MakeMailer) -> None:
    """One address, or none; a name that is not there rejects the event."""
    sink = mailer(to=None, to_template="{{ event.data.email }}")
    assert sink.keys(delivery({"email": " jo@example.com "})) == ("jo@example.com",)
    assert sink.keys(delivery({"email": ""})) == ()
    with pytest.raises(Reject, match="to_template, line 1"):
        sink.keys(delivery({}))


def test_a_function_names_the_recipients(mailer: MakeMailer, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is given the delivery; text alone is one address, None is nobody, and too many are refused without counting them all."""

    def whom(asked: Delivery) -> Any:
        twice = ["a@example.com"] * 2
        return {"one": "one@example.com", "twice": twice, "none": None, "many": (f"u{n}@example.com" for n in range(10**9))}[
            asked.value()
        ]

    module = types.ModuleType("whom_to_write_to")
    module.whom = whom  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "whom_to_write_to", module)
    sink = mailer(to=None, to_function="whom_to_write_to:whom", max_recipients=3)
    assert sink.keys(delivery("one")) == ("one@example.com",)
    assert sink.keys(delivery("twice")) == ("a@example.com",)
    assert sink.keys(delivery("none")) == ()
    with pytest.raises(Reject, match="more than 3 recipients"):
        sink.keys(delivery("many"))


def test_what_is_no_address_is_rejected_alone(mailer: MakeMailer, smtp: SmtpServer) -> None:
    """The others get their mail; the reason says which and why, and does not repeat it."""
    sink = mailer(to=None, to_template="{{ event.data }}")
    (key,) = sink.keys(delivery("nobody@example.com, evil@example.com"))
    with pytest.raises(Reject, match=r"^recipient 1 of the event is no mail address: expected exactly one @$"):
        sink.handle(delivery("nobody@example.com, evil@example.com", key=key))
    assert smtp.received == []


def test_what_follows_a_mail_is_collected(mailer: MakeMailer, smtp: SmtpServer) -> None:
    """The first goes at once, the next are deferred together until the window ends, then go in one mail, which opens the next."""
    state = MemoryState()
    sink = mailer(state, digest_s=60)
    assert sink.handle(delivery(FAILED)) is None
    ends = Defer(state.now_s + 60, together=True)
    assert [sink.handle(delivery(FAILED, number=n)) for n in (2, 3)] == [ends, ends]
    assert sink.handle(delivery(FAILED, number=2, key="other@example.com")) is None
    state.now_s += 60
    assert sink.handle_together("ops@example.com", [delivery(FAILED, number=n, attempt=2, deferred=True) for n in (2, 3)]) is None
    assert sink.handle(delivery(FAILED, number=4)) == Defer(state.now_s + 60, together=True)
    assert [mail.message["X-Headgate-Event"] for mail in smtp.mails] == ["event-1", "event-2", "event-2"]
    digest = smtp.mails[-1].message
    assert (digest.get_all("X-Headgate-Event"), digest["Subject"]) == (["event-2", "event-3"], "Order 42 failed and 1 more")


def test_a_digest_goes_though_another_mail_has_just_gone(mailer: MakeMailer, smtp: SmtpServer) -> None:
    """An event between the end of the window and the digest opens a new one; the digest does not wait for it."""
    state = MemoryState()
    sink = mailer(state, digest_s=60)
    sink.handle(delivery(FAILED))
    state.now_s += 60
    assert sink.handle(delivery(FAILED, number=3)) is None
    assert sink.handle_together("ops@example.com", [delivery(FAILED, number=2, attempt=2, deferred=True)]) is None
    assert len(smtp.mails) == 3


def test_too_many_mails_spill_into_a_digest(mailer: MakeMailer, smtp: SmtpServer) -> None:
    """Above the rate the rest is deferred together until there is room; a digest counts as one."""
    state = MemoryState()
    sink = mailer(state, rate=2, rate_period_s=100)
    answers = [sink.handle(delivery(FAILED, number=n)) for n in (1, 2, 3, 4)]
    assert answers == [None, None, Defer(state.now_s + 100, together=True), Defer(state.now_s + 100, together=True)]
    held = [delivery(FAILED, number=n, attempt=2, deferred=True) for n in (3, 4)]
    assert sink.handle_together("ops@example.com", held) == Defer(state.now_s + 100, together=True)
    state.now_s += 101
    assert sink.handle_together("ops@example.com", held) is None
    assert len(smtp.mails) == 3


def test_a_mail_that_failed_is_not_held_back_by_itself(mailer: MakeMailer, smtp: SmtpServer) -> None:
    """It was let through: the next attempt sends it, and neither the window nor the rate counts it twice."""
    state = MemoryState()
    sink = mailer(state, digest_s=60, rate=2)
    smtp.behave("message", "451 later", times=2)
    for attempt in (1, 2):
        with pytest.raises(Retry):
            sink.handle(delivery(FAILED, attempt=attempt))
    assert sink.handle(delivery(FAILED, attempt=3)) is None
    state.now_s += 61
    smtp.behave("message", "451 later", times=1)
    held = [delivery(FAILED, number=n, attempt=2, deferred=True) for n in (2, 3)]
    with pytest.raises(Retry):
        sink.handle_together("ops@example.com", held)
    assert sink.handle_together("ops@example.com", [delivery(FAILED, number=n, attempt=3, deferred=True) for n in (2, 3)]) is None
    assert len(smtp.mails) == 2


@pytest.mark.parametrize("limits", [{"digest_s": 60}, {"rate": 1}, {"digest_s": 60, "rate": 1}])
def test_a_mail_that_went_before_a_kill_goes_again_as_the_same(
    limits: dict[str, int], mailer: MakeMailer, smtp: SmtpServer
) -> None:
    """At once, under its Message-ID: joined to a digest it would be a double that nobody recognises."""
    state = MemoryState()
    for attempt in (1, 2):
        assert mailer(state, **limits).handle(delivery(FAILED, attempt=attempt)) is None
    state.now_s += 3600
    held = [delivery(FAILED, number=n) for n in (2, 3)]
    for attempt in (2, 3):
        again = [dataclasses.replace(each, attempt=attempt, deferred=True) for each in held]
        assert mailer(state, **limits).handle_together("ops@example.com", again) is None

    single, single_again, digest, digest_again = (mail.header("Message-ID") for mail in smtp.mails)
    assert (single, digest) == (single_again, digest_again)
    assert single != digest


def test_a_digest_shows_so_many_and_counts_the_rest(mailer: MakeMailer, smtp: SmtpServer) -> None:
    """A mail has a bound, and says what it leaves out."""
    sink = mailer(digest_s=60, digest_events=3)
    sink.handle_together("ops@example.com", [delivery({"title": f"Event {n}"}, number=n) for n in range(1, 41)])
    assert "Event 3\n" in smtp.mails[0].text
    assert "Event 4\n" not in smtp.mails[0].text
    assert "and 37 more" in smtp.mails[0].text
    assert smtp.mails[0].message["Subject"] == "Event 1 and 39 more"


def test_a_digest_that_would_be_too_long_shows_less(mailer: MakeMailer, smtp: SmtpServer) -> None:
    """Large events make it show fewer of them instead of none at all."""
    sink = mailer(digest_s=60, text="{% for event in events %}{{ event.data }}\n{% endfor %}and {{ more }} more")
    sink.handle_together("ops@example.com", [delivery("x" * 60_000, number=n) for n in range(1, 11)])
    assert smtp.mails[0].text.endswith("and 8 more\n")


def test_an_event_that_does_not_fit_the_templates_is_rejected_before_it_joins_others(mailer: MakeMailer) -> None:
    """Else it would take the whole digest to the dead letters."""
    sink = mailer(digest_s=60, text="{% for event in events %}{{ event.data.total }}{% endfor %}")
    sink.handle(delivery({"total": 1}))
    with pytest.raises(Reject, match="text, line 1"):
        sink.handle(delivery({}, number=2))
    assert sink.handle(delivery({"total": 3}, number=3)) is not None


def test_what_the_user_has_seen_is_not_mailed(mailer: MakeMailer, smtp: SmtpServer) -> None:
    """It waits first; then the browser's word decides. An event of no user is mailed at once."""
    state = MemoryState()
    sink = mailer(state, unless_seen_s=30)
    before_s = time.time()
    hold = sink.handle(delivery(FAILED, topic="users.42.orders"))
    assert hold is not None
    assert (before_s + 30 <= hold.until_s <= time.time() + 30, hold.together) == (True, False)
    state.shown.add(("42", "event-1"))
    assert sink.handle(delivery(FAILED, topic="users.42.orders", attempt=2, deferred=True)) is None
    assert sink.handle(delivery(FAILED, topic="users.43.orders", attempt=2, deferred=True)) is None
    assert sink.handle(delivery(FAILED, number=2)) is None
    assert [mail.message["X-Headgate-Event"] for mail in smtp.mails] == ["event-1", "event-2"]


def test_a_template_names_the_user_who_may_have_seen_it(mailer: MakeMailer, smtp: SmtpServer) -> None:
    """For topics that are not a user's own."""
    state = MemoryState()
    state.shown.add(("jo", "event-1"))
    sink = mailer(state, unless_seen_s=30, seen_user="{{ event.data.user }}")
    assert sink.handle(delivery({"user": "jo"})) is not None
    assert sink.handle(delivery({"user": "jo"}, deferred=True, attempt=2)) is None
    assert smtp.received == []


@pytest.mark.parametrize(
    ("template", "headers"),
    [
        ("https://x.example/u?a={{ recipient|urlencode }}", ["<https://x.example/u?a=ops%40example.com>", ONE_CLICK]),
        ("mailto:leave@x.example?subject={{ event.topic }}", ["<mailto:leave@x.example?subject=orders.42.failed>", None]),
        ("https://x.example/" + "long" * 200, ["<https://x.example/" + "long" * 200 + ">", ONE_CLICK]),
    ],
)
def test_a_mail_says_where_to_unsubscribe(template: str, headers: list[str], mailer: MakeMailer, smtp: SmtpServer) -> None:
    """In the head, whole however long it is, for one click where that works; and in the text."""
    mailer(list_unsubscribe=template).handle(delivery(FAILED))
    head = message_from_bytes(smtp.mails[0].content)
    assert [head["List-Unsubscribe"], head["List-Unsubscribe-Post"]] == headers
    assert f"Unsubscribe: {headers[0][1:-1]}" in smtp.mails[0].text


def test_a_preview_is_the_mail_as_text_and_sends_nothing(mailer: MakeMailer, smtp: SmtpServer) -> None:
    """Who, what; and why not, where there would be none."""
    sink = mailer(to=None, to_template="{{ event.data.to }}", text="{{ event.data.n }} left", subject="Low")
    assert sink.preview(delivery({"to": "a@example.com", "n": 3}, key="")) == "To: a@example.com\nSubject: Low\n\n3 left"
    assert sink.preview(delivery({"to": "", "n": 3}, key="")) == "no mail: the event has no recipient"
    assert sink.preview(delivery({"to": "a", "n": 3}, key="")).startswith("no mail: recipient 1 of the event is no mail address")
    assert sink.preview(delivery({"to": "a@example.com"}, key="")).startswith("no mail: text, line 1")
    assert smtp.count("connection") == 0


# Injection: what an event says never becomes a header, a recipient or a command. ------------------------------------------

TRICKS = [
    "x\r\nBcc: evil@example.com",
    "x\nBcc: evil@example.com",
    "x\rBcc: evil@example.com",
    "x\r\n\r\n<h1>another body</h1>",
    "x\n\nanother body",
    "x\r\n Bcc: evil@example.com",
    "x\r\n\tBcc: evil@example.com",
    "x\u2028Bcc: evil@example.com",
    "x\u2029Bcc: evil@example.com",
    "x\u0085Bcc: evil@example.com",
    "x\x0bBcc: evil@example.com\x0c",
    "x\x00Bcc: evil@example.com",
    "x\x1b[2J\x08\x7f",
    "x\u560d\u560aBcc: evil@example.com",
    "=?utf-8?q?x=0D=0ABcc:_evil@example.com?=",
    "=?utf-8?b?eA0KQmNjOiBldmlsQGV4YW1wbGUuY29t?=",
    "=?utf-7?q?x+AA0ACg-Bcc:_evil@example.com?=",
    "=?utf-8?q?x?=\r\n =?utf-8?q?=0ABcc:_evil@example.com?=",
    "=\r\n?utf-8?q?=0ABcc:_evil@example.com?=",
    "x%0d%0aBcc: evil@example.com",
    "x\\r\\nBcc: evil@example.com",
    "x\r\n.\r\nMAIL FROM:<evil@example.com>\r\nRCPT TO:<evil@example.com>\r\nDATA",
    "x\r\n..\r\nQUIT",
    "ops@example.com, evil@example.com",
    "ops@example.com;evil@example.com",
    "ops@example.com>\r\nRCPT TO:<evil@example.com",
    "ops@example.com> SIZE=1 <evil@example.com",
    "<ops@example.com>",
    '"ops\r\nBcc: evil"@example.com',
    "ops@example.com\r\nBcc: evil@example.com",
    "ops@example.com\u2028evil@example.com",
    "ops\uff20example.com@example.com",
    "ops@example.com\uff0cevil.example",
    "@relay.example:ops@example.com",
    "ops(comment)@example.com",
    "ops@[127.0.0.1]",
    "ops@example.com " * 40,
    "x" * 100_000,
    "é" * 60_000,
    "x> , <https://evil.example",
    "x?Content-Type: text/html",
    "\u202egpj.exe Bcc: evil@example.com",
    "\ud83d\ude00 surrogates \N{GRINNING FACE}".encode("utf-16", "surrogatepass").decode("utf-16"),
    "x: " + "=?" * 500,
    "." * 300 + "\r\n" + ".\r\n" * 5,
]


@pytest.mark.parametrize("trick", TRICKS, ids=range(len(TRICKS)))
def test_no_event_adds_a_header_or_a_recipient(trick: str, mailer: MakeMailer, smtp: SmtpServer) -> None:
    """A subject, a URL, a text, a user and a recipient of an event's making: each is what it is, or there is no mail at all."""
    sink = mailer(
        to=None,
        to_template="{{ event.data.to }}",
        subject="{{ event.data.trick }}",
        text="{{ event.data.trick|truncate(500, true) }}\nthe end",
        html="<p>{{ event.data.trick|truncate(500, true) }}</p>",
        list_unsubscribe="https://example.com/u?u={{ event.data.trick|truncate(90, true) }}",
    )
    for to in ("ops@example.com", trick):
        event = delivery({"to": to, "trick": trick})
        for key in whom(sink, event):
            if to == "ops@example.com":
                sink.handle(delivery({"to": to, "trick": trick}, key=key))
            else:  # what is no address may be rejected
                with contextlib.suppress(Reject):
                    sink.handle(delivery({"to": to, "trick": trick}, key=key))
    assert smtp.mails
    for mail in smtp.mails:
        check_untouched(mail)


def whom(sink: Email, event: Delivery) -> Sequence[str]:
    """Return the parts of an event's work; none, if it is rejected as a whole."""
    try:
        return sink.keys(event)
    except Reject:
        return ()


def check_untouched(mail: Received) -> None:
    """Assert that a mail has our headers and one recipient, and its body in full."""
    assert mail.sender == "alerts@example.org"
    assert mail.recipients == ["ops@example.com"]
    for how in (policy.compat32, policy.default):
        assert message_from_bytes(mail.content, policy=how).keys() == HEADERS
    message = mail.message
    assert not message.defects
    assert [address.addr_spec for address in message["To"].addresses] == ["ops@example.com"]
    # What a mail program makes of the subject is one printable line.
    raw = message_from_bytes(mail.content)["Subject"].replace("\r\n", "")
    shown = str(email.header.make_header(email.header.decode_header(raw)))
    assert shown.isprintable()
    assert len(shown) <= 200
    assert all(32 < ord(character) < 127 for character in str(message_from_bytes(mail.content)["List-Unsubscribe"]))
    assert mail.text.endswith("the end\n")
    assert max(len(line) for line in mail.content.partition(b"\r\n\r\n")[0].split(b"\r\n")) <= 998


@pytest.mark.parametrize("event_id", ["x\r\nBcc: evil@example.com", "x\nBcc: evil", "ü", "x\x00"])
def test_an_id_that_no_log_holds_makes_no_mail(event_id: str, mailer: MakeMailer, smtp: SmtpServer) -> None:
    """The log refuses such ids; if one came all the same, nothing would be sent."""
    with pytest.raises(Reject):
        mailer().handle(delivery(FAILED, id=event_id))
    assert smtp.received == []
