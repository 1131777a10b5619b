"""The limits of HTTP, and the settings that they follow."""

from headgate.settings.settings import Settings
from headgate.transport.http_limits import HttpLimits


def test_the_limits_of_a_gateway_are_its_settings() -> None:
    """One of them has another name there; on a developer's machine all browsers have one address, which then has no limit."""
    settings = Settings(handshake_deadline_s=3, write_deadline_s=4, proxies=2)
    limits = HttpLimits.of(settings)

    assert (limits.header_deadline_s, limits.keep_alive_s, limits.proxies) == (3, 3, 2)
    assert (limits.write_deadline_s, limits.body_deadline_s) == (4, 4)
    assert limits.max_connections_per_address == settings.max_clients_per_address > 0
    assert HttpLimits.of(Settings(dev=True)).max_connections_per_address == 0
