"""Sends events as notifications to a user's browsers, even without an open page (Web Push, RFC 8030, 8291, 8292).

In: deliveries. Out: one encrypted POST for each subscription of the event's user, each a separate part of the work. The
application stores the subscriptions. One of its functions returns them, and another removes an expired endpoint (404, 410).
Other failures are tried again, as for a webhook. Endpoints come from browsers, so it connects only to public addresses.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec

from headgate.consumers import values
from headgate.consumers.base import Consumer, Context, Delivery, Reject, Retry
from headgate.consumers.templates import BODY, TEMPLATE, TITLE, message_faults, read_message
from headgate.consumers.webhook.addresses import Allowed, read_allowed
from headgate.consumers.webhook.post import HttpPost, judge
from headgate.events.topic import is_item
from headgate.installation import __version__
from headgate.runtime.metrics import PUSHES
from headgate.settings.addresses.http_target import Target, read_target
from headgate.settings.options import Kind, matching, number, one_of, option, required

from .encryption import EXPECTED_KEY, MAX_PAYLOAD_BYTES, ApplicationKey, encode, encrypt, read_subscription

MAX_SUBSCRIPTIONS = 32
# Open connections. All browsers together use four push services.
MAX_SERVICES = 8
# A browser may name an endpoint that does not answer. After a push longer than SLOW_S to a service that is neither a browser's
# nor the operator's, pushes to all such services rest for REST_TIMES as long, so they take at most a quarter of a worker's time.
SLOW_S, REST_TIMES = 1.0, 3
_OF_BROWSERS = re.compile(
    r"https://(fcm\.googleapis\.com|updates\.push\.services\.mozilla\.com|web\.push\.apple\.com|[a-z0-9-]+\.notify\.windows\.com)"
)
MAX_TITLE_SHOWN, MAX_BODY_SHOWN = 120, 1_000
# The service no longer knows the endpoint (RFC 8030, section 7.3, and the practice of services).
_GONE = (404, 410)
_TOO_LARGE = 413
_CONTACT = re.compile(r"mailto:[!-~]+@[!-~]+|https://[!-~]+", re.ASCII)
_FOUR_WEEKS_S = 28 * 86400


@dataclass(frozen=True, slots=True)
class WebPushOptions:
    """The options of the Web Push consumer."""

    private_key: ApplicationKey = option(
        required(),
        values.sealed(ApplicationKey, EXPECTED_KEY),
        "The application's private key, whose public key pages subscribe with.",
        secret=True,
    )
    contact: str = option(
        required(),
        matching(_CONTACT, "mailto:ops@example.com or an https URL"),
        "Where push services reach the operator. They see it with each message.",
    )
    subscriptions_function: Callable[[Delivery], Any] = option(
        required(),
        values.FUNCTION,
        f"A function of yours that gets the delivery and returns the subscriptions of its user, as `PushSubscription.toJSON()` "
        f"makes them: at most {MAX_SUBSCRIPTIONS}. An empty list: no push.",
    )
    gone_function: Callable[[str], object] = option(
        required(), values.FUNCTION, "A function of yours that gets an endpoint that is gone, and removes its subscription."
    )
    title: str | None = option(None, TEMPLATE, TITLE)
    body: str | None = option(None, TEMPLATE, BODY)
    ttl_s: float = option(
        86400.0,
        number(0, _FOUR_WEEKS_S, "seconds"),
        "How long the push service keeps a message for a device that it cannot reach.",
    )
    urgency: str = option(
        "normal", one_of("very-low", "low", "normal", "high"), "Below `high` a device that saves energy may get it later."
    )
    timeout_s: float = option(
        15.0, number(0.1, 60, "seconds"), "Longest time for one attempt, from connecting to the head of the answer."
    )
    allow_private: Allowed = option(
        Allowed(),
        Kind(read_allowed, "networks such as 10.0.0.0/8 and hosts such as push.internal:8443"),
        "Addresses of push services that are allowed although they are not public.",
    )
    ca_file: str | None = option(
        None, values.CA_FILE, "Certificates to trust instead of the system's, for a push service of your own."
    )


class WebPush(Consumer):
    """Sends events to the browsers of their users.

    Args:
        open_post: creates the HttpPost for a push service; None for HTTP.
        now: the monotonic clock.
    """

    Options = WebPushOptions

    def __init__(
        self,
        options: WebPushOptions,
        context: Context,
        open_post: Callable[[Target], HttpPost] | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(options, context)
        self._options, self._now = options, now
        self._message = read_message(options.title, options.body)
        self._open_post = open_post or partial(
            HttpPost,
            timeout_s=options.timeout_s,
            allowed=options.allow_private,
            ca_file=options.ca_file,
            final=(*_GONE, _TOO_LARGE),
            now=now,
        )
        self._services: OrderedDict[str, HttpPost] = OrderedDict()
        self._rest_until_s = 0.0

    @classmethod
    def check(cls, options: WebPushOptions, patterns: Sequence[str]) -> list[str]:
        return message_faults(options.title, options.body)

    @classmethod
    def channel(cls, options: WebPushOptions) -> str:
        """Return `push`, which a user may mute."""
        return "push"

    def keys(self, delivery: Delivery) -> Sequence[str]:
        return tuple(self._stored(delivery))

    def handle(self, delivery: Delivery) -> None:
        """Send to one browser, unless its subscription has been removed since.

        Raises:
            Reject: the subscription is invalid, or the templates do not fit the event.
            OutcomeUnknown, Retry: as `webhook.post.HttpPost`. Retry also for any answer except a 2xx, 404, 410 or 413, and
                while unknown services rest.
        """
        if (raw := self._stored(delivery).get(delivery.key)) is None:
            PUSHES.labels(self.context.name, "unsubscribed").inc()
            return
        try:
            to = read_subscription(raw)
            target = read_target(to.endpoint)
            if target.scheme != "https":
                raise ValueError("expected an https endpoint")
        except ValueError as error:
            raise Reject(f"a subscription is invalid: {error}") from error
        body = encrypt(self._payload(delivery), to)
        began_s, place = self._now(), (target.host, target.port)
        is_known = place in self._options.allow_private.places or bool(_OF_BROWSERS.fullmatch(target.origin))
        if not is_known and (rest_s := self._rest_until_s - began_s) > 0:
            raise Retry(f"pushes to {target.origin} rest, as a push service took long", after_s=rest_s)
        try:
            status, retry_after_s = self._service(target).post(self._headers(delivery, target), body, target.path)
        finally:
            slow_s = self._now() - began_s - SLOW_S
            if not is_known and slow_s > 0:
                self._rest_until_s = self._now() + REST_TIMES * slow_s
        if status in _GONE:
            self._options.gone_function(to.endpoint)
            PUSHES.labels(self.context.name, "gone").inc()
            return
        if status == _TOO_LARGE:
            raise Reject(f"{target.origin} answered {_TOO_LARGE}: the message is too large for it")
        judge(status, retry_after_s, target.origin)
        PUSHES.labels(self.context.name, "sent").inc()

    def preview(self, delivery: Delivery) -> str:
        return f"To {len(self._stored(delivery))} browsers\n{self._payload(delivery).decode()}"

    def close(self) -> None:
        for service in self._services.values():
            service.close()
        self._services.clear()

    def _stored(self, delivery: Delivery) -> Mapping[str, object]:
        """Return the subscriptions by their names in Redis, where endpoints, which are secrets, must not appear."""
        refusal = f"subscriptions_function: expected at most {MAX_SUBSCRIPTIONS} subscriptions, got more"
        subscriptions = values.as_list(self._options.subscriptions_function(delivery), MAX_SUBSCRIPTIONS, refusal)
        return {_key(each, place): each for place, each in enumerate(subscriptions, 1)}

    def _payload(self, delivery: Delivery) -> bytes:
        """Return the payload for the service worker, with title, body, topic, and the item's id (null without an item)."""
        title, body = self._message(delivery)
        item = f"{delivery.topic.split('.', 3)[3]}/{delivery.id}" if is_item(delivery.topic) else None
        shown = {"title": _cut(title, MAX_TITLE_SHOWN), "body": _cut(body, MAX_BODY_SHOWN), "topic": delivery.topic, "item": item}
        while len(payload := msgspec.json.encode(shown)) > MAX_PAYLOAD_BYTES:
            if not body:
                raise Reject(f"the message is larger than {MAX_PAYLOAD_BYTES} bytes without its body")
            body = body[: min(len(body), MAX_BODY_SHOWN) // 2]
            shown["body"] = _cut(body + "…", MAX_BODY_SHOWN) if body else ""
        return payload

    def _headers(self, delivery: Delivery, target: Target) -> dict[str, str]:
        return {
            "Authorization": self._options.private_key.authorization(target.origin, self._options.contact, time.time()),
            "Content-Encoding": "aes128gcm",
            "Content-Type": "application/octet-stream",
            "TTL": str(int(self._options.ttl_s)),
            # The same for every attempt, so it replaces a message that waits at the service (RFC 8030, section 5.4).
            "Topic": encode(hashlib.sha256(delivery.identity.encode()).digest()[:24]),
            "Urgency": self._options.urgency,
            "User-Agent": f"Headgate/{__version__}",
        }

    def _service(self, target: Target) -> HttpPost:
        """Return the Post of a push service. Closes the least recently used one if there are too many."""
        service = self._services.pop(target.origin, None) or self._open_post(target)
        self._services[target.origin] = service
        if len(self._services) > MAX_SERVICES:
            self._services.popitem(last=False)[1].close()
        return service


def _key(raw: object, place: int) -> str:
    try:
        return hashlib.sha256(read_subscription(raw).endpoint.encode(errors="replace")).hexdigest()[:16]
    except ValueError:
        return f"subscription {place}"


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
