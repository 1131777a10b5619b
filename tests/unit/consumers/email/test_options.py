"""email_options.py: the faults of a table of an email consumer, each in one line."""

from pathlib import Path
from typing import Any

import certifi
import pytest

from headgate.consumers.email.options import EmailOptions, check_options
from headgate.settings.options import read_options

NAMES = "there are count, event, events, more, recipient"
PLAIN = "security='none': expected starttls or tls to another machine, or allow_plain = true"
ONE_ONLY = "text does not speak of `events`, but digest_s makes one mail of several"
EVERY = {"host": "127.0.0.1", "security": "none", "mail_from": "a@example.org", "to": ["jo@example.com"]}
LOOP = "{% for event in events %}{{ event.topic }}{% endfor %}"


def faults(**given: Any) -> list[str]:
    """Return the faults of a table with `given` beside the required options; a None takes something out."""
    options, found = read_options(EmailOptions, {**EVERY, **given}, "an option of email")
    return [fault.line() for fault in found] if options is None else check_options(options)


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"security": "starttls", "host": "mail.example.com", "user": "me", "password": "secret"},
        {"security": "none", "host": "mail.example.com", "allow_plain": True},
        {"host": "::1"},
        {"host": "localhost"},
        {"to": None, "to_template": "{{ event.data.customer.email|lower }}"},
        {"to": None, "to_function": "os.path:basename"},
        {"text": "{{ event.data.anything }}"},
        {"text": LOOP, "html": LOOP, "digest_s": 60},
        {"list_unsubscribe": "https://example.com/{{ recipient|urlencode }}"},
    ],
)
def test_a_good_table_has_no_fault(given: dict[str, Any]) -> None:
    """Each way to give recipients, content and time."""
    assert faults(**given) == []


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        ({"host": None}, "host is missing; expected a host name or address"),
        ({"host": "mail..example"}, "host='mail..example': expected a host name or address"),
        ({"host": "smtp://mail"}, "host='smtp://mail': expected a host name or address"),
        ({"host": "mail.example.com:25"}, "host='mail.example.com:25': expected a host name or address"),
        ({"host": "mail\nexample"}, "host='mail\\nexample': expected a host name or address"),
        ({"host": "mail.example.com"}, PLAIN),
        ({"host": "127.0.0.1.example.com"}, PLAIN),
        ({"security": "ssl"}, "security='ssl': expected starttls, tls or none"),
        ({"security": "starttls", "port": 465}, "port=465 with security='starttls': expected security = 'tls' at this port"),
        ({"security": "tls", "port": 587}, "port=587 with security='tls': expected security = 'starttls' at this port"),
        ({"port": 65536}, "port=65536: expected a whole number from 0 to 65535"),
        ({"mail_from": "Jo"}, "mail_from='Jo': expected an address such as Alerts <alerts@example.com>"),
        ({"mail_from": "Jo\r\nBcc: x <a@example.com>"}, "expected an address such as Alerts <alerts@example.com>"),
        ({"from": "a@example.com"}, "from is not an option of email; did you mean mail_from?"),
        ({"to": ["a@x.example", "jo"]}, "comma-separated; 'jo': expected exactly one @"),
        ({"to": None}, "to is missing; expected one of to, to_function, to_template"),
        ({"to_template": "{{ event.id }}"}, "to and to_template are given; expected one of to, to_function, to_template"),
        ({"to": None, "to_template": "{{ evnt.id }}"}, "to_template: unknown name 'evnt'; there are event"),
        ({"to": None, "to_function": "os:sep"}, "to_function='os:sep': expected a function"),
        ({"to": ["a@x.example", "b@x.example"], "max_recipients": 1}, "to: expected at most 1 addresses (max_recipients)"),
        ({"user": "me"}, "user and password go together; expected both or neither"),
        ({"password": "secret"}, "user and password go together; expected both or neither"),
        ({"user": "me", "password": "pässword"}, "user, password: expected ASCII characters"),
        ({"security": "tls", "ca_file": "/nowhere.pem"}, "ca_file='/nowhere.pem': no such file or directory"),
        ({"ca_file": certifi.where()}, "ca_file is given with security='none'; expected starttls or tls"),
        ({"subject": "{{ event.topic"}, "subject, line 1: unexpected end of template"),
        ({"subject": "{{ subject }}"}, f"subject: unknown name 'subject'; {NAMES}"),
        ({"text": "{{ event.nothing }}"}, "text, line 1 ({{ event.nothing }}): a name that is not there"),
        ({"text": "x", "html": "{{ event.id|shout }}"}, "html, line 1: No filter named 'shout'."),
        ({"html": "<p>x</p>"}, "html is given without text; expected both, for readers that show no HTML"),
        ({"text": "x", "text_file": "x.txt"}, "text and text_file are both given; expected one of them"),
        ({"text_file": "a\0b"}, "text_file='a\\x00b': expected the path of a template"),
        ({"html_file": "\ud800"}, "html_file='\\ud800': expected the path of a template"),
        ({"text_file": "/nowhere.txt"}, "text_file='/nowhere.txt': no such file or directory"),
        ({"text": "{{ event.topic }}", "digest_s": 60}, ONE_ONLY),
        ({"list_unsubscribe": "{{ user }}"}, f"list_unsubscribe: unknown name 'user'; {NAMES}"),
        ({"list_unsubscribe": "example.com/u?{{ recipient }}"}, "list_unsubscribe: expected a URL of at most 900 characters"),
        ({"digest_s": -1}, "digest_s=-1: expected a number from 0 to 604800 seconds"),
        ({"timeout_s": 0}, "timeout_s=0: expected a number from 0.1 to 300 seconds"),
    ],
)  # fmt: skip
def test_a_fault_is_one_line(given: dict[str, Any], fault: str) -> None:
    """It names the option, the fault and the expected value, and nothing else is said beside it."""
    (found,) = faults(**given)
    assert fault in found
    assert "\n" not in found


def test_all_faults_are_told_together() -> None:
    """Of every kind, and of several templates."""
    found = faults(to=None, text="{{ a b }}", subject="{{ x }}", html_file="/nowhere.html", digest_s=1)
    assert [line.split(":")[0].split(",")[0] for line in found] == [
        "to is missing; expected one of to", "html_file='/nowhere.html'", "text", "subject",
    ]  # fmt: skip


def test_templates_come_from_files(tmp_path: Path) -> None:
    """UTF-8, of a bounded size, and checked like the others."""
    good, large, bad, latin = (tmp_path / name for name in ("good", "large", "bad", "latin"))
    good.write_text("{{ event.topic }} – überall")
    large.write_text("x" * 100_001)
    bad.write_text("{{ evnt }}")
    latin.write_bytes("ü".encode("latin-1"))
    assert faults(text_file=str(good), html_file=str(good)) == []
    assert "expected at most 100000 bytes" in faults(text_file=str(large))[0]
    assert "text: unknown name 'evnt'" in faults(text_file=str(bad))[0]
    assert "expected UTF-8 text" in faults(text_file=str(latin))[0]


def test_a_password_is_never_shown() -> None:
    """Neither in a fault nor in the repr of the options."""
    assert "geheim" not in str(faults(user="me", password=["geheim"]))
    options, _ = read_options(EmailOptions, {**EVERY, "user": "me", "password": "geheim"})
    assert "geheim" not in repr(options)
