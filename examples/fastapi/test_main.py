from fastapi.testclient import TestClient
from main import app

from headgate.testing import Published


def test_shipping_an_order_publishes_it(published: Published) -> None:
    with TestClient(app) as client:
        client.post("/orders/42/ship")
        client.post("/orders/42/pack")

    assert [event.topic for event in published("orders.#")] == ["orders.42.shipped", "orders.42.packed"]
