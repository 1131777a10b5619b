"""An inbox over HTTP while the old primary still answers: not older than the gateway, nor than its reader's position."""

from __future__ import annotations

import pytest

from headgate.errors import BusUnavailable, InvalidRequest
from headgate.redis.inbox import InboxPage
from tests.support.gateway_here import StartGatewayOnModel


@pytest.mark.parametrize("ahead", [0, 2])
def test_a_page_without_what_its_reader_has_had_is_read_again(gateway_on_model: StartGatewayOnModel, ahead: int) -> None:
    """`ahead`: of this gateway, because another one has shown more."""
    gateway = gateway_on_model()
    newest = gateway.publish(3)[-1]
    gateway.wait_until(lambda: gateway.namespace.bus.head >= newest, "the events")
    space, epoch = gateway.namespace, gateway.redis.epoch
    had = (epoch, newest + ahead) if ahead else None
    offsets = iter([newest + ahead - 1, newest + ahead])

    page = space.current_inbox(lambda: InboxPage(epoch, next(offsets), 0, 0, [], None, {}), had)

    assert page.offset == newest + ahead
    with pytest.raises(BusUnavailable):
        space.current_inbox(lambda: InboxPage(epoch, newest + ahead - 1, 0, 0, [], None, {}), had)
    with pytest.raises(InvalidRequest, match="the log does not know it"):
        space.current_inbox(lambda: page, ("0123456789abcdef", 1))
