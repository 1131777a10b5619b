"""A Celery task that writes a text, word by word: `celery -A tasks worker`."""

import os
import time

try:
    from celery import Celery, Task

    from headgate import Publisher
except ModuleNotFoundError as missing:
    raise SystemExit(f"{missing.name} is not installed: README.md says how") from None

REDIS = os.environ.get("HEADGATE_REDIS_URL", "redis://localhost:6379/0")
app = Celery("tasks", broker=REDIS)
app.conf.update(task_acks_late=True, broker_connection_retry_on_startup=True)
# The broker gives a task of a killed worker to another one after so many seconds (default: an hour), while its ids still count.
app.conf.broker_transport_options = {"visibility_timeout": 240}
publisher = Publisher(REDIS)  # a forked worker opens its own connections


@app.task(bind=True, max_retries=5, default_retry_delay=1)
def write(self: Task, words: int) -> None:
    """All tries of the task share the ids of its events: a try within 300 s (less at a high rate) adds nothing to the log."""
    name = self.request.id
    for n in range(1, words + 1):
        time.sleep(0.1)  # yours waits for a model, or works
        publisher.publish(f"texts.{name}.word", {"n": n, "of": words, "word": f"word{n}"}, id=f"{name}-{n}")
