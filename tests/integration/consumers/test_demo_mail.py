"""The demo's consumer: a failed order is mailed to the person on call; here the mail is printed."""

from __future__ import annotations

from pathlib import Path

from tests.e2e.shop import Shop
from tests.support.gateway_process import StartGateway

CONFIG = Path(__file__).parents[3] / "server" / "headgate_server" / "demo" / "demo.toml"


def test_an_order_that_fails_is_mailed(start_gateway: StartGateway) -> None:
    """As `make run` starts it, without a mail server, and the mail is on the terminal. Other changes are mailed to no one."""
    gateway = start_gateway({}, "--demo", "--with-consumers", "--config", str(CONFIG))
    gateway.wait_for_line(r"^headgate: consuming notifications as on-call .*: orders\.\*\.failed, from offset 1$")
    shop = Shop(gateway.url, "ana")
    shop.move("41", "packed")

    shop.move("41", "failed")

    gateway.wait_for_line("^    To: on-call@example.com$")
    gateway.wait_for_line("^    Subject: Order 41 failed$")
    gateway.wait_for_line("^    customer: Lindqvist & Co$")
    assert gateway.output.count("Subject:") == 1
