"""The push to StatsD: counts since the last time, timings with their sample rate, to a real socket."""

import re
import socket
from collections.abc import Iterator

import pytest
from prometheus_client import REGISTRY

from headgate.node.cluster.statsd_push import MAX_NAMES, StatsdPush, changes
from headgate.runtime.histogram import bucket_of, limit_of
from headgate.runtime.metrics import HISTOGRAMS, Family, Histograms, families
from headgate.runtime.statsd import MAX_DATAGRAM_BYTES, lines


def counted(value: float, outcome: str = "discarded") -> Family:
    name = "headgate_outcomes"
    labels = {"outcome": outcome, "namespace": "notifications"}
    return name, "counter", "", [(f"{name}_total", labels, value), (f"{name}_created", labels, 1e9)]


DROPS = "headgate.outcomes.notifications.discarded"


def test_a_count_is_what_has_come_since_the_last_time() -> None:
    """StatsD adds; nothing is reported twice, and nothing when nothing came."""
    pushed: dict[str, float] = {}
    assert [changes(pushed, [counted(value)])[0] for value in (3, 3, 10)] == [{DROPS: 3}, {}, {DROPS: 7}]


def test_a_counter_that_has_begun_anew_counts_from_zero() -> None:
    """As after a namespace was closed and opened."""
    pushed: dict[str, float] = {}
    assert [changes(pushed, [counted(value)])[0] for value in (10, 4)] == [{DROPS: 10}, {DROPS: 4}]


def test_a_fraction_goes_with_a_later_push() -> None:
    """Counters of seconds are no whole numbers."""
    pushed: dict[str, float] = {}
    assert [sum(changes(pushed, [counted(value)])[0].values()) for value in (0.6, 1.2, 1.9, 2.1)] == [0, 1, 0, 1]


def test_a_time_goes_once_with_the_sample_rate_that_stands_for_how_often() -> None:
    """However many there were."""
    timed, pushed = Histograms("headgate_pushed", "Of this test.", "namespace"), dict[str, float]()
    HISTOGRAMS.remove(timed)
    REGISTRY.unregister(timed)
    histogram = timed.of("n")
    histogram.record(0.25, 400)
    histogram.record(0.001)
    counts, timings = changes(pushed, [], [timed])
    assert (counts, sorted(lines({}, {}, timings))) == (
        {},
        [b"headgate.pushed.n:%.6g|ms" % (limit_of(bucket_of(0.001)) * 1000), b"headgate.pushed.n:250|ms|@0.0025"],
    )
    histogram.record(0.25, 1)
    assert list(lines({}, {}, changes(pushed, [], [timed])[1])) == [b"headgate.pushed.n:250|ms"]


def test_a_label_cannot_break_out_of_its_line() -> None:
    """A dot, a colon or a line's end in it would be another metric."""
    [name] = changes({}, [counted(1, "a.b:1|c\nx")])[0]
    assert name == "headgate.outcomes.notifications.a_b_1_c_x"


def test_others_metrics_and_gauges_are_not_pushed() -> None:
    """Those of the application are its own matter."""
    found: list[Family] = [
        ("shop_sales", "counter", "", [("shop_sales_total", {}, 3)]),
        ("headgate_x", "gauge", "", [("headgate_x", {}, 1)]),
    ]
    assert changes({}, found) == ({}, [])


def test_the_names_are_bounded() -> None:
    """Should a label ever not be."""
    pushed: dict[str, float] = {}
    found = [counted(1, f"o{number}") for number in range(MAX_NAMES + 10)]
    assert len(changes(pushed, found)[0]) == len(pushed) == MAX_NAMES


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        server.settimeout(30)
        yield server


def test_everything_of_this_process_arrives_in_bounded_datagrams(server: socket.socket) -> None:
    """At the latest with the end; a second end sends nothing."""
    drops = [counted(1, f"outcome-{number}") for number in range(500)]
    push = StatsdPush(server.getsockname(), lambda: drops)
    push.start()
    push._sender.start()
    push.close()
    push.close()
    received: set[str] = set()
    while len(received) < 500:
        datagram = server.recv(65536)
        assert len(datagram) <= MAX_DATAGRAM_BYTES
        received |= {line for line in datagram.decode().split("\n") if ".outcomes." in line}
    assert received == {f"headgate.outcomes.notifications.outcome-{number}:1|c" for number in range(500)}


def test_the_metrics_of_a_gateway_have_names_that_statsd_takes() -> None:
    """Of all that there are."""
    counts, timings = changes({}, families(), HISTOGRAMS)
    assert all(re.fullmatch(r"headgate(\.[A-Za-z0-9_-]+)+", name) for name in [*counts, *(name for name, *_ in timings)])
