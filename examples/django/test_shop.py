import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import transaction
from django.test import Client

from headgate.testing import Published


@pytest.mark.django_db
def test_an_order_that_fails_is_published_when_it_is_committed(client: Client, published: Published) -> None:
    client.force_login(User.objects.create(username="ana"))
    client.post("/orders/42/fail")
    with transaction.atomic():
        client.post("/orders/43/fail")
        transaction.set_rollback(True)

    call_command("events_relay")

    assert [event.topic for event in published("#")] == ["orders.42.failed", "users.ana.inbox.orders.failed"]
