import time

import jwt
from django.conf import settings
from django.db import transaction
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from .events import publish_on_commit
from .models import Order


def token(request: HttpRequest) -> HttpResponse:
    """Who is signed in at Django may subscribe to orders, for an hour at a time."""
    if not request.user.is_authenticated:
        return HttpResponse("sign in first", status=401)
    claims = {"sub": request.user.get_username(), "aud": "headgate", "exp": time.time() + 3600, "subscribe": ["orders.#"]}
    return HttpResponse(jwt.encode(claims, settings.HEADGATE_TOKEN_SECRET), content_type="text/plain")


def orders(request: HttpRequest) -> JsonResponse:
    return JsonResponse([order.as_event() for order in Order.objects.order_by("id")], safe=False)


@csrf_exempt  # the example has no page of its own; yours sends the token of its form
@require_POST
@transaction.atomic
def ship(request: HttpRequest, number: int) -> JsonResponse:
    order, _ = Order.objects.select_for_update().get_or_create(pk=number)
    order.status, order.version = "shipped", order.version + 1
    order.save()
    publish_on_commit(f"orders.{number}.shipped", order.as_event())
    if request.POST.get("carrier") == "none":
        raise ValueError("no carrier: the transaction is rolled back, and nobody hears of it")
    return JsonResponse(order.as_event())
