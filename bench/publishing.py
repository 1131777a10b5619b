"""The message that the load generator publishes: one Redis command as raw bytes, with a marker to fill in (see load/template.h).

A peer's message format is not copied from its source but captured: its own emitter emits once, and what it published is
the template.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Sequence

import redis

from .child import Failed

MARKER = "~" + "0" * 10 + ":" + "0" * 20 + "~"
TOPIC = "bench.load"
# A word of a topic, the name of a room or a channel: the load generator fills in the digits (load/template.h).
ADDRESS = "addr000000"
# Stands for an id: the load generator writes another one for each event, of 32 hexadecimal digits as a publisher's.
EVENT_ID = "id" * 16
CAPTURE_DEADLINE_S = 20.0


def payload(size_bytes: int) -> str:
    """Return a JSON object of exactly `size_bytes` with the marker in it.

    Raises:
        ValueError: too small to hold it.
    """
    bare = json.dumps({"n": MARKER, "pad": ""}, separators=(",", ":"))
    if size_bytes < len(bare):
        raise ValueError(f"a payload needs at least {len(bare)} bytes")
    return bare[:-2] + "x" * (size_bytes - len(bare)) + '"}'


def address(number: int) -> str:
    """Return ADDRESS with the digits of this one."""
    return f"addr{number:06}"


def command(*words: str | bytes) -> bytes:
    """Return a Redis command as RESP."""
    parts = [word.encode() if isinstance(word, str) else word for word in words]
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%b\r\n" % (len(part), part) for part in parts)


def captured(client: redis.Redis, emitter: Sequence[str], text: str) -> bytes:
    """Run `emitter` with `text` on its standard input; return its PUBLISH as RESP.

    Raises:
        Failed: it failed, or published nothing with the marker in time.
    """
    with client.pubsub(ignore_subscribe_messages=True) as listener:  # type: ignore[no-untyped-call]
        listener.psubscribe("*")
        listener.get_message(timeout=CAPTURE_DEADLINE_S)  # the confirmation: from here on nothing is missed
        done = subprocess.run(emitter, input=text.encode(), capture_output=True, timeout=CAPTURE_DEADLINE_S, check=False)
        if done.returncode:
            raise Failed(f"the emitter ended with {done.returncode}: {done.stderr[-2000:].decode(errors='replace')}")
        end = time.monotonic() + CAPTURE_DEADLINE_S
        while (left_s := end - time.monotonic()) > 0:
            message = listener.get_message(timeout=left_s)
            if message and MARKER.encode() in message["data"]:
                return command("PUBLISH", message["channel"], message["data"])
    raise Failed("the emitter published nothing with the marker")
