"""Events as rows of the transaction that causes them. `manage.py events_relay` publishes those of committed transactions."""

from uuid import uuid4

from django.utils.functional import SimpleLazyObject
from jaiminho.send import save_to_outbox

from headgate import Publisher

# At HEADGATE_REDIS_URL, or at the private Redis of a gateway in this folder. A forked worker opens its own connections.
publisher = SimpleLazyObject(Publisher)


def publish_on_commit(topic: str, data: object, user: str | None = None) -> None:
    """Write the row of an event. What Headgate would refuse (topic, data, size) raises here, and sends nothing."""
    publisher.prepare(topic, data, user=user)
    publish_row(topic, data, uuid4().hex, user)


@save_to_outbox
def publish_row(topic: str, data: object, event_id: str, user: str | None) -> None:
    """Run by the relay: a row that comes again, within a day, adds nothing to the log."""
    publisher.publish(topic, data, event_id, user=user, id_for_s=86400)
