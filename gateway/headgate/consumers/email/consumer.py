"""The email consumer sends events as mails, to fixed addresses or to addresses from the event.

In: deliveries. Out: one mail per recipient, each a part of the event's work with separate retries. Two checks precede each
mail, in this order. With `digest_s`, the first mail to a recipient goes at once, and the next ones are collected. Mails beyond
`rate` are collected until there is room, or wait one by one if the templates handle only a single event.

A mail is sent at least once. Its Message-ID depends only on its events and recipient, so duplicates are recognizable.
"""

from __future__ import annotations

from collections.abc import Sequence

from headgate.consumers.base import Consumer, Context, Defer, Delivery, Reject
from headgate.consumers.templates import Template, TemplateFault, render_event
from headgate.consumers.values import as_list
from headgate.runtime.metrics import MAILS

from .address import check_address
from .message import compose
from .options import MAX_ADDRESS_TEXT, EmailOptions, check_options
from .smtp import MailServer
from .text import MailTemplates

# Prefix of the key of an invalid recipient. A valid address contains no blank.
_NO_ADDRESS = "# "


class Email(Consumer):
    """Sends mails through one SMTP server. A part of an event's work is a recipient's address.

    Args:
        postbox: takes the mails; None for the SMTP server of the options.
    """

    Options = EmailOptions
    keeps_rate = True

    def __init__(self, options: EmailOptions, context: Context, postbox: MailServer | None = None) -> None:
        super().__init__(options, context)
        self._options = options
        self._templates = MailTemplates(options)
        source = options.to_template
        self._to_template = None if source is None else Template("to_template", source, limit=MAX_ADDRESS_TEXT)
        self._postbox = MailServer(options) if postbox is None else postbox

    @classmethod
    def check(cls, options: EmailOptions, patterns: Sequence[str]) -> list[str]:
        """Return the faults of addresses, templates, files, the login, and options that depend on each other."""
        return check_options(options)

    @classmethod
    def channel(cls, options: EmailOptions) -> str | None:
        """Return `mail`, or None for fixed recipients, because users cannot mute their mails."""
        return None if options.to else "mail"

    def keys(self, delivery: Delivery) -> Sequence[str]:
        """Return the recipients' addresses, without duplicates. An invalid address is also a part, and is rejected alone.

        Raises Reject for too many, or if `to_template` does not fit the event.
        """
        recipients: Sequence[object] = self._options.to
        if self._to_template is not None:
            recipients = [address] if (address := render_event(self._to_template, delivery)) else []
        elif (function := self._options.to_function) is not None:
            most = self._options.max_recipients
            recipients = as_list(function(delivery), most, f"the event has more than {most} recipients (max_recipients)")
        keys: dict[str, None] = {}
        for place, raw in enumerate(recipients, 1):
            try:
                keys[check_address(raw)] = None
            except ValueError as error:
                keys[f"{_NO_ADDRESS}recipient {place} of the event is no mail address: {error}"] = None
        return tuple(keys)

    def handle(self, delivery: Delivery) -> Defer | None:
        """Send one recipient's mail about one event, or defer it."""
        if delivery.key.startswith(_NO_ADDRESS):
            raise Reject(delivery.key.removeprefix(_NO_ADDRESS))
        return self._mail([delivery], "single")

    def handle_together(self, key: str, deliveries: Sequence[Delivery]) -> Defer | None:
        """Send one recipient's mail about all collected events, or one mail each if the templates have changed since."""
        if len(deliveries) > 1 and not self._templates.speak_of_several:
            return Defer(0.0)
        return self._mail(deliveries, "digest")

    def pause_s(self) -> float:
        return self._postbox.pause_s()

    def preview(self, delivery: Delivery) -> str:
        """Return the mail as text, without sending it or contacting any server."""
        try:
            keys = self.keys(delivery)
            recipients = [key for key in keys if not key.startswith(_NO_ADDRESS)]
            if not recipients:
                return "no mail: " + (keys[0].removeprefix(_NO_ADDRESS) if keys else "the event has no recipient")
            message, _ = self._templates.render([delivery], recipients[0])
        except (Reject, TemplateFault) as error:
            return f"no mail: {error}"
        return f"To: {', '.join(recipients)}\nSubject: {message.subject}\n\n{message.text}"

    def close(self) -> None:
        """Close the connection."""
        self._postbox.close()

    def _mail(self, deliveries: Sequence[Delivery], kind: str) -> Defer | None:
        first, last = deliveries[0], deliveries[-1]
        identity = first.identity if len(deliveries) == 1 else f"{first.identity} to {last.identity}, {len(deliveries)}"
        try:
            # Before deferring, because an event that does not fit the templates must not spoil a whole digest.
            text, event_ids = self._templates.render(deliveries, first.key)
            if (hold := self._admit(first, together=kind == "digest")) is not None:
                return hold
            mail = compose(self._options.mail_from, first.key, text, identity, event_ids)
        except (TemplateFault, ValueError) as error:
            raise Reject(error) from error
        self._postbox.send(mail)
        MAILS.labels(self.context.name, kind).inc()
        return None

    def _admit(self, delivery: Delivery, *, together: bool) -> Defer | None:
        """Return None if this recipient may get a mail now, else until when to collect. Each mail is admitted once.

        Redis counts a mail once in its period, so after a kill the same mail is sent again and does not join a digest.
        """
        options, context, state, recipient = self._options, self.context, self.context.state, delivery.key
        if delivery.admitted:
            return None
        if options.digest_s:
            # One mail in each window. A digest opens the next one, so events right after it are collected again.
            ends_s = state.within_rate(f"digest {recipient}", 1, options.digest_s, delivery.identity)
            if ends_s is not None and not together:
                return Defer(ends_s, together=True)
        room_s = None
        if context.rate:
            room_s = state.within_rate(f"rate {recipient}", context.rate, context.rate_period_s, delivery.identity)
        return None if room_s is None else Defer(room_s, together=together or self._templates.speak_of_several)
