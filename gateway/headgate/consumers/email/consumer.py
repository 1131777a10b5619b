"""The email consumer: events as mails, to fixed addresses or to those that the event names.

In: deliveries. Out: one mail per recipient, each a part of the event's work with its own retries. Between the two stand two
questions, in this order: has this recipient had a mail just now (`digest_s`: the first goes at once, the next are collected), and
too many (`rate`: the rest is collected until there is room, or waits one by one if the templates speak of one event only).

A mail is sent at least once. Its Message-ID is made of what it is about, so a double is recognisable.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from itertools import islice
from typing import Protocol

from headgate.consumers.base import Consumer, Context, Defer, Delivery, Reject, Retry
from headgate.consumers.functions import FUNCTION
from headgate.consumers.templates import Template, TemplateFault, view
from headgate.errors import BusRefused, BusUnavailable
from headgate.metrics import MAILS
from headgate.runtime.importing import import_string

from .address import check_address
from .message import Mail, compose
from .options import EmailOptions, check_options, one_address, server_of
from .smtp import MailServer
from .text import MailTemplates

# How long it is remembered that a mail had been let through: while it may be on its way and its process die, and once it has
# failed, as long as the runner usually goes on trying.
SENDING_S = 3600.0
ADMITTED_S = 86400.0
MAX_REASON_CHARACTERS = 200
# Starts the key of a recipient that is no address; no address has a blank.
_NO_ADDRESS = "# "


class Postbox(Protocol):
    """Takes the mails of one worker: `smtp.MailServer`."""

    def send(self, mail: Mail) -> None:
        """Hand over one mail.

        Raises:
            Retry: not now; the mail is unchanged and may come again.
            OutcomeUnknown: the server may have it.
            Reject: this mail will never be taken.
        """

    def close(self) -> None:
        """Close the connection; idempotent."""


class Email(Consumer):
    """Sends mails through one SMTP server. A part of an event's work is a recipient's address.

    Args:
        options, context: as every consumer's.
        postbox: takes the mails; None: the SMTP server that the options name.
    """

    Options = EmailOptions
    keeps_rate = True

    def __init__(self, options: EmailOptions, context: Context, postbox: Postbox | None = None) -> None:
        super().__init__(options, context)
        self._options = options
        self._templates = MailTemplates(options)
        self._to_template = one_address("to_template", options.to_template)
        self._to_function = import_string(options.to_function, FUNCTION) if options.to_function else None
        self._postbox = MailServer(server_of(options), context.name) if postbox is None else postbox

    @classmethod
    def check(cls, options: EmailOptions, patterns: Sequence[str]) -> list[str]:
        """Return what is wrong with addresses, templates, files, the login, and options that need each other."""
        return check_options(options)

    @classmethod
    def channel(cls, options: EmailOptions) -> str | None:
        """Return `mail`, or None where the recipients are fixed: no user's choice keeps a mail from them."""
        return None if options.to else "mail"

    def keys(self, delivery: Delivery) -> Sequence[str]:
        """Return the recipients' addresses, each once. One that is no address is a part too, and will be rejected alone.

        Raises:
            Reject: there are too many, or `to_template` does not go with the event.
        """
        recipients = self._recipients(delivery)
        if len(recipients) > self._options.max_recipients:
            raise Reject(f"the event has more than {self._options.max_recipients} recipients (max_recipients)")
        keys: dict[str, None] = {}
        for place, raw in enumerate(recipients, 1):
            try:
                keys[check_address(raw)] = None
            except ValueError as error:
                keys[f"{_NO_ADDRESS}recipient {place} of the event is no mail address: {error}"] = None
        return tuple(keys)

    def handle(self, delivery: Delivery) -> Defer | None:
        """Send one recipient's mail about one event, or hold it."""
        if delivery.key.startswith(_NO_ADDRESS):
            raise Reject(delivery.key.removeprefix(_NO_ADDRESS))
        # Before it is deferred: an event that the templates do not go with must not take a whole digest along.
        mail = self._compose([delivery], delivery.key)
        hold = self._admit(delivery, together=False)
        if hold is None:
            self._send(mail, delivery, "single")
        return hold

    def handle_together(self, key: str, deliveries: Sequence[Delivery]) -> Defer | None:
        """Send one recipient's mail about all that was collected."""
        mail = self._compose(deliveries, key)
        hold = self._admit(deliveries[0], together=True)
        if hold is None:
            self._send(mail, deliveries[0], "digest")
        return hold

    def preview(self, delivery: Delivery) -> str:
        """Return the mail as text, without sending it or asking anything of anyone."""
        try:
            keys = self.keys(delivery)
            found = [key for key in keys if not key.startswith(_NO_ADDRESS)]
            if not found:
                return "no mail: " + (keys[0].removeprefix(_NO_ADDRESS) if keys else "the event has no recipient")
            said, _ = self._templates.render([delivery], found[0])
        except (Reject, TemplateFault) as error:
            return f"no mail: {error}"
        return f"To: {', '.join(found)}\nSubject: {said.subject}\n\n{said.text}"

    def close(self) -> None:
        """Let go of the connection."""
        self._postbox.close()

    def _recipients(self, delivery: Delivery) -> Sequence[object]:
        if self._to_template is not None:
            address = _rendered(self._to_template, delivery)
            return [address] if address else []
        if self._to_function is not None:
            found = self._to_function(delivery)
            # One more than may be, so that `keys` sees that there are too many.
            return [found] if isinstance(found, str) else list(islice(found or (), self._options.max_recipients + 1))
        return self._options.to

    def _compose(self, deliveries: Sequence[Delivery], recipient: str) -> Mail:
        first, last = deliveries[0], deliveries[-1]
        identity = first.identity if len(deliveries) == 1 else f"{first.identity} to {last.identity}, {len(deliveries)}"
        sender = self._options.mail_from
        try:
            said, event_ids = self._templates.render(deliveries, recipient)
            return compose(sender, recipient, said, identity, event_ids)
        except (TemplateFault, ValueError) as error:
            raise Reject(str(error)[:MAX_REASON_CHARACTERS]) from error

    def _admit(self, delivery: Delivery, *, together: bool) -> Defer | None:
        """Return None when this recipient may have a mail now, else until when to collect. A mail is let through once.

        That is remembered before it is sent: after a kill the same mail goes again, and does not join a digest as another one.
        """
        options, context, state, recipient = self._options, self.context, self.context.state, delivery.key
        if not (options.digest_s or context.rate) or (delivery.attempt > 1 and state.get(_admitted(delivery))):
            return None
        if options.digest_s:
            # A digest opens the next window: what comes right after it is collected again.
            ends_s = state.window(f"digest {recipient}", options.digest_s)
            if ends_s is not None and not together:
                return Defer(ends_s, together=True)
        if context.rate:
            room_s = state.within_rate(f"rate {recipient}", context.rate, context.rate_period_s)
            if room_s is not None:
                return Defer(room_s, together=together or self._templates.speak_of_several)
        state.put(_admitted(delivery), b"1", SENDING_S)
        return None

    def _send(self, mail: Mail, first: Delivery, kind: str) -> None:
        try:
            self._postbox.send(mail)
        except Retry:
            if self._options.digest_s or self.context.rate:
                with suppress(BusUnavailable, BusRefused):  # which would hide that the outcome is unknown; SENDING_S still holds
                    self.context.state.put(_admitted(first), b"1", ADMITTED_S)
            raise
        MAILS.labels(self.context.name, kind).inc()


def _admitted(delivery: Delivery) -> str:
    return f"admitted {delivery.identity}"


def _rendered(template: Template, delivery: Delivery) -> str:
    try:
        return template.render({"event": view(delivery)}).strip()
    except TemplateFault as fault:
        raise Reject(str(fault)) from fault
