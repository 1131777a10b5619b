"""Sends events as short messages to any service that Apprise supports. Only this file imports Apprise.

In: deliveries. Out: one call of Apprise per URL. Each is a separate part of the work, so only a failed service is tried again,
at most three times. URLs come from the operator. A template of a URL inserts the event's user, or addresses from a function of
the operator, percent-encoded, and never more than one target. Apprise follows a redirect only if the URL has `redirect=yes`.
"""

from __future__ import annotations

import hashlib
import logging
import re
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import apprise

from headgate.events.topic import user_of
from headgate.settings.options import Kind, WrongValue, number, option, required

from .base import Consumer, Context, Delivery, OutcomeUnknown, Reject
from .pause import Pause
from .templates import BODY, TEMPLATE, TITLE, message_faults, read_message
from .values import FUNCTION, as_list

MAX_URLS = 32
EXPECTED_URLS = f"1 to {MAX_URLS} Apprise URLs such as tgram://token/chat, a list or a text with spaces between"
# The delay before the third attempt, so that three attempts outlast an outage of an hour.
LAST_ATTEMPT_AFTER_S = 3600.0
# A failure that took longer is one of the service, which then rests, and not of one user's address.
SLOW_S = 1.0
# Apprise reads these as separators or decodes them twice, so a name with one would reach another user.
_SEVERAL = re.compile(r"[\s,;\[\]\\/%]")
# Every service accepts at least one of these as a target.
_SAMPLES = ("ana", "1234567890", "ana@example.org")
MAX_ADDRESSES = 32

# Below this level these loggers write whole URLs and payloads.
for _name in ("apprise", "urllib3"):
    logging.getLogger(_name).setLevel(logging.WARNING)


def _urls(raw: str | Sequence[str]) -> tuple[str, ...]:
    urls = tuple(dict.fromkeys(raw.split() if isinstance(raw, str) else [word for each in raw for word in each.split()]))
    if not 1 <= len(urls) <= MAX_URLS:
        raise WrongValue(f"there are {len(urls)}")
    if len({"{user}" in url for url in urls}) > 1:
        raise WrongValue("{user} is in some of them; expected it in all or none", says_expected=True)
    return urls


@dataclass(frozen=True, slots=True)
class AppriseOptions:
    """The options of an Apprise consumer."""

    urls: tuple[str, ...] = option(
        required(),
        Kind(_urls, EXPECTED_URLS),
        "The services, as Apprise writes them. `{user}` in each of them is the user whose topic it is (users.<word>.…), "
        "percent-encoded.",
        secret=True,
    )
    address_function: Callable[[Delivery], Any] | None = option(
        None,
        FUNCTION,
        "A function of yours that gets the delivery and returns a list of addresses, which `{user}` stands for in its place. "
        "An empty list: no message.",
    )
    title: str | None = option(None, TEMPLATE, TITLE)
    body: str | None = option(None, TEMPLATE, BODY)
    timeout_s: float = option(30.0, number(1, 600, "seconds"), "Longest time that one service may take.")


class Apprise(Consumer):
    """Sends each event to each service. Raises ValueError or TemplateFault for a fault that `check` reports."""

    Options = AppriseOptions

    def __init__(self, options: AppriseOptions, context: Context, now: Callable[[], float] = time.monotonic) -> None:
        super().__init__(options, context)
        self._timeout_s, self._now = options.timeout_s, now
        self._message = read_message(options.title, options.body)
        self._addresses = options.address_function or (lambda delivery: user_of(delivery.topic))
        self._per_user = _is_per_user(options)
        # Services of users are created on demand.
        self._services = {} if self._per_user else {_key(url): _service(url, options.timeout_s) for url in options.urls}
        self._pauses: defaultdict[str, Pause] = defaultdict(Pause)

    @classmethod
    def check(cls, options: AppriseOptions, patterns: Sequence[str]) -> list[str]:
        faults: list[str] = []
        try:
            for url in options.urls:
                _check_url(url, options.timeout_s)
        except ValueError as error:
            faults.append(str(error))
        if options.address_function is not None and not _is_per_user(options):
            faults.append("address_function: no URL has a place for an address; expected urls with {user}")
        return faults + message_faults(options.title, options.body)

    @classmethod
    def channel(cls, options: AppriseOptions) -> str | None:
        """Return `push`, or None for fixed URLs, because users cannot mute their messages."""
        return "push" if _is_per_user(options) else None

    def keys(self, delivery: Delivery) -> Sequence[str]:
        return tuple(self._targets(delivery))

    def handle(self, delivery: Delivery) -> None:
        """Send to one service.

        Raises:
            Reject: the templates do not fit the event, an address is not a single target, or its service is no longer among the
                URLs.
            OutcomeUnknown: it failed. Apprise does not report whether the service refused it, accepted it without an answer, or
                accepted it for some of the URL's targets.
            Retry: its service rests, because it took long to fail.
        """
        targets = self._targets(delivery)
        if delivery.key not in targets:
            raise Reject("its service is no longer among the URLs")
        url, option_url = targets[delivery.key]
        title, body = self._render(delivery)
        try:
            service = self._services.get(delivery.key) or _service(url, self._timeout_s)
        except ValueError as error:
            raise Reject(str(error)) from error
        pause, began_s = self._pauses[option_url], self._now()
        pause.check(began_s)
        if outcome := service.notify(body, title, body_format=apprise.NotifyFormat.TEXT):
            pause.end()
            return
        reason, now_s = f"{_scheme(url)} did not take it, as far as Apprise knows ({outcome.status.name.lower()})", self._now()
        if now_s - began_s > SLOW_S:
            pause.begin(began_s, now_s, reason)
        raise OutcomeUnknown(reason, LAST_ATTEMPT_AFTER_S if delivery.unknown else None)

    def preview(self, delivery: Delivery) -> str:
        title, body = self._render(delivery)
        return f"To {', '.join(_scheme(url) for url, _ in self._targets(delivery).values())}\n{title}\n\n{body}"

    def _targets(self, delivery: Delivery) -> dict[str, tuple[str, str]]:
        """Return the URLs of an event, each with that of the options, by their names in Redis.

        Raises Reject if an address is not a single target, or for more than MAX_ADDRESSES.
        """
        if not self._per_user:
            return {_key(url): (url, url) for url in self.options.urls}
        refusal = f"address_function: expected at most {MAX_ADDRESSES} addresses, got more"
        addresses = as_list(self._addresses(delivery), MAX_ADDRESSES, refusal)
        filled = ((_filled(url, address), url) for address in addresses for url in self.options.urls)
        return {_key(target): (target, url) for target, url in filled}

    def _render(self, delivery: Delivery) -> tuple[str, str]:
        title, body = self._message(delivery)
        return (title, body) if body else ("", title)  # Apprise sends nothing without a body


def _filled(url: str, address: object) -> str:
    if not isinstance(address, str) or not address or _SEVERAL.search(address):
        raise Reject(f"{_scheme(url)} cannot have this address; expected text without blanks, slashes and any of , ; [ ] %")
    return url.replace("{user}", quote(address, safe=""))


def _is_per_user(options: AppriseOptions) -> bool:
    return "{user}" in options.urls[0]


def _check_url(url: str, timeout_s: float) -> None:
    """Raise the error of `_service` if every sample of a user causes one."""
    for nth, sample in enumerate(_SAMPLES, 1):
        try:
            _service(url.replace("{user}", quote(sample, safe="")), timeout_s)
            return
        except ValueError:
            if nth == len(_SAMPLES):
                raise


def _service(url: str, timeout_s: float) -> apprise.Apprise:
    asset = apprise.AppriseAsset(service_timeout=timeout_s, storage_mode=apprise.PersistentStoreMode.MEMORY, http_redirects=False)
    if (plugin := apprise.Apprise.instantiate(url, asset=asset)) is None:
        raise ValueError(f"urls: one that starts with {_scheme(url)} is not what Apprise expects of such a URL, or it knows none")
    return apprise.Apprise(plugin, asset=asset)


def _key(url: str) -> str:
    """Return the name of a service in Redis, where URLs, which are secrets, must not appear."""
    return hashlib.sha256(url.encode()).hexdigest()[:16]


def _scheme(url: str) -> str:
    scheme = url.partition("://")[0]
    return f"{scheme}://" if scheme.isalnum() and scheme != url else "(no scheme)"
