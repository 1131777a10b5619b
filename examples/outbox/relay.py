"""The relay: `python relay.py` makes the table `outbox` and publishes the rows of committed transactions. Several may run."""

import asyncio
import os

try:
    import msgspec
    from txoutbox import OutboxMessage, Relay, RelayConfig
    from txoutbox.adapters.sqlite import SqliteStorage

    from headgate import AsyncPublisher
except ModuleNotFoundError as missing:
    raise SystemExit(f"{missing.name} is not installed: README.md says how") from None

publisher = AsyncPublisher()
# While Redis is unreachable for hours, rows must not become dead letters, as after ten attempts by default.
CONFIG = RelayConfig(max_attempts=1_000_000)


async def publish(row: OutboxMessage) -> None:
    """Publish a row under its own id: a row that comes again, within a day, adds nothing to the log."""
    await publisher.publish(row.topic, msgspec.Raw(row.payload), f"outbox-{row.id}", id_for_s=86400)


async def main() -> None:
    url = os.environ.get("SHOP_DATABASE", "sqlite:///shop.sqlite3")
    if url.startswith("sqlite:///"):
        storage = SqliteStorage(url.removeprefix("sqlite:///"))
        storage.create_schema()
    else:
        from txoutbox.adapters.postgres import PostgresStorage

        storage = await PostgresStorage.connect(url.replace("+psycopg", ""))
        await storage.create_schema()
    await Relay(storage, publish, config=CONFIG).run(handle_signals=True)


if __name__ == "__main__":
    asyncio.run(main())
