"""The demo's pages, where Ana and Ben use the same orders board, and their JSON routes.

`GET /` shows both users side by side (`?user=ana` one, `&twice=1` one with two devices, `&stall_s=2` for shorter troubles).
`POST /demo/session {user}` returns a token. Other routes are `GET /demo/orders`, `POST /demo/orders`, `PUT /demo/orders/<id>
{status}` and `POST /demo/burst {id, events, over_s}`, and for a gateway started as a demo with a private Redis `POST
/demo/restart {id}` and `POST /demo/lose` (trouble.py).
Every change needs the token as a Bearer header, which another site cannot make a browser send.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flask import Blueprint, Response, current_app, jsonify, render_template, request

from headgate.auth.tokens import Tokens
from headgate_server.api.v1.dispatch import json_object
from headgate_server.api.v1.problems import http_refusal

from .orders import STATUSES, OrderBook
from .tokens import USERS, issue
from .trouble import MAX_OVER_S, Troubles

# All troubles one after another take about 30 s with it. `?stall_s=2` is for a shorter demonstration or test.
STALL_S = 4.0
MIN_STALL_S = 0.1


def demo_routes(book: OrderBook, tokens: Callable[[], Tokens]) -> Blueprint:
    """Return the demo's pages and routes."""
    routes = Blueprint("demo", __name__, template_folder=".")
    troubles = Troubles(book)

    def user() -> str:
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        return tokens().verify(token.strip() if scheme.lower() == "bearer" else "").user

    def operator() -> Any:
        """Return the DemoOperator of this process. The command line is above this package, so its type is not named."""
        if (operator_ := current_app.extensions.get("headgate.operator")) is None:
            raise http_refusal(404, "no trouble here: it takes `headgate demo` on loopback, without a Redis URL")
        return operator_

    @routes.get("/")
    def board() -> str:
        stall_s = request.args.get("stall_s", STALL_S, float)
        return render_template(
            "demo.html",
            panes=_panes(request.args.get("user", ""), twice="twice" in request.args),
            users=USERS,
            statuses=STATUSES,
            stall_s=stall_s if MIN_STALL_S <= stall_s <= MAX_OVER_S else STALL_S,
            has_operator="headgate.operator" in current_app.extensions,
        )

    @routes.post("/demo/session")
    def session() -> Response:
        return jsonify(token=issue(tokens(), json_object().get("user")))

    @routes.get("/demo/orders")
    def orders() -> Response:
        return jsonify(book.all())

    @routes.post("/demo/orders")
    def create_order() -> tuple[Response, int]:
        return jsonify(book.create(user())), 201

    @routes.put("/demo/orders/<order_id>")
    def move_order(order_id: str) -> Response:
        return jsonify(book.move(order_id, json_object().get("status"), user()))

    @routes.post("/demo/burst")
    def burst() -> Response:
        return jsonify(published=troubles.burst(json_object(), user()))

    @routes.post("/demo/restart")
    def restart() -> tuple[Response, int]:
        return jsonify(published=troubles.restart(operator().restart, json_object().get("id"), user())), 202

    @routes.post("/demo/lose")
    def lose() -> Response:
        user()
        return jsonify(lost=troubles.lose(operator().lose_end))

    return routes


def _panes(user: str, *, twice: bool) -> list[dict[str, str]]:
    """Return the panes of a page, for all users, for one, or for one with two devices."""
    if user not in USERS:
        return [{"key": each, "user": each, "name": name} for each, name in USERS.items()]
    if not twice:
        return [{"key": user, "user": user, "name": USERS[user]}]
    return [{"key": f"{user}-{device}", "user": user, "name": f"{USERS[user]}’s {device}"} for device in ("laptop", "phone")]
