import time

import jwt
from django.conf import settings
from django.contrib import auth
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import path
from django.views.decorators.http import require_POST

from .events import publish_on_commit
from .models import Order


def page(request: HttpRequest) -> HttpResponse:
    if not request.user.is_authenticated:  # yours asks for a password
        auth.login(request, auth.get_user_model().objects.get_or_create(username=request.GET.get("user", "ana"))[0])
    return render(request, "page.html", {"gateway": settings.GATEWAY_URL, "user": request.user})


def token(request: HttpRequest) -> HttpResponse:
    """Users who are signed in at Django may subscribe to orders, and have an inbox, for an hour at a time."""
    if not request.user.is_authenticated:
        return HttpResponse("sign in first", status=401)
    claims = {"sub": request.user.get_username(), "aud": "headgate", "exp": time.time() + 3600, "subscribe": ["orders.#"]}
    return HttpResponse(jwt.encode(claims, settings.HEADGATE_TOKEN_SECRET), content_type="text/plain")


@require_POST
@transaction.atomic
def fail(request: HttpRequest, number: int) -> HttpResponse:
    """Every page shows the failed order, and its user also gets an item in the inbox. After a rollback nothing is published."""
    Order.objects.update_or_create(pk=number, defaults={"status": "failed"})
    publish_on_commit(f"orders.{number}.failed", {"id": number, "status": "failed"})
    publish_on_commit("inbox.orders.failed", {"title": f"Order {number} failed"}, user=request.user.get_username())
    return HttpResponse(status=204)


urlpatterns = [path("", page), path("token", token), path("orders/<int:number>/fail", fail)]
