"""A webhook as tests make one: secrets, options as in TOML, and an event for it."""

from typing import Any, cast

from headgate.consumers.base import Context, Delivery
from headgate.consumers.webhook.consumer import WebhookOptions
from headgate.settings.options import read_options

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
OLDER = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
CONTEXT = Context("hook", "shop", cast(Any, None), cast(Any, None))
DATA = b'{"n": 1.50, "text":"\\u00e9 \xc3\xa9"}'
DELIVERY = Delivery(
    "orders.42.failed", DATA, "order:42", 1_700_000_000_123, "0123456789abcdef", 17, namespace="shop", consumer="hook"
)


def read_webhook(table: dict[str, Any]) -> WebhookOptions:
    """Return the options of a table with a secret, whatever else it says."""
    options, faults = read_options(WebhookOptions, {"secret": SECRET, **table})
    assert options is not None, faults
    return options
