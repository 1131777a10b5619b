"""The consumer of your own that docs/consumers.md shows, run as it stands there."""

from __future__ import annotations

import re
from pathlib import Path

from headgate.consumers.work.dead_letters import DeadLetters
from headgate.publisher import Publisher
from headgate.redis.client import Client
from tests.support.consume_process import SinkFolder, StartConsume
from tests.support.redis_server import wait_until

PAGE = (Path(__file__).parents[3] / "docs" / "consumers.md").read_text(encoding="utf-8")


def test_the_consumer_of_the_docs_does_what_they_say(
    start_consume: StartConsume, sink_folder: SinkFolder, redis_url: str, redis_client: Client
) -> None:
    """It writes a line for an order, and sets aside what is none."""
    section = PAGE.partition("\n## Your own\n")[2]
    for name, code in (("ledger.py", _block(section, "python")), ("headgate.toml", _block(section, "toml"))):
        (sink_folder.path / name).write_text(code)
    start_consume()

    with Publisher(redis_url) as publisher:
        publisher.publish("orders.1.shipped", "no order")
        receipt = publisher.publish("orders.2.shipped", {"carrier": "UPS"})

    shipped = sink_folder.path / "shipped.txt"
    line = f"ledger:notifications:{receipt.epoch}-{receipt.offset} orders.2.shipped UPS\n"
    wait_until(lambda: shipped.exists() and shipped.read_text() == line, "the order is in the ledger")
    letters = DeadLetters(redis_client, "notifications", "ledger")
    wait_until(lambda: [letter.reason for letter in letters.page()] == ["expected an object"], "the other is set aside")


def _block(text: str, language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", text, re.DOTALL)
    assert found is not None
    return found[1]
