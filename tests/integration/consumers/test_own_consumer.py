"""The consumer of your own that docs/consumers.md shows, run as it stands there."""

import re
import sys
from pathlib import Path

import pytest

from headgate.consumers.process.config import read_consumers
from headgate.consumers.work.dead_letters import DeadLetters
from headgate.redis.client import Client
from headgate.services.publisher import Publisher
from tests.support.consume_process import SinkFolder
from tests.support.stepped_worker import MakeWorker

PAGE = (Path(__file__).parents[3] / "docs" / "consumers.md").read_text(encoding="utf-8")


def test_the_consumer_of_the_docs_does_what_they_say(
    make_worker: MakeWorker, sink_here: SinkFolder, publisher: Publisher, redis_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It writes a line for an order, and sets aside an invalid event."""
    monkeypatch.delitem(sys.modules, "ledger", raising=False)
    section = PAGE.partition("\n## Your own\n")[2]
    for name, code in (("ledger.py", _block(section, "python")), ("headgate.toml", _block(section, "toml"))):
        (sink_here.path / name).write_text(code)
    _, (spec,) = read_consumers("headgate.toml", {})
    worker = make_worker(spec.consumer, spec.options, spec.patterns, spec.name)
    publisher.publish("orders.1.shipped", "no order")
    receipt = publisher.publish("orders.2.shipped", {"carrier": "UPS"})

    worker.work()

    line = f"ledger:notifications:{receipt.epoch}-{receipt.offset} orders.2.shipped UPS\n"
    assert (sink_here.path / "shipped.txt").read_text() == line
    assert [letter.reason for letter in DeadLetters(redis_client, "notifications", "ledger").page()] == ["expected an object"]


def _block(text: str, language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", text, re.DOTALL)
    assert found is not None
    return found[1]
