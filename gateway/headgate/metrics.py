"""Counters and gauges of the gateway, in Prometheus' words. The one file of the gateway that imports prometheus_client.

No label carries a topic, an id or a user: every label set is listed here. Nothing on the hot path counts per event or per
client; fan-out is counted once per slice.
"""

from __future__ import annotations

from prometheus_client import Counter, Gauge, Histogram

EVENTS = Counter("headgate_events_received_total", "Events that arrived on the bus.", ["namespace"])
DELIVERIES = Counter("headgate_writes_total", "Writes handed to clients by fan-out, one per client and slice.", ["namespace"])
FAN_OUT_SECONDS = Histogram(
    "headgate_fan_out_seconds",
    "Time from the first to the last client of a slice, other greenlets' turns included.",
    ["namespace"],
    buckets=(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5),
)
QUARANTINED = Counter("headgate_quarantined_total", "Messages on the bus that could not be delivered.", ["namespace", "code"])
REPAIRED = Counter("headgate_repaired_total", "Events read from the log because the live feed had missed them.", ["namespace"])
BUS_UP = Gauge("headgate_bus_up", "1 while the live feed is proven, 0 while it is not.", ["namespace"])
BUS_RECONNECTS = Counter("headgate_bus_reconnects_total", "Connections to Redis that had to be made anew.", ["namespace"])
LOG_LOST = Counter("headgate_log_lost_total", "Times that the log was found to be another one.", ["namespace"])
CLIENTS = Gauge("headgate_clients", "Clients connected now.", ["namespace"])
SUBSCRIPTIONS = Gauge("headgate_subscriptions", "Subscriptions in force now.", ["namespace"])
REFUSED = Counter("headgate_refused_total", "Requests of clients that were refused.", ["namespace", "code"])
PUT_OUT = Counter("headgate_put_out_total", "Clients whose identity ended while they were connected.", ["namespace", "reason"])
DISCARDED = Counter("headgate_discarded_total", "Events that a full client queue left out, told to the client.", ["namespace"])
CONFLATED = Counter("headgate_conflated_total", "Events that a newer one of their topic replaced.", ["namespace"])
SESSIONS_ENDED = Counter("headgate_sessions_ended_total", "Engine.IO sessions that ended.", ["reason"])
