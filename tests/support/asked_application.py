"""An application with functions that answer pages, each in its way. The tests of `headgate/request` serve it."""

import time
from typing import Any

from flask import Flask, current_app

from headgate import Headgate, PageRequest, RequestRefused

app = Flask("shop")
gate = Headgate(app)


@gate.on_request("orders.price")
def price(request: PageRequest) -> dict[str, Any]:
    """Return the user, and the application."""
    return {"data": request.data, "user": request.identity.user, "namespace": request.namespace, "app": current_app.name}


@gate.on_request("orders.order")
def order(request: PageRequest) -> None:
    """Refuse with a code of the application's own."""
    raise RequestRefused("sold_out", "no more of them", next_on="monday")


@gate.on_request("orders.fail")
def fail(request: PageRequest) -> None:
    raise KeyError("the name of a table")


@gate.on_request("orders.large")
def large(request: PageRequest) -> str:
    """Answer with so many letters."""
    return "x" * int(request.data)


@gate.on_request("orders.size")
def size(request: PageRequest) -> int:
    """Say how many letters it got."""
    return len(request.data)


@gate.on_request("orders.wait")
def wait(request: PageRequest) -> str:
    """Wait for so many seconds. Events say when it begins, and how it ends."""
    gate.publish("orders.begun", request.id)
    end = "stopped"
    try:
        time.sleep(request.data)
        end = "answered"
    finally:
        gate.publish("orders.ended", end)
    return end
