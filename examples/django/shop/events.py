"""Publishing, once the transaction has been committed."""

from functools import cache, partial

from django.conf import settings
from django.db import transaction

from headgate import Publisher


@cache
def publisher() -> Publisher:
    """One for the process; a worker that is forked off gets connections of its own."""
    return Publisher(settings.HEADGATE_REDIS_URL)


def publish_on_commit(topic: str, data: object) -> None:
    """Publish when the change is in the database. After a rollback nothing is published.

    `robust`: when Redis does not answer, Django logs the error, and the request goes on, since its change is saved.
    """
    transaction.on_commit(partial(publisher().publish, topic, data), robust=True)
