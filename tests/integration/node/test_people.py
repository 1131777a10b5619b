"""The clients of two gateway processes, seen and disconnected from a third, with a real Redis between them."""

from __future__ import annotations

import os
import signal
from contextlib import ExitStack, closing

import pytest

from headgate.services.clients import Clients
from tests.support.gateway_process import StartGateway
from tests.support.raw_client import RawClient


@pytest.mark.timeout(600)
def test_clients_of_two_processes_from_a_third(start_gateway: StartGateway, redis_url: str) -> None:
    """One list, an event for one session, a wish that reaches all, and a process that stands still named as silent.

    The wait for answers is long where one must come, and short where none can.
    """
    settings = {"HEADGATE_REDIS_URL": redis_url}
    gateways = [start_gateway(settings, "--dev") for _ in range(2)]
    with ExitStack() as open_:
        clients = [open_.enter_context(RawClient(gateway.url, {"subscriptions": [{"pattern": "a"}]})) for gateway in gateways]
        sessions = [client.welcome["session"] for client in clients]
        asked = open_.enter_context(closing(Clients(redis_url, within_s=30)))
        page = asked.page()
        assert page.silent == ()
        assert {each.session for each in page.clients} == set(sessions)
        assert {each.gateway.rpartition("/")[2] for each in page.clients} == {str(gateway.pid) for gateway in gateways}
        assert {each.address for each in page.clients} == {"127.0.0.0/24"}
        found = asked.client(sessions[1])
        assert found is not None
        assert found.patterns == ("a",)
        assert asked.send(sessions[0], "hint", {"from": "a third"}) is True
        ((topic, data, meta),) = clients[0].wait_for_events(1)
        assert (topic, data, "offset" in meta) == ("hint", {"from": "a third"}, False)
        assert clients[1].events == []
        assert asked.disconnect(session=sessions[1], reason="enough").count == 1
        clients[1].wait_for(lambda: clients[1].closed, "the end of the connection")
        assert clients[0].closed is None
        gateways[1].wait_for_line("reason=enough .*event=disconnected")

        os.kill(gateways[0].pid, signal.SIGSTOP)
        try:
            hasty = open_.enter_context(closing(Clients(redis_url, within_s=0.2)))
            (silent,) = hasty.page().silent
            assert silent.endswith(f"/{gateways[0].pid}")
        finally:
            os.kill(gateways[0].pid, signal.SIGCONT)
