"""A Celery task that tells how far it is: `celery -A tasks worker`, then `python start.py`."""

import os

try:
    from celery import Celery, Task

    from headgate import Publisher
except ModuleNotFoundError as missing:
    raise SystemExit(f"{missing.name} is not installed: pip install -r requirements.txt") from None

REDIS = os.environ.get("HEADGATE_REDIS_URL", "redis://localhost:6379/0")
app = Celery("tasks", broker=REDIS, backend=REDIS)
app.conf.update(task_acks_late=True, broker_connection_retry_on_startup=True)
# A task whose worker was killed comes again after so many seconds (default: an hour): while the ids of its events count.
app.conf.broker_transport_options = {"visibility_timeout": 240}
publisher = Publisher(REDIS)  # a worker that is forked off gets connections of its own


@app.task(bind=True, max_retries=5, default_retry_delay=1)
def report(self: Task, user: str, pages: int) -> int:
    """Each event has an id that all tries of the task share: a try within 300 s (less at a high rate) adds nothing to the log."""
    name = self.request.id
    for page in range(1, pages + 1):
        publisher.publish("reports.progress", {"report": name, "page": page, "of": pages}, user=user, id=f"{name}-{page}")
    publisher.publish("reports.ready", {"report": name}, user=user, id=f"{name}-ready")
    return pages
