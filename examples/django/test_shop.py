import pytest
from django.test import Client

from headgate.testing import Published


@pytest.mark.django_db(transaction=True)
def test_an_order_is_published_when_it_is_committed(client: Client, published: Published) -> None:
    client.post("/orders/42/ship")
    with pytest.raises(ValueError, match="no carrier"):
        client.post("/orders/43/ship", {"carrier": "none"})

    assert [event.topic for event in published("orders.#")] == ["orders.42.shipped"]
