"""The reports of gateways in Redis about themselves, written here without a gateway."""

from collections.abc import Sequence

import msgspec

from headgate.redis.client import Client, call, call_all
from headgate.redis.keys import LOADS
from headgate.redis.loads import Load, LoadTable, clock, read_rows
from headgate.redis.registry import registering


def register(client: Client, gateway_id: str, namespaces: Sequence[str]) -> None:
    call_all(client, registering(int(clock(client)[0]), gateway_id, namespaces, tidy=True))


def write_row(client: Client, process_id: str, own: Load) -> LoadTable:
    """Write the row of a process, as of now, and return the rows of all."""
    now_s = int(clock(client)[0])
    row = msgspec.structs.replace(own, since_s=own.since_s or now_s, at_s=now_s)
    call(client, "HSET", LOADS, process_id, msgspec.json.encode(row))
    return read_rows(now_s, call(client, "HGETALL", LOADS), own.server)
