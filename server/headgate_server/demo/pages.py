"""The demo: Ana and Ben look at the same orders board. Pages, and the JSON routes behind them.

`GET /` both users side by side (`?user=ana` one, `&twice=1` one with two devices, `&stall_s=2` for shorter troubles),
`POST /demo/session {user}` a token, `GET /demo/orders`, `POST /demo/orders`, `PUT` and `DELETE /demo/orders/<id>`,
`POST /demo/orders/<id>/restore {version}`, `POST /demo/burst {events?, over_s?, id?}`, `GET /demo/burst/<id>`; and where the
gateway was started as a demo, with a Redis of its own, `POST /demo/restart {id?}` and `POST /demo/lose` (trouble.py).
Every change needs the token as a Bearer header (which also means that no other site can make a browser send it) and is
published by orders.py, bursts by bursts.py.
"""

from __future__ import annotations

from flask import Blueprint, Response, abort, current_app, jsonify, render_template, request

from headgate.auth.identity import Authenticator, Handshake, Identity
from headgate.errors import InvalidRequest, Unauthorized, UnauthorizedReason
from headgate.protocol.requests import check_text

from .bursts import Bursts
from .orders import STATUSES, TEXT_LIMITS, OrderBook
from .tokens import TOKEN_LIFETIME_S, USERS, DemoTokens
from .trouble import Operator, Trouble

STALL_S = 10.0
# `?stall_s=2`: a demonstration or a test may not have ten seconds.
MIN_STALL_S = 0.1


def demo_authenticator(tokens: DemoTokens, *, dev: bool, namespaces: tuple[str, ...] | None = None) -> Authenticator:
    """Return the authenticator of the demo: a user sees all orders and its own messages, and publishes nothing.

    With `dev`, a client without a token may do everything, in all `namespaces`, as HEADGATE_DEV promises.
    """

    def authenticate(handshake: Handshake) -> Identity | None:
        if dev and "token" not in handshake.auth:
            return Identity("anonymous", subscribe=("#",), publish=("#",), namespaces=namespaces)
        user = tokens.verify(handshake.token)
        return Identity(user, subscribe=("orders.#",))

    return authenticate


def demo_routes(book: OrderBook, tokens: DemoTokens) -> Blueprint:
    """Return the demo's pages and routes."""
    routes = Blueprint("demo", __name__)
    bursts = Bursts(book.scan, book.keep_all)
    troubles: list[Trouble] = []

    @routes.before_request
    def take_over() -> None:
        """Before the first request of any page, restore orders and bursts that the operator brought through a restart."""
        operator: Operator | None = current_app.extensions.get("headgate.operator")
        if operator is not None and not troubles:
            troubles.append(Trouble(operator, bursts, book))

    def trouble() -> Trouble:
        if not troubles:
            abort(404, "no trouble here: it takes `headgate demo` on loopback, without a Redis URL")
        return troubles[0]

    @routes.get("/")
    def board() -> str:
        return render_template(
            "demo.html",
            panes=_panes(request.args.get("user", ""), twice="twice" in request.args),
            users=USERS,
            statuses=STATUSES,
            note_length=TEXT_LIMITS["note"],
            stall_s=_stall_s(request.args.get("stall_s")),
            has_operator="headgate.operator" in current_app.extensions,
        )

    @routes.post("/demo/session")
    def session() -> Response:
        user = _body().get("user")
        return jsonify(token=tokens.issue(user), user=user, expires_in_s=TOKEN_LIFETIME_S)

    @routes.get("/demo/orders")
    def orders() -> Response:
        return jsonify(book.all())

    @routes.post("/demo/orders")
    def create_order() -> tuple[Response, int]:
        return jsonify(book.create(_user(tokens))), 201

    @routes.put("/demo/orders/<order_id>")
    def change_order(order_id: str) -> Response:
        return jsonify(book.change(order_id, _body(), _user(tokens)))

    @routes.delete("/demo/orders/<order_id>")
    def delete_order(order_id: str) -> Response:
        return jsonify(book.delete(order_id, _body().get("version"), _user(tokens)))

    @routes.post("/demo/orders/<order_id>/restore")
    def restore_order(order_id: str) -> Response:
        return jsonify(book.restore(order_id, _body().get("version"), _user(tokens)))

    @routes.post("/demo/burst")
    def start_burst() -> Response:
        user = _user(tokens)
        burst = bursts.start(_body() if request.content_length else {}, user)
        response = jsonify(id=burst.id, events=burst.events) if burst.over_s else jsonify(published=burst.published)
        response.status_code = 202 if burst.over_s else 200
        return response

    @routes.post("/demo/restart")
    def restart() -> tuple[Response, int]:
        troubled, user, asked = trouble(), _user(tokens), _body()
        return jsonify(id=asked.get("id"), events=troubled.restart(asked.get("id"), user)), 202

    @routes.post("/demo/lose")
    def lose() -> Response:
        return jsonify(trouble().lose(_user(tokens)))

    @routes.get("/demo/burst/<burst_id>")
    def burst_record(burst_id: str) -> Response:
        return jsonify(bursts.record(burst_id))

    return routes


def _panes(user: str, *, twice: bool) -> list[dict[str, str]]:
    """Return the panes of a page: of all users, of one, or of one with two devices."""
    if user not in USERS:
        return [{"key": each, "user": each, "name": name} for each, name in USERS.items()]
    if not twice:
        return [{"key": user, "user": user, "name": USERS[user]}]
    return [{"key": f"{user}-{device}", "user": user, "name": f"{USERS[user]}’s {device}"} for device in ("laptop", "phone")]


def _stall_s(asked: str | None) -> float:
    """Return the duration of a stall or cut in seconds: 10, or the value in the page's URL, within limits."""
    try:
        seconds = float(asked or STALL_S)
    except ValueError:
        return STALL_S
    return seconds if MIN_STALL_S <= seconds <= STALL_S else STALL_S


def _user(tokens: DemoTokens) -> str:
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() != "bearer":
        raise Unauthorized(UnauthorizedReason.NO_TOKEN, "no token; POST /demo/session gives one")
    return tokens.verify(token.strip())


def _body() -> dict[str, object]:
    body = request.get_json(silent=True) if request.mimetype == "application/json" else None
    if not isinstance(body, dict):
        raise InvalidRequest("expected a JSON object of type application/json")
    check_text(body)
    return body
