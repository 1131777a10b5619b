"""Renders the templates of a mail for one event or several. Reads the files named by options.

In: events, as templates see them. Out: a `MailText`. The same templates serve a single event and a digest: `events` are the
shown events, oldest first, `event` is the first of them, `count` counts all, `more` the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from typing import TYPE_CHECKING

from headgate.consumers.base import Delivery
from headgate.consumers.templates import SAMPLE, EventView, Template, TemplateFault, TextTooLong, view

from .message import EXPECTED_URL, MAX_URL_CHARACTERS, URL_STARTS, MailText, header_url, one_line

if TYPE_CHECKING:
    from .options import EmailOptions

MAX_FILE_BYTES = 100_000
MAX_TEXT_CHARACTERS = 200_000
DEFAULT_SUBJECT = "{{ event.title }}{% if count > 1 %} and {{ count - 1 }} more{% endif %}"
_BODIES = ("text", "html")


class MailTemplates:
    """The compiled templates of one consumer. Raises TemplateFault for a fault that `check` reports."""

    def __init__(self, options: EmailOptions) -> None:
        self._shown_events = options.digest_events
        self._compiled, faults = _compile(options)
        if faults:
            raise TemplateFault("; ".join(faults))
        self.speak_of_several = all("events" in self._compiled[name].names for name in _BODIES if name in self._compiled)

    @staticmethod
    def check(options: EmailOptions) -> list[str]:
        """Return the faults of files and templates that are independent of the event, a line each."""
        compiled, faults = _compile(options)
        sample = _values([SAMPLE, SAMPLE], 5, "sample@example.com")
        whole = {**sample, "subject": "sample", "unsubscribe": "https://example.com"}
        for name, template in compiled.items():
            if fault := template.check(whole if name in _BODIES else sample):
                faults.append(fault)
            if options.digest_s and name in _BODIES and "events" not in template.names:
                faults.append(
                    f"{name} does not speak of `events`, but digest_s makes one mail of several; "
                    "expected {% for event in events %}"
                )
        if not (options.list_unsubscribe or "{").lstrip().startswith(("{", *URL_STARTS)):
            faults.append(f"list_unsubscribe: expected {EXPECTED_URL}")
        return faults

    def render(self, deliveries: Sequence[Delivery], recipient: str) -> tuple[MailText, list[str]]:
        """Return the text of the mail about the first events, as many as fit, and their ids.

        Raises TemplateFault if the templates do not fit these events, or if not even one event fits.
        """
        shown = deliveries[: self._shown_events]
        while True:
            try:
                return self._render(shown, len(deliveries), recipient), [delivery.id or "" for delivery in shown]
            except TextTooLong:
                if len(shown) == 1:
                    raise
                shown = shown[: len(shown) // 2]

    def _render(self, shown: Sequence[Delivery], count: int, recipient: str) -> MailText:
        compiled, values = self._compiled, _values([view(delivery) for delivery in shown], count, recipient)
        url = None
        if (template := compiled.get("list_unsubscribe")) and (url := header_url(template.render(values))) is None:
            raise TemplateFault(f"list_unsubscribe: expected {EXPECTED_URL}")
        subject = one_line(compiled["subject"].render(values))
        values.update(subject=subject, unsubscribe=url or "")
        html = compiled["html"].render(values) if "html" in compiled else None
        return MailText(subject, compiled["text"].render(values), html, url)


def _compile(options: EmailOptions) -> tuple[dict[str, Template], list[str]]:
    """Return the valid templates by name, and the faults of the others."""
    sources, faults = {"subject": options.subject, "list_unsubscribe": options.list_unsubscribe}, []
    for name in _BODIES:
        try:
            sources[name] = _source(options, name)
        except TemplateFault as fault:
            faults.append(str(fault))
    if sources.get("html") is not None and options.text is None and options.text_file is None:
        faults.append("html is given without text; expected both, for readers that show no HTML")
    if not faults and sources["text"] is None:
        sources["text"], sources["html"] = _default("mail.txt"), _default("mail.html")
    compiled = {}
    for name, source in sources.items():
        if source is not None:
            try:
                limit = MAX_URL_CHARACTERS if name == "list_unsubscribe" else MAX_TEXT_CHARACTERS
                compiled[name] = Template(name, source, html=name == "html", limit=limit)
            except TemplateFault as fault:
                faults.append(str(fault))
    return compiled, faults


def _values(shown: Sequence[EventView], count: int, recipient: str) -> dict[str, object]:
    return {"event": shown[0], "events": shown, "count": count, "more": count - len(shown), "recipient": recipient}


def _source(options: EmailOptions, name: str) -> str | None:
    """Return the template `name`, from the options or from the file that they name."""
    inline, path = getattr(options, name), getattr(options, f"{name}_file")
    if path is None:
        return inline  # type: ignore[no-any-return]
    if inline is not None:
        raise TemplateFault(f"{name} and {name}_file are both given; expected one of them")
    try:
        with open(path, "rb") as file:
            source = file.read(MAX_FILE_BYTES + 1)
        if len(source) > MAX_FILE_BYTES:
            raise TemplateFault(f"{name}_file={path!r}: expected at most {MAX_FILE_BYTES} bytes")
        return source.decode()
    except (OSError, UnicodeDecodeError) as error:
        reason = (error.strerror or str(error)).lower() if isinstance(error, OSError) else "expected UTF-8 text"
        raise TemplateFault(f"{name}_file={path!r}: {reason}") from error


def _default(name: str) -> str:
    return files("headgate.consumers.email").joinpath(name).read_text("utf-8")
