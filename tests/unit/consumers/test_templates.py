"""templates.py: the variables of a template, its faults, and secrets that it never reveals."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from headgate.consumers.base import Delivery
from headgate.consumers.templates import SAMPLE, EventView, Template, TemplateFault, TextTooLong, message_faults, view


def event(data: Any) -> dict[str, Any]:
    """Return the values of a template for an event with this data."""
    return {
        "event": EventView("orders.42.failed", "e1", datetime(2026, 11, 21, 9, 5, tzinfo=UTC), data, "shop", 7, "", "A title")
    }


@pytest.mark.parametrize(
    ("source", "data", "text"),
    [
        ("{{ event.topic }} at {{ event.time.strftime('%H:%M') }}", {}, "orders.42.failed at 09:05"),
        ("{{ event.data.customer.name }}", {"customer": {"name": "Zoë"}}, "Zoë"),
        ("{{ event.data.items }}, {{ event.data.values }}", {"items": [1], "values": 2}, "[1], 2"),
        ("{% for k, v in event.data|items %}{{ k }}={{ v }};{% endfor %}", {"items": 1, "b": 2}, "items=1;b=2;"),
        ("{{ event.data.total|default('none') }}", {}, "none"),
        ("{{ event.data.net * 2 }}", {"net": 21}, "42"),
        ("{% if event.data.note is defined %}note{% endif %}", {}, ""),
    ],
)
def test_a_template_says_what_the_event_holds(source: str, data: Any, text: str) -> None:
    """Names are the event's and its data's; a key called like a method of a dict is still the data's."""
    assert Template("text", source).render(event(data)) == text


def test_html_is_escaped_and_text_is_not() -> None:
    """The text of an event is never markup in HTML, and is left alone in text."""
    values = event({"title": "<script>alert(1)</script>"})
    assert Template("html", "{{ event.data.title }}", html=True).render(values) == "&lt;script&gt;alert(1)&lt;/script&gt;"
    assert Template("text", "{{ event.data.title }}").render(values) == "<script>alert(1)</script>"


def test_json_in_a_text_is_for_people() -> None:
    """Letters, & and < are written as they are; in HTML they are escaped as any other text."""
    values, source = event({"tags": ["R&D", "Zoë's <b>"]}), "{{ event.data.tags|tojson }}"
    assert Template("text", source).render(values) == '["R&D", "Zoë\'s <b>"]'
    assert Template("html", source, html=True).render(values) == "[&#34;R&amp;D&#34;, &#34;Zoë&#39;s &lt;b&gt;&#34;]"
    assert Template("text", "{{ event.data|tojson(indent=1) }}").render(event({"a": 1})) == '{\n "a": 1\n}'


@pytest.mark.parametrize(
    ("source", "data", "wrong"),
    [
        ("{{ event.data.nobody }}", {}, "a name that is not there"),
        ("{{ event.data.a + 1 }}", {"a": "the secret"}, "TypeError"),
        ("{{ event.data[event.data.a] }}", {"a": "the secret"}, "a name that is not there"),
        ("{{ event.__class__ }}", {}, "not allowed in a template"),
        ("{{ event.data.a.format(1) }}", {"a": "{0.__class__}"}, "not allowed in a template"),
        ("{{ event.data.a.append(1) }}", {"a": []}, "not allowed in a template"),
        ("{{ event.data.a * 1000000000 }}", {"a": "x"}, "not allowed in a template"),
        ("{{ event.data.a ** 1000000 }}", {"a": 9}, "not allowed in a template"),
        ("{% include 'passwd' %}", {}, "one template cannot include another"),
    ],
)
def test_a_fault_quotes_the_template_and_never_the_event(source: str, data: Any, wrong: str) -> None:
    """The line of the template says where to look; the data of the event is not repeated."""
    with pytest.raises(TemplateFault) as raised:
        Template("text", "Dear customer,\n" + source).render(event(data))
    assert str(raised.value) == f"text, line 2 ({source}): {wrong}"


def test_a_text_above_the_limit_is_refused_while_it_grows() -> None:
    """A loop that would write for ever is stopped at the limit."""
    endless = Template("text", "{% for i in range(90000) %}{% for j in range(90000) %}text{% endfor %}{% endfor %}", limit=1000)
    with pytest.raises(TextTooLong, match="longer than 1000 characters"):
        endless.render(event({}))


@pytest.mark.parametrize(
    ("source", "fault"),
    [
        ("{{ event.topic", "text, line 1: unexpected end of template, expected 'end of print statement'."),
        ("\n{{ event.topic|shout }}", "text, line 2: No filter named 'shout'."),
        ("x" * 100_001, "text is longer than 100000 characters"),
    ],
)
def test_a_source_that_is_no_template_is_refused_at_once(source: str, fault: str) -> None:
    """Syntax, unknown filters and sheer size are found without any event."""
    with pytest.raises(TemplateFault) as raised:
        Template("text", source)
    assert str(raised.value) == fault


@pytest.mark.parametrize(
    ("source", "fault"),
    [
        ("{{ evnt.topic }}", "text: unknown name 'evnt'; there are event"),
        ("{{ event.topc }}", "text, line 1 ({{ event.topc }}): a name that is not there"),
        ("{{ event.__class__ }}", "text, line 1 ({{ event.__class__ }}): not allowed in a template"),
        ("{% for i in range(99999) %}long{% endfor %}", "text: the text is longer than 10000 characters"),
        ("{{ event.data.anything.at[0].all|round(2) }} {{ event.data.n > 3 and 'a' in event.data.words }}", None),
        ("{% for line in event.data.lines %}{{ line.price * 1.2 }} {{ '%.2f'|format(line.sum) }}{% endfor %}", None),
        ("{% for key, value in event.data|dictsort %}{{ key }}: {{ value|upper|truncate(9) }}{% endfor %}", None),
    ],
)
def test_a_check_finds_what_is_wrong_whatever_the_event(source: str, fault: str | None) -> None:
    """Names of ours are known before the first event; names inside the data are not."""
    assert Template("text", source).check({"event": SAMPLE}) == fault


def test_a_view_has_the_user_of_a_users_own_topic() -> None:
    """`users.<user>.…` names the user; no other topic does."""
    delivery = Delivery("users.42.orders.failed", b'{"total": 3}', "e1", 1_000, "e" * 16, 5, "shop")
    seen = view(delivery)
    assert (seen.user, seen.data, seen.time, seen.offset) == ("42", {"total": 3}, datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), 5)
    topics = {
        "users.42": "",
        "users": "",
        "orders.42.failed": "",
        "users.a-b.x": "a-b",
        "users.ana__40example__2eorg.x": "ana@example.org",
    }
    assert {topic: view(msgspec.structs.replace(delivery, topic=topic)).user for topic in topics} == topics


@pytest.mark.parametrize(
    ("title", "body", "expected"),
    [
        (None, None, []),
        ("{{ event.topic }}", "{{ event.data.order }}", []),
        ("x" * 1001, "x" * 1001, ["title: the text is longer than 1000 characters"]),
        (
            "{{ evnt }}",
            "{% if %}",
            ["title: unknown name 'evnt'; there are event", "body, line 1: Expected an expression, got 'end of statement block'"],
        ),
    ],
)
def test_each_template_of_a_message_has_a_line_for_its_fault(title: str | None, body: str | None, expected: list[str]) -> None:
    """A fault of the title does not hide that of the body."""
    assert message_faults(title, body) == expected
