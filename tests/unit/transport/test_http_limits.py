"""How long a peer may keep us waiting: the rule, on a clock of the test's own."""

from headgate.settings.settings import Settings
from headgate.transport.http_limits import HttpLimits, Pace, Part


def test_silence_is_given_the_grace_and_bytes_give_time_back_up_to_that() -> None:
    """Waiting in pieces counts as one wait. No peer saves time up with a megabyte, to be silent for an hour after it; without a
    rate, as for headers, which are short, the grace is for the whole."""
    pace, whole = Pace(10, 1000), Pace(10)
    for _ in range(10):
        assert pace.left_s > 0
        pace.waited(1)
    assert pace.left_s == 0
    pace.moved(8000)
    assert pace.left_s == 8
    pace.moved(10**9)
    assert pace.left_s == 10
    whole.waited(4)
    whole.moved(10**9)
    assert whole.left_s == 6


def test_the_limits_of_a_gateway_are_its_settings() -> None:
    """One of them has another name there; on a developer's machine all browsers have one address, which then has no limit."""
    settings = Settings(handshake_deadline_s=3, write_deadline_s=4, proxies=2)
    limits = HttpLimits.of(settings)

    assert (limits.header_deadline_s, limits.keep_alive_s, limits.proxies) == (3, 3, 2)
    assert (limits.write_deadline_s, limits.body_deadline_s) == (4, 4)
    assert limits.max_connections_per_address == settings.max_clients_per_address > 0
    assert HttpLimits.of(Settings(dev=True)).max_connections_per_address == 0


def test_each_part_of_an_exchange_has_its_own_pace() -> None:
    """Bytes give time back to bodies and answers alone. Headers and the next request have a deadline for the whole."""
    limits = HttpLimits(header_deadline_s=1, keep_alive_s=2, body_deadline_s=3, write_deadline_s=4, min_bytes_per_s=1)
    left: dict[Part, tuple[float, float]] = {}
    for part in Part:
        pace = part.pace(limits)
        whole_s = pace.left_s
        pace.waited(1)
        pace.moved(100)
        left[part] = (whole_s, pace.left_s)

    assert left == {Part.BODY: (3, 3), Part.ANSWER: (4, 4), Part.LAST: (4, 4)}
