"""The email consumer with an postbox in memory: its recipients, its mails, their time, and tricks that it never lets through."""

import sys
import time
import types
from collections.abc import Callable
from email import message_from_bytes
from typing import Any

import msgspec
import pytest

from headgate.consumers.base import Defer, Delivery, Reject, Retry
from headgate.consumers.email.consumer import Email
from headgate.errors import BusUnavailable
from tests.support.consumers_state import MemoryState
from tests.support.mail_tricks import TEMPLATES, TRICKS, check_untouched, send_trick
from tests.support.mailer import MemoryPostbox, delivery, email_options

MakeMailer = Callable[..., Email]
FAILED = {"title": "Order 42 failed", "text": "The payment was refused.", "order": 42, "url": "https://example.com/orders/42"}
ONE_CLICK = "List-Unsubscribe=One-Click"


class LosesFirstAnswer(MemoryState):
    """Counts the first mail, and its caller does not get the answer."""

    def within_rate(self, name: str, limit: int, period_s: float, one: str | None = None) -> float | None:
        """As base.State."""
        room_s = super().within_rate(name, limit, period_s, one)
        if self.calls.count("within_rate") == 1:
            raise BusUnavailable("no answer")
        return room_s


def test_a_mail_tells_the_event_in_text_and_html(mailer: MakeMailer, postbox: MemoryPostbox) -> None:
    """Our own layout of title, text, the rest of the data, and a link; nothing of it is markup."""
    mailer().handle(delivery({**FAILED, "note": "<b>bold</b>"}))
    message = postbox.mails[0].message
    assert (message["From"], message["To"], message["Subject"]) == (
        "Headgate <alerts@example.org>",
        "ops@example.com",
        "Order 42 failed",
    )
    assert (message["Auto-Submitted"], message["X-Headgate-Event"]) == ("auto-generated", "event-1")
    assert abs(message["Date"].datetime.timestamp() - time.time()) < 600
    for line in ("The payment was refused.", "order: 42", "https://example.com/orders/42", "<b>bold</b>"):
        assert line in postbox.mails[0].text
    part = message.get_body(("html",))
    assert part is not None
    html = str(part.get_content())
    assert "&lt;b&gt;bold&lt;/b&gt;" in html
    assert '<a class="go" href="https://example.com/orders/42">' in html


@pytest.mark.parametrize("name", ["title", "url", "text", "note"])
def test_a_long_text_is_cut_however_much_its_escapes_take(name: str, mailer: MakeMailer, postbox: MemoryPostbox) -> None:
    """The built-in layout fits every event, so that none becomes a dead letter by it."""
    mailer().handle(delivery({name: "https://" + '"' * 60_000}))
    assert len(postbox.mails[0].content) < 60_000


@pytest.mark.parametrize(
    "data", [None, 3, "text", [1, {"a": None}], {"title": ""}, {"title": 5, "url": "javascript:alert(1)", "items": {}}]
)
def test_any_data_makes_a_mail(data: Any, mailer: MakeMailer, postbox: MemoryPostbox) -> None:
    """An event without a title is named by its topic, and only web addresses become links."""
    mailer().handle(delivery(data, topic="orders.42.failed"))
    assert postbox.mails[0].message["Subject"] == "orders.42.failed"
    assert b'href="javascript' not in postbox.mails[0].content


def test_a_message_id_is_the_same_for_every_attempt_and_for_nothing_else(mailer: MakeMailer, postbox: MemoryPostbox) -> None:
    """A receiver can recognise a double, because the id is made of consumer, event and recipient, in every instance."""
    mailer().handle(delivery(FAILED))
    mailer().handle(delivery(FAILED, attempt=2))
    mailer().handle(delivery(FAILED, key="other@example.com"))
    mailer().handle(delivery(FAILED, number=2))
    first, again, other_recipient, other_event = [mail.message["Message-ID"] for mail in postbox.mails]
    assert first == again
    assert len({first, other_recipient, other_event}) == 3
    assert first.endswith("@example.org>")


def test_each_address_is_a_part_of_the_work(mailer: MakeMailer) -> None:
    """Addresses are spelt one way and named once; the domain's letters are ASCII's."""
    sink = mailer(to=["a@Example.COM", "a@example.com", "b@bücher.example"])
    assert sink.keys(delivery()) == ("a@example.com", "b@xn--bcher-kva.example")


def test_a_template_names_the_recipient(mailer: MakeMailer) -> None:
    """One address, or none; a missing name rejects the event."""
    sink = mailer(to=None, to_template="{{ event.data.email }}")
    assert sink.keys(delivery({"email": " jo@example.com "})) == ("jo@example.com",)
    assert sink.keys(delivery({"email": ""})) == ()
    with pytest.raises(Reject, match="to_template, line 1"):
        sink.keys(delivery({}))


def test_a_function_names_the_recipients(mailer: MakeMailer, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is given the delivery; text alone is one address, None is no recipient, and too many are refused uncounted. It may
    ask for another attempt.
    """

    def recipients(asked: Delivery) -> Any:
        if asked.value() == "down":
            raise Retry("no database")
        twice = ["a@example.com"] * 2
        return {"one": "one@example.com", "twice": twice, "none": None, "many": (f"u{n}@example.com" for n in range(10**9))}[
            asked.value()
        ]

    module = types.ModuleType("address_book")
    module.recipients = recipients  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "address_book", module)
    sink = mailer(to=None, to_function="address_book:recipients", max_recipients=3)
    assert sink.keys(delivery("one")) == ("one@example.com",)
    assert sink.keys(delivery("twice")) == ("a@example.com",)
    assert sink.keys(delivery("none")) == ()
    with pytest.raises(Reject, match="more than 3 recipients"):
        sink.keys(delivery("many"))
    with pytest.raises(Retry, match="no database"):
        sink.keys(delivery("down"))


def test_a_recipient_that_is_no_address_is_rejected_alone(mailer: MakeMailer, postbox: MemoryPostbox) -> None:
    """The others get their mail; the reason says which and why, and does not repeat it."""
    sink = mailer(to=None, to_template="{{ event.data }}")
    (key,) = sink.keys(delivery("nobody@example.com, evil@example.com"))
    with pytest.raises(Reject, match=r"^recipient 1 of the event is no mail address: expected exactly one @$"):
        sink.handle(delivery("nobody@example.com, evil@example.com", key=key))
    assert postbox.mails == []


def test_a_lost_answer_of_redis_delays_no_mail(mailer: MakeMailer, postbox: MemoryPostbox) -> None:
    """The attempt whose answer was lost has opened the window and counts for the rate, and so has the mail that it was for."""
    for limits in ({"digest_s": 3600}, {"rate": 1}):
        sink = mailer(LosesFirstAnswer(), **limits)
        with pytest.raises(BusUnavailable):
            sink.handle(delivery(FAILED))
        assert sink.handle(delivery(FAILED, attempt=2)) is None
        assert sink.handle(delivery(FAILED, number=2)) is not None
    assert len(postbox.mails) == 2


def test_a_digest_collected_before_the_templates_changed_is_sent_one_by_one(mailer: MakeMailer, postbox: MemoryPostbox) -> None:
    """One mail for one event would leave out the others."""
    sink = mailer(subject="{{ event.data.title }}", text="{{ event.data.text }}")
    collected = [delivery(FAILED, number=n, attempt=2, deferred=True) for n in (1, 2)]

    assert sink.handle_together("ops@example.com", collected) == Defer(0.0)
    assert postbox.mails == []
    assert sink.handle_together("ops@example.com", collected[:1]) is None
    assert len(postbox.mails) == 1


def test_events_after_a_mail_are_collected(mailer: MakeMailer, postbox: MemoryPostbox) -> None:
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
    assert [mail.message["X-Headgate-Event"] for mail in postbox.mails] == ["event-1", "event-2", "event-2"]
    digest = postbox.mails[-1].message
    assert (digest.get_all("X-Headgate-Event"), digest["Subject"]) == (["event-2", "event-3"], "Order 42 failed and 1 more")


def test_a_digest_goes_though_another_mail_has_just_gone(mailer: MakeMailer, postbox: MemoryPostbox) -> None:
    """An event between the end of the window and the digest opens a new one; the digest does not wait for it."""
    state = MemoryState()
    sink = mailer(state, digest_s=60)
    sink.handle(delivery(FAILED))
    state.now_s += 60
    assert sink.handle(delivery(FAILED, number=3)) is None
    assert sink.handle_together("ops@example.com", [delivery(FAILED, number=2, attempt=2, deferred=True)]) is None
    assert len(postbox.mails) == 3


def test_too_many_mails_spill_into_a_digest(mailer: MakeMailer, postbox: MemoryPostbox) -> None:
    """Above the rate the rest is deferred together until there is room; a digest counts as one."""
    state = MemoryState()
    sink = mailer(state, rate=2, rate_period_s=100)
    answers = [sink.handle(delivery(FAILED, number=n)) for n in (1, 2, 3, 4)]
    assert answers == [None, None, Defer(state.now_s + 100, together=True), Defer(state.now_s + 100, together=True)]
    held = [delivery(FAILED, number=n, attempt=2, deferred=True) for n in (3, 4)]
    assert sink.handle_together("ops@example.com", held) == Defer(state.now_s + 100, together=True)
    state.now_s += 101
    assert sink.handle_together("ops@example.com", held) is None
    assert len(postbox.mails) == 3


def test_a_mail_that_failed_is_not_held_back_by_itself(mailer: MakeMailer, postbox: MemoryPostbox) -> None:
    """It was let through. The next attempt sends it, and neither the window nor the rate counts it twice."""
    state = MemoryState()
    sink = mailer(state, digest_s=60, rate=3)
    postbox.refusals = [Retry("later")] * 2
    for attempt in (1, 2):
        with pytest.raises(Retry):
            sink.handle(delivery(FAILED, attempt=attempt, admitted=attempt > 1))
    state.now_s += 61
    assert sink.handle(delivery(FAILED, number=4)) is None
    assert sink.handle(delivery(FAILED, attempt=3, admitted=True)) is None
    state.now_s += 61
    postbox.refusals = [Retry("later")] * 1
    held = [delivery(FAILED, number=n, attempt=2, deferred=True) for n in (2, 3)]
    with pytest.raises(Retry):
        sink.handle_together("ops@example.com", held)
    assert sink.handle_together("ops@example.com", [msgspec.structs.replace(each, admitted=True) for each in held]) is None
    assert len(postbox.mails) == 3


def test_it_pauses_with_its_mail_server(mailer: MakeMailer, postbox: MemoryPostbox) -> None:
    """So the worker leaves mails to others."""
    assert mailer().pause_s() == 0
    postbox.refusals = [Retry("421")]
    assert mailer().pause_s() == 7


@pytest.mark.parametrize("limits", [{"digest_s": 60}, {"rate": 1}, {"digest_s": 60, "rate": 1}])
def test_a_mail_from_before_a_kill_goes_as_before(limits: dict[str, int], mailer: MakeMailer, postbox: MemoryPostbox) -> None:
    """At once, under its Message-ID. Joined to a digest it would be a double that no server recognises."""
    state = MemoryState()
    for attempt in (1, 2):
        assert mailer(state, **limits).handle(delivery(FAILED, attempt=attempt)) is None
    state.now_s += 3600
    held = [delivery(FAILED, number=n) for n in (2, 3)]
    for attempt in (2, 3):
        again = [msgspec.structs.replace(each, attempt=attempt, deferred=True) for each in held]
        assert mailer(state, **limits).handle_together("ops@example.com", again) is None

    single, single_again, digest, digest_again = (mail.header("Message-ID") for mail in postbox.mails)
    assert (single, digest) == (single_again, digest_again)
    assert single != digest


def test_a_digest_shows_so_many_and_counts_the_rest(mailer: MakeMailer, postbox: MemoryPostbox) -> None:
    """A mail has a bound, and says how many events it leaves out."""
    sink = mailer(digest_s=60, digest_events=3)
    sink.handle_together("ops@example.com", [delivery({"title": f"Event {n}"}, number=n) for n in range(1, 41)])
    assert "Event 3\n" in postbox.mails[0].text
    assert "Event 4\n" not in postbox.mails[0].text
    assert "and 37 more" in postbox.mails[0].text
    assert postbox.mails[0].message["Subject"] == "Event 1 and 39 more"


def test_a_digest_that_would_be_too_long_shows_less(mailer: MakeMailer, postbox: MemoryPostbox) -> None:
    """Large events make it show fewer of them instead of none at all."""
    sink = mailer(digest_s=60, text="{% for event in events %}{{ event.data }}\n{% endfor %}and {{ more }} more")
    sink.handle_together("ops@example.com", [delivery("x" * 60_000, number=n) for n in range(1, 11)])
    assert postbox.mails[0].text.endswith("and 8 more\n")


def test_an_event_that_does_not_fit_the_templates_is_rejected_before_it_joins_others(mailer: MakeMailer) -> None:
    """Else it would take the whole digest to the dead letters."""
    sink = mailer(digest_s=60, text="{% for event in events %}{{ event.data.total }}{% endfor %}")
    sink.handle(delivery({"total": 1}))
    with pytest.raises(Reject, match="text, line 1"):
        sink.handle(delivery({}, number=2))
    assert sink.handle(delivery({"total": 3}, number=3)) is not None


def test_beyond_the_rate_mails_of_one_event_wait_one_by_one(mailer: MakeMailer) -> None:
    """Templates that speak of one event make no digest."""
    state = MemoryState()
    sink = mailer(state, rate=1, rate_period_s=100, text="{{ event.topic }}")
    assert [sink.handle(delivery(FAILED, number=n)) for n in (1, 2)] == [None, Defer(state.now_s + 100)]


@pytest.mark.parametrize(
    ("given", "channel"), [({}, None), ({"to": None, "to_template": "{{ event.data.email }}"}, "mail")], ids=["fixed", "own"]
)
def test_mail_is_a_channel_of_users_who_have_own_addresses(given: dict[str, Any], channel: str | None) -> None:
    """No user's choice keeps a mail from fixed recipients."""
    assert Email.channel(email_options(**given)) == channel


@pytest.mark.parametrize(
    ("template", "headers"),
    [
        ("https://x.example/u?a={{ recipient|urlencode }}", ["<https://x.example/u?a=ops%40example.com>", ONE_CLICK]),
        ("mailto:leave@x.example?subject={{ event.topic }}", ["<mailto:leave@x.example?subject=orders.42.failed>", None]),
        ("https://x.example/" + "long" * 200, ["<https://x.example/" + "long" * 200 + ">", ONE_CLICK]),
    ],
)
def test_a_mail_says_where_to_unsubscribe(template: str, headers: list[str], mailer: MakeMailer, postbox: MemoryPostbox) -> None:
    """In the head, whole however long it is, for one click where that works; and in the text."""
    mailer(list_unsubscribe=template).handle(delivery(FAILED))
    head = message_from_bytes(postbox.mails[0].content)
    assert [head["List-Unsubscribe"], head["List-Unsubscribe-Post"]] == headers
    assert f"Unsubscribe: {headers[0][1:-1]}" in postbox.mails[0].text


def test_a_preview_is_the_mail_as_text_and_sends_nothing(mailer: MakeMailer, postbox: MemoryPostbox) -> None:
    """It names the recipient and the content, or the reason why there would be no mail."""
    sink = mailer(to=None, to_template="{{ event.data.to }}", text="{{ event.data.n }} left", subject="Low")
    assert sink.preview(delivery({"to": "a@example.com", "n": 3}, key="")) == "To: a@example.com\nSubject: Low\n\n3 left"
    assert sink.preview(delivery({"to": "", "n": 3}, key="")) == "no mail: the event has no recipient"
    assert sink.preview(delivery({"to": "a", "n": 3}, key="")).startswith("no mail: recipient 1 of the event is no mail address")
    assert sink.preview(delivery({"to": "a@example.com"}, key="")).startswith("no mail: text, line 1")
    assert postbox.mails == []


# Injection. The texts of an event never become a header, a recipient or a command. ------------------------------------------


@pytest.mark.parametrize("trick", TRICKS, ids=range(len(TRICKS)))
def test_no_event_adds_a_header_or_a_recipient(trick: str, mailer: MakeMailer, postbox: MemoryPostbox) -> None:
    """A trick in the subject, the URL, the text and the recipient stays text there, or no mail leaves."""
    send_trick(mailer(**TEMPLATES), trick)

    assert postbox.mails
    for mail in postbox.mails:
        check_untouched(mail)


@pytest.mark.parametrize("event_id", ["x\r\nBcc: evil@example.com", "x\nBcc: evil", "x\ry", "ü", "x\x00"])
def test_an_id_that_no_log_holds_makes_no_mail(event_id: str, mailer: MakeMailer, postbox: MemoryPostbox) -> None:
    """The log refuses such ids; if one came all the same, nothing would be sent."""
    with pytest.raises(Reject, match="X-Headgate-Event is not printable ASCII"):
        mailer().handle(delivery(FAILED, id=event_id))
    assert postbox.mails == []
