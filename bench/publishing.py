"""The message that the load generator publishes: one Redis command as raw bytes, with a marker to fill in (see load/template.h).

A peer's message format is not copied from its source but captured: its own emitter emits once, and the command that then comes to
Redis (seen by MONITOR) is the template.
"""

from __future__ import annotations

import ast
import json
import re
import socket
import subprocess
from collections.abc import Sequence

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


def captured(socket_path: str, emitter: Sequence[str], text: str) -> bytes:
    """Run `emitter` with `text` on its standard input; return as RESP the command with the marker that came to Redis.

    What a script does in Redis is not that command: the one that called it is.

    Raises:
        Failed: it failed, or published nothing with the marker in time.
    """
    with socket.socket(socket.AF_UNIX) as monitor:
        monitor.settimeout(CAPTURE_DEADLINE_S)
        monitor.connect(socket_path)
        with monitor.makefile("rb") as lines:
            monitor.sendall(command("MONITOR"))
            lines.readline()  # the confirmation: from here on nothing is missed
            done = subprocess.run(emitter, input=text.encode(), capture_output=True, timeout=CAPTURE_DEADLINE_S, check=False)
            if done.returncode:
                raise Failed(f"the emitter ended with {done.returncode}: {done.stderr[-2000:].decode(errors='replace')}")
            try:
                while line := lines.readline():
                    if MARKER.encode() in line and (words := monitored(line)):
                        return command(*words)
            except TimeoutError as error:
                raise Failed("the emitter published nothing with the marker") from error
    raise Failed("Redis ended")


def monitored(line: bytes) -> list[bytes]:
    """Return the words of a command from a line of MONITOR; of one that a script gave, none."""
    source, _, quoted = line.partition(b"] ")
    if source.endswith(b" lua"):
        return []
    # Redis writes a word as C does, and Python reads it the same way.
    return [ast.literal_eval("b" + word.decode("ascii")) for word in re.findall(rb'"(?:[^"\\]|\\.)*"', quoted)]
