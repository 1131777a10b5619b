"""A script for cron: it does its work and publishes the result."""

import sys

try:
    from headgate import HeadgateError, Publisher
except ModuleNotFoundError as missing:
    raise SystemExit(f"{missing.name} is not installed: pip install dist/headgate-*.whl") from None


def close_the_books() -> dict[str, int]:
    """Yours does the work."""
    return {"orders": 1204, "returns": 7}


# The URL is in HEADGATE_REDIS_URL.
try:
    print(Publisher().publish("books.closed", close_the_books()))
except HeadgateError as error:
    sys.exit(f"nightly: the books are closed, but the event was not published: {error}")
