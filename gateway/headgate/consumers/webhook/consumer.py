"""The webhook sends every event as one signed POST to a fixed URL, by the Standard Webhooks specification.

In: deliveries. Out: a request for each, with the same `webhook-id` for every attempt. A failed attempt is repeated after its
`Retry-After`, and until then this worker sends nothing to the receiver (post.py).
"""

from __future__ import annotations

import base64
import binascii
import hmac
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from ipaddress import IPv4Address

import msgspec

from headgate.consumers.base import Consumer, Context, Delivery
from headgate.consumers.values import CA_FILE, sealed
from headgate.installation import __version__
from headgate.settings.addresses.http_target import EXPECTED_URL, Target, read_target
from headgate.settings.addresses.origins import is_local
from headgate.settings.options import Kind, number, option, required
from headgate.settings.settings import is_placeholder

from .addresses import Allowed, read_allowed
from .post import HttpPost, judge

MAX_HEADERS, MAX_HEADER_BYTES = 20, 1024
# Names of this machine need no resolver, so the configuration is refused before the first event.
LOCALHOST = IPv4Address("127.0.0.1")
# Headers of the connection (RFC 9110, section 7.6.1), and those that we set. The specification defines `webhook-…`.
_OWN_HEADERS = re.compile(
    "connection|content-length|content-type|expect|host|keep-alive|proxy-.*|te|trailer|transfer-encoding|upgrade|webhook-.*",
    re.IGNORECASE,
)
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,64}", re.ASCII)
_HEADER_VALUE = re.compile(rf"[!-~]([\t -~]{{0,{MAX_HEADER_BYTES - 2}}}[!-~])?", re.ASCII)


PREFIX = "whsec_"
# The specification's bounds on a secret, in bytes before base64.
MIN_SECRET_BYTES, MAX_SECRET_BYTES = 24, 64
# The current secret, the previous one, and a spare.
MAX_SECRETS = 3
EXPECTED_SECRET = (
    f"1 to {MAX_SECRETS} secrets with spaces between, "
    f"each {PREFIX} and the base64 of {MIN_SECRET_BYTES} to {MAX_SECRET_BYTES} bytes, and no placeholder"
)


def read_secrets(text: str) -> tuple[bytes, ...]:
    """Return the keys in a text of one or several secrets.

    Raises ValueError if it is not EXPECTED_SECRET.
    """
    words = text.split()
    if not 1 <= len(words) <= MAX_SECRETS:
        raise ValueError
    return tuple(_key(word) for word in words)


def sign(keys: tuple[bytes, ...], message_id: str, timestamp_s: int, body: bytes) -> str:
    """Return the header `webhook-signature`, with a signature for each key. A receiver needs only one of the keys.

    Args:
        message_id: the same for every attempt. It has no dot, which would make the signed text ambiguous.
        timestamp_s: time of this attempt, in seconds since 1970.
    """
    signed = b"%b.%d.%b" % (message_id.encode("ascii"), timestamp_s, body)
    return " ".join("v1," + base64.b64encode(hmac.digest(key, signed, "sha256")).decode() for key in keys)


def _key(word: str) -> bytes:
    try:
        key = base64.b64decode(word.removeprefix(PREFIX), validate=True) if word.startswith(PREFIX) else b""
    except (binascii.Error, ValueError):
        key = b""
    if not MIN_SECRET_BYTES <= len(key) <= MAX_SECRET_BYTES or is_placeholder(key):
        raise ValueError
    return key


def _headers(raw: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    if len(raw) > MAX_HEADERS or len({name.lower() for name in raw}) != len(raw):
        raise ValueError
    for name, value in raw.items():
        if not _HEADER_NAME.fullmatch(name) or _OWN_HEADERS.fullmatch(name) or not _HEADER_VALUE.fullmatch(value):
            raise ValueError
    return tuple(raw.items())


@dataclass(frozen=True, slots=True)
class WebhookOptions:
    """The options of the webhook consumer."""

    # Often the path of a URL is a secret.
    url: Target = option(required(), Kind(read_target, EXPECTED_URL), "The address that gets the POST.", secret=True)
    secret: tuple[bytes, ...] = option(
        required(),
        sealed(read_secrets, EXPECTED_SECRET),
        "Secret to sign with. Give several during a change: every request carries a signature of each.",
        secret=True,
    )
    timeout_s: float = option(
        15.0, number(0.1, 60, "seconds"), "Longest time for one attempt, from connecting to the head of the answer."
    )
    headers: tuple[tuple[str, str], ...] = option(
        (),
        Kind(_headers, f"a table of at most {MAX_HEADERS} headers, none of the connection's, `content-type` or `webhook-…`"),
        "More headers, such as `Authorization`.",
        secret=True,
    )
    allow_private: Allowed = option(
        Allowed(),
        Kind(read_allowed, "networks such as 10.0.0.0/8 and hosts such as hooks.internal:8443"),
        "Addresses that are allowed although they are not public. A host with a port allows its private, loopback and "
        "carrier-grade NAT addresses; other addresses, such as link-local ones, need a network.",
    )
    ca_file: str | None = option(
        None, CA_FILE, "Certificates to trust instead of the system's, for receivers with a private certificate authority."
    )


class Webhook(Consumer):
    """Sends events to one receiver. Each `handle` is one attempt. The runner tries again.

    Args:
        post: sends the requests; None for HTTP to the URL of the options.
        now: the monotonic clock.
    """

    Options = WebhookOptions

    def __init__(
        self, options: WebhookOptions, context: Context, post: HttpPost | None = None, now: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(options, context)
        self._target, self._keys = options.url, options.secret
        self._post = post or HttpPost(
            options.url, timeout_s=options.timeout_s, allowed=options.allow_private, ca_file=options.ca_file, now=now
        )
        self._headers = {**dict(options.headers), "Content-Type": "application/json"}
        if "user-agent" not in map(str.lower, self._headers):
            self._headers["User-Agent"] = f"Headgate/{__version__}"

    @classmethod
    def check(cls, options: WebhookOptions, patterns: Sequence[str]) -> list[str]:
        target = options.url
        address = target.address or (LOCALHOST if is_local(target.host) else None)
        refused = address and options.allow_private.refusal(address, target.host, target.port)
        wrong = f"url={target}: a {refused} address; expected a public one, or one that allow_private allows"
        return [wrong] if refused else []

    def handle(self, delivery: Delivery) -> None:
        """Send one request.

        Raises:
            Reject: 410 Gone.
            OutcomeUnknown: the request was sent, but no status line arrived.
            Retry: any other answer except a 2xx, no connection, a requested pause, an address that is not allowed.
        """
        body, now_s = encode_body(delivery), int(time.time())
        headers = {
            **self._headers,
            # An identity (names, hex and digits, colons, a hyphen) contains no dot, so it can be signed unchanged.
            "webhook-id": delivery.identity,
            "webhook-timestamp": str(now_s),
            "webhook-signature": sign(self._keys, delivery.identity, now_s, body),
        }
        judge(*self._post.post(headers, body), self._target.origin)

    def pause_s(self) -> float:
        return self._post.pause_s()

    def preview(self, delivery: Delivery) -> str:
        return f"POST {self._target}\nwebhook-id: {delivery.identity}\n\n{encode_body(delivery).decode()}"

    def close(self) -> None:
        self._post.close()


def encode_body(delivery: Delivery) -> bytes:
    """Return the JSON of the request, with the recommended fields of the specification and the event's position in the log.

    `data` has the publisher's bytes unchanged.
    """
    occurred = datetime.fromtimestamp(delivery.time_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    body = {"type": delivery.topic, "timestamp": occurred, "data": msgspec.Raw(delivery.data), "id": delivery.id}
    return msgspec.json.encode({**body, "namespace": delivery.namespace, "offset": delivery.offset, "epoch": delivery.epoch})
