from app import app

from headgate.testing import Published


def test_shipping_an_order_publishes_it(published: Published) -> None:
    answer = app.test_client().post("/orders/42/ship")

    [event] = published("orders.*.shipped")
    assert event.data == {"id": 42, "carrier": "UPS"}
    assert answer.json == {"offset": event.receipt.offset}
