"""The storm: every client comes back at once, each with the same position in the log, and gets what it has missed."""

from __future__ import annotations

from .child import Failed
from .generator import Generator
from .publishing import MARKER, TOPIC, payload
from .scenario import Row, Run, checked
from .stage import Stage, stage
from .variants import LOG_KEY, Variant, headgate_connect

DEADLINE_S = 90


def storm(clients: int, missed: int, size_bytes: int) -> Run:
    """Clients come back with a resume position, `missed` events behind: the time until the last of them has its last event."""

    def run(variant: Variant, quick: bool) -> Row:
        count = max(1, clients // 5) if quick else clients
        with stage(variant, size_bytes=size_bytes, room=count) as on:
            position = _publish_missed(on, missed, size_bytes)
            with on.further_generator(connects=[headgate_connect(resume=position)], room=count) as back:
                return _come_back(back, count, missed)

    return run


def _publish_missed(on: Stage, missed: int, size_bytes: int) -> dict[str, object]:
    """Publish what they will have missed, numbered from 1 in the marker; return the position before it."""
    text = payload(size_bytes)
    with on.bus.client() as client:
        epoch, offset, *_ = client.execute_command("FCALL", "headgate_publish", 1, LOG_KEY, TOPIC, "null")
        with client.pipeline(transaction=False) as pipeline:
            for sequence in range(1, missed + 1):
                event = text.replace(MARKER, f"~{sequence:010}:{0:020}~")
                pipeline.execute_command("FCALL", "headgate_publish", 1, LOG_KEY, TOPIC, event)
            pipeline.execute()
    return {"epoch": epoch.decode(), "offset": int(offset)}


def _come_back(back: Generator, clients: int, missed: int) -> Row:
    answer = back.ask("connect", clients, clients, DEADLINE_S * 1000, clients * missed, takes_s=DEADLINE_S)
    if answer["outcome"] == "not_all_connected":
        raise Failed(f"{answer['clients']} of {clients} came back: {answer['first_failure']}")
    row = checked(answer)
    row["undelivered"] = max(0, clients * missed - answer["deliveries"])
    row["clients_back"] = clients
    row["seconds_until_all_had_all"] = round(answer["seconds"], 2)
    row["server_cpu_seconds"] = round(answer["server_cpu_s"], 2)
    row["deliveries_per_cpu_s"] = round(answer["deliveries"] / max(answer["server_cpu_s"], 1e-3))
    return row
