"""The options of the email consumer, and their joint faults. Reads the named files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from headgate.consumers.base import Delivery
from headgate.consumers.templates import template_faults
from headgate.consumers.values import CA_FILE, FUNCTION, sealed
from headgate.settings.addresses.origins import ascii_host, is_loopback
from headgate.settings.options import SWITCH, Kind, all_parsed, file_path, integer, number, one_of, option, read_words, required
from headgate.settings.options import text as some

from .address import Mailbox, check_address, read_mailbox
from .text import DEFAULT_SUBJECT, MailTemplates

# Ports with one way to begin TLS (RFC 8314, section 7). With the other way each end waits for the other to speak first.
_SECURITY_AT = {465: "tls", 587: "starttls"}
# The most characters of an address by `to_template`.
MAX_ADDRESS_TEXT = 1000


def _addresses(raw: str | Sequence[str]) -> tuple[str, ...]:
    return all_parsed(check_address, read_words(raw))


@dataclass(frozen=True, slots=True)
class EmailOptions:
    """The options of the email consumer."""

    host: str = option(required(), Kind(lambda raw: ascii_host(raw.strip()), "a host name or address"), "The mail server.")
    port: int = option(0, integer(0, 65535), "Its port. 0: 587 with starttls, 465 with tls, 25 with none.")
    security: str = option(
        "starttls", one_of("starttls", "tls", "none"), "Encryption of the connection. `none` is for servers on this machine."
    )
    allow_plain: bool = option(False, SWITCH, 'Allow `security = "none"` to another machine.')
    ca_file: str | None = option(
        None, CA_FILE, "Certificates to trust instead of the system's, for servers with a private certificate authority."
    )
    user: str | None = option(None, some("a user name"), "The login. Not set: none.")
    password: str | None = option(None, sealed(some("").read, "a password"), "Its password.", secret=True)
    timeout_s: float = option(
        30.0,
        number(0.1, 300, "seconds"),
        "Longest time to connect, and to wait for each answer of the server but that to the mail.",
    )
    accept_timeout_s: float = option(
        600.0,
        number(0.1, 3600, "seconds"),
        "Longest wait for the answer after the last byte of a mail (RFC 5321, section 4.5.3.2.6, says ten minutes).",
    )
    mail_from: Mailbox = option(
        required(), Kind(read_mailbox, "an address such as Alerts <alerts@example.com>"), "The sender of the mails."
    )
    to: tuple[str, ...] = option(
        (), Kind(_addresses, "addresses such as ops@example.com, comma-separated"), "Fixed recipients. Each gets a separate mail."
    )
    to_function: Callable[[Delivery], Any] | None = option(
        None, FUNCTION, "A function of yours that gets the delivery and returns a list of addresses. An empty list: no mail."
    )
    to_template: str | None = option(
        None, some("a template such as {{ event.data.email }}"), "A template that makes one address from `event`. Blank: no mail."
    )
    max_recipients: int = option(50, integer(1, 1000), "Most recipients of one event; an event with more becomes a dead letter.")
    subject: str = option(DEFAULT_SUBJECT, some("a template"), "The subject.")
    text: str | None = option(None, some("a template"), "The text. With neither text nor html, a plain built-in layout.")
    text_file: str | None = option(None, file_path("the path of a template"), "The same in a file.")
    html: str | None = option(None, some("a template"), "The HTML beside the text; values are escaped.")
    html_file: str | None = option(None, file_path("the path of a template"), "The same in a file.")
    list_unsubscribe: str | None = option(
        None,
        some("a template of a URL"),
        "URL to unsubscribe: a header of the mail, and `unsubscribe` in templates. An https URL must accept a POST (one click).",
    )
    digest_s: float = option(
        0.0,
        number(0, 7 * 86400, "seconds"),
        "After a mail to a recipient, collect further events for this long into one mail. 0: off.",
    )
    digest_events: int = option(50, integer(1, 200), "Most events that one mail shows; it says how many more there are.")


def check_options(options: EmailOptions) -> list[str]:
    """Return the joint faults of valid options, a line each."""
    return [*_server_faults(options), *_recipient_faults(options), *MailTemplates.check(options)]


def _server_faults(options: EmailOptions) -> list[str]:
    faults = []
    if options.security == "none" and not options.allow_plain and not is_loopback(options.host):
        faults.append("security='none': expected starttls or tls to another machine, or allow_plain = true")
    if options.security != "none" and (expected := _SECURITY_AT.get(options.port, options.security)) != options.security:
        faults.append(f"port={options.port} with security={options.security!r}: expected security = {expected!r} at this port")
    if options.security == "none" and options.ca_file is not None:
        faults.append("ca_file is given with security='none'; expected starttls or tls")
    if (options.user is None) != (options.password is None):
        faults.append("user and password go together; expected both or neither")
    if not f"{options.user}{options.password}".isascii():
        faults.append("user, password: expected ASCII characters")
    return faults


def _recipient_faults(options: EmailOptions) -> list[str]:
    given = [name for name in ("to", "to_function", "to_template") if getattr(options, name)]
    if len(given) != 1:
        what = f"{' and '.join(given)} are given" if given else "to is missing"
        return [f"{what}; expected one of to, to_function, to_template"]
    faults = []
    if len(options.to) > options.max_recipients:
        faults.append(f"to: expected at most {options.max_recipients} addresses (max_recipients)")
    return faults + template_faults("to_template", options.to_template, MAX_ADDRESS_TEXT)
