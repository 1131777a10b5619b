"""Entries of the log as Redis answers them, and the log that reads one."""

from headgate.events.event import Event
from headgate.redis.client import Client, call
from headgate.redis.keys import log_key
from headgate.redis.lineage import Entry
from headgate.redis.log import RawEntry, read_entry


class RawLog:
    """Reads an entry as the real log does (redis/log.py)."""

    def __init__(self, max_payload_bytes: int = 65536) -> None:
        self.max_payload_bytes = max_payload_bytes

    def read(self, raw: RawEntry) -> Entry:
        place, fields = raw
        by_name = dict(zip(fields[::2], fields[1::2], strict=True))
        return read_entry(int(place.partition(b"-")[0]), by_name, self.max_payload_bytes)


def raw_entry(offset: int, **fields: bytes) -> RawEntry:
    """Return an entry as log.lua writes it, but for some of its fields."""
    usual = {"topic": b"a.b", "id": b"e%d" % offset, "time": b"1700000000000", "data": b"{}", "sum": b"%d" % (200 * offset)}
    named = [(name.encode(), value) for name, value in (usual | fields).items()]
    return [b"%d-0" % offset, [part for pair in named for part in pair]]


def raw_event(event: Event) -> RawEntry:
    fields = {"topic": event.topic.encode(), "id": (event.id or "").encode(), "time": b"%d" % event.time_ms, "data": event.data}
    return raw_entry(event.offset or 0, **fields)


def read_log(client: Client, key: str = log_key("notifications")) -> list[tuple[int, bytes, bytes, bytes]]:
    """Return (offset, id, topic, data) of each entry of a log in Redis."""
    return [
        (int(entry.partition(b"-")[0]), fields[b"id"], fields[b"topic"], fields[b"data"])
        for entry, fields in call(client, "XRANGE", key, "-", "+")
    ]
