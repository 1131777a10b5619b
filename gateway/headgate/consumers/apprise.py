"""Apprise: events as short messages to any service that the library Apprise knows by URL. The one file that meets Apprise.

In: deliveries. Out: one call of Apprise for each of the URLs, each a part of the work by itself: what one service does not take
is tried again there alone, three times at most. Apprise connects wherever its URLs say, which come from the operator, never from
an event; a redirect is followed only where a URL has `redirect=yes`.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass

import apprise

from headgate.options import Kind, number, option, text

from .base import Consumer, Context, Delivery, OutcomeUnknown, Reject
from .credentials import need_secret
from .templates import SAMPLE, Template, TemplateFault, view

MAX_URLS = 32
EXPECTED_URLS = f"1 to {MAX_URLS} Apprise URLs such as tgram://token/chat, a list or a text with spaces between"
# Before the third attempt, so that three attempts outlast an outage of an hour.
LAST_ATTEMPT_AFTER_S = 3600.0
MAX_TITLE_CHARACTERS, MAX_BODY_CHARACTERS = 1_000, 32_000
DEFAULT_TITLE = "{{ event.data.title if event.data is mapping and event.data.title is string else event.topic }}"
DEFAULT_BODY = """\
{% if event.data is mapping %}
{% for key, value in (event.data|items|list)[:20] if key != "title" %}
{{ key|truncate(60) }}: {{ (value if value is string else value|tojson)|string|truncate(500) }}
{% endfor %}
{% else %}
{{ (event.data if event.data is string else event.data|tojson)|string|truncate(2000) }}
{% endif %}
"""

# Below this level they write whole URLs and payloads.
for _name in ("apprise", "urllib3"):
    logging.getLogger(_name).setLevel(logging.WARNING)


def _urls(raw: str | Sequence[str]) -> str:
    words = raw.split() if isinstance(raw, str) else [word for each in raw for word in each.split()]
    if not 1 <= len(words) <= MAX_URLS:
        raise ValueError
    return " ".join(words)


@dataclass(frozen=True, slots=True)
class AppriseOptions:
    """The options of an Apprise consumer."""

    urls: str | None = option(None, Kind(_urls, EXPECTED_URLS), "The services, as Apprise writes them.", secret=True)
    urls_env: str | None = option(None, text("the name of an environment variable"), "The variable that holds them.")
    title: str | None = option(
        None, text("a Jinja2 template"), "Title of the message, from `event`. Not set: the data's `title`, else the topic."
    )
    body: str | None = option(
        None,
        text("a Jinja2 template"),
        "Body of the message, from `event`. Not set: the data, a line for each of the first 20 keys.",
    )
    timeout_s: float = option(30.0, number(1, 600, "seconds"), "Longest time that one service may take.")


class Apprise(Consumer):
    """Sends each event to each service.

    Raises:
        ValueError, TemplateFault: what `check` would have told.
    """

    Options = AppriseOptions

    def __init__(self, options: AppriseOptions, context: Context) -> None:
        super().__init__(options, context)
        self._title, self._body = _templates(options)
        self._services = {_key(url): (_scheme(url), _service(url, options.timeout_s)) for url in _read_urls(options)}

    @classmethod
    def check(cls, options: AppriseOptions, patterns: Sequence[str]) -> list[str]:
        faults: list[str] = []
        try:
            for url in _read_urls(options):
                _service(url, options.timeout_s)
        except ValueError as error:
            faults.append(str(error))
        try:
            faults += [fault for template in _templates(options) if (fault := template.check({"event": SAMPLE}))]
        except TemplateFault as error:
            faults.append(str(error))
        return faults

    @classmethod
    def channel(cls, options: AppriseOptions) -> str | None:
        """Return `push`, or None with fixed URLs: no user's choice keeps a message from them."""
        return None if options.urls or options.urls_env else "push"

    def keys(self, delivery: Delivery) -> Sequence[str]:
        return tuple(self._services)

    def handle(self, delivery: Delivery) -> None:
        """Send to one service.

        Raises:
            Reject: the templates do not go with the event, or its service is not among the URLs any more.
            OutcomeUnknown: it failed. Apprise does not say whether the service refused it, or took it and its answer was lost, or
                took it for some of the targets that a URL may name.
        """
        if delivery.key not in self._services:
            raise Reject("the service that it was for is no longer among the URLs")
        scheme, service = self._services[delivery.key]
        title, body = self._render(delivery)
        outcome = service.notify(body, title, body_format=apprise.NotifyFormat.TEXT)
        if not outcome:
            reason = f"{scheme} did not take it, as far as Apprise knows ({outcome.status.name.lower()})"
            raise OutcomeUnknown(reason, LAST_ATTEMPT_AFTER_S if delivery.attempt > 1 else None)

    def preview(self, delivery: Delivery) -> str:
        title, body = self._render(delivery)
        return f"To {', '.join(scheme for scheme, _ in self._services.values())}\n{title}\n\n{body}"

    def _render(self, delivery: Delivery) -> tuple[str, str]:
        values = {"event": view(delivery)}
        try:
            title, body = self._title.render(values).strip(), self._body.render(values).strip()
        except TemplateFault as error:
            raise Reject(str(error)) from error
        if not title and not body:
            raise Reject("title and body are empty")
        return (title, body) if body else ("", title)  # Apprise sends nothing without a body


def _templates(options: AppriseOptions) -> tuple[Template, Template]:
    return (
        Template("title", options.title or DEFAULT_TITLE, limit=MAX_TITLE_CHARACTERS),
        Template("body", options.body or DEFAULT_BODY, limit=MAX_BODY_CHARACTERS),
    )


def _read_urls(options: AppriseOptions) -> list[str]:
    """Return the URLs, each once.

    Raises:
        ValueError: there are none, or too many.
    """
    urls = list(dict.fromkeys(need_secret(options, "urls", is_url=True).split()))
    if len(urls) > MAX_URLS:
        raise ValueError(f"urls_env={options.urls_env!r}: this variable holds {len(urls)} URLs; expected {EXPECTED_URLS}")
    return urls


def _service(url: str, timeout_s: float) -> apprise.Apprise:
    asset = apprise.AppriseAsset(service_timeout=timeout_s, storage_mode=apprise.PersistentStoreMode.MEMORY, http_redirects=False)
    plugin = apprise.Apprise.instantiate(url, asset=asset)
    if plugin is None:
        raise ValueError(f"urls: one that starts with {_scheme(url)} is not what Apprise expects of such a URL, or it knows none")
    return apprise.Apprise(plugin, asset=asset)


def _key(url: str) -> str:
    """Name a service in Redis, where no URL may stand: they are secrets."""
    return hashlib.sha256(url.encode()).hexdigest()[:16]


def _scheme(url: str) -> str:
    scheme = url.partition("://")[0]
    return f"{scheme}://" if scheme.isalnum() and scheme != url else "(no scheme)"
