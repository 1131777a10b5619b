"""A consumer in the test's own process, which handles each event by a function."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from headgate.consumers import Consumer, Delivery
from headgate.consumers.work.runner import Runner
from headgate.consumers.work.spec import ConsumerSpec, RunnerOptions
from headgate.settings.settings import Settings
from tests.fault.site import NAMESPACE


@contextmanager
def consuming(url: str, name: str, handle: Callable[[Delivery], object], **options: Any) -> Iterator[Runner]:
    """Run a consumer of everything, with these options, until the end of the block."""

    class Handling(Consumer):
        def handle(self, delivery: Delivery) -> None:
            handle(delivery)

    spec = ConsumerSpec(name, Handling, Handling.Options(), ("#",), NAMESPACE, RunnerOptions(**options))
    runner = Runner(spec, url, Settings())
    runner.open()
    runner.start()
    try:
        yield runner
    finally:
        runner.stop()
