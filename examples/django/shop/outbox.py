"""Events as rows of the database, in place of those of events.py, where none may be lost; `manage.py events_relay` sends them."""

from uuid import uuid4

from jaiminho.send import save_to_outbox

from .events import publisher


def publish_on_commit(topic: str, data: object) -> None:
    """Write the row of an event. What Headgate would refuse (topic, data, size) raises here, and sends nothing."""
    publisher().prepare(topic, data)
    publish_row(topic, data, uuid4().hex)


@save_to_outbox
def publish_row(topic: str, data: object, event_id: str) -> None:
    """Run by the relay: a row that comes again, within a day, adds nothing to the log."""
    publisher().publish(topic, data, event_id, id_for_s=86400)
