"""The console's sign-in page, its one page for all views, and its session.

`GET /console` and `GET /console/<view>` are the page. Without a session, a visitor gets the sign-in page if there is a key, and
otherwise 404, which hides the console. Other routes are `POST /console/sign-in {key}`, `POST /console/sign-out`, `GET
/console/session` (the ticket for the socket). reads.py has the data of the views, acts.py their
actions, access.py the rights.

Text of events is never part of HTML, because the page creates elements and sets their text (web/console).
"""

from __future__ import annotations

from collections.abc import Mapping

from flask import Blueprint, Flask, Response, abort, g, jsonify, redirect, render_template, request
from flask.typing import ResponseReturnValue

from headgate.errors import HeadgateError, LimitReached, Unauthorized, UnauthorizedReason
from headgate.flask.extension import Headgate
from headgate.flask.page_files import add_page_files
from headgate.installation import __version__
from headgate.settings.settings import Settings
from headgate.transport.peer_address import forwarded_scheme
from headgate_server.api.error_pages import refusal
from headgate_server.api.security_headers import add_security_headers
from headgate_server.api.v1.services import Services

from .access import COOKIE, SESSION_S, Access, Operator, check_own_page
from .acts import act_routes
from .reads import read_routes

# The title of each view of the page, by its path segment.
VIEWS: Mapping[str, str] = {
    "": "Overview",
    "tail": "Live tail",
    "clients": "Clients",
    "topics": "Topics and log",
    "consumers": "Consumers",
    "trace": "Trace",
    "presence": "Presence",
    "schemas": "Schemas",
    "keys": "API keys",
}
NAME = "headgate_console"


def add_console(app: Flask, gate: Headgate, settings: Settings) -> None:
    """Add the console to an application if anyone could enter it. Idempotent.

    `HEADGATE_ADMIN_KEY` admits operators, and so does an application's authenticator with `admin` in an identity.
    """
    add_page_files(app, "headgate_server")  # in any case, so that its files reveal no console
    if NAME in app.blueprints or (settings.admin_key is None and not gate.has_authenticator):
        return
    identify = gate.identify if gate.has_authenticator else None
    access = Access(settings, identify, gate.check_revoked, lambda session, for_s: gate.revoke(token_id=session, for_s=for_s))
    if access.takes_key:
        gate.admit_console(access.admit)
    app.register_blueprint(console_routes(gate, settings, access))


def console_routes(gate: Headgate, settings: Settings, access: Access) -> Blueprint:
    """Return the console's pages and routes."""
    routes = Blueprint(NAME, __name__, url_prefix="/console", template_folder="../../templates")

    @routes.before_request
    def enter() -> ResponseReturnValue | None:
        """Find the operator. Other visitors only see the sign-in page, if there is a key."""
        g.operator = None
        if request.endpoint == f"{NAME}.sign_in":
            return None
        g.operator = access.operator(request.cookies.get(COOKIE), request.environ)
        if g.operator is not None or request.endpoint == f"{NAME}.page":
            return None
        if not access.takes_key:
            abort(404)
        return refusal(Unauthorized(UnauthorizedReason.NO_TOKEN, "sign in at /console"))

    @routes.after_request
    def secure(response: Response) -> Response:
        # With no-referrer a form's Origin would be null, and every sign-in would fail.
        response.headers["Referrer-Policy"] = "same-origin"
        return add_security_headers(response)

    @routes.errorhandler(HeadgateError)
    def refuse(error: HeadgateError) -> Response:
        return refusal(error)

    @routes.get("", defaults={"view": ""}, strict_slashes=False)
    @routes.get("/<any({}):view>".format(", ".join(filter(None, VIEWS))))
    def page(view: str) -> str:
        operator: Operator | None = g.operator
        if operator is None:
            return _sign_in_page(access)
        return render_template(
            "headgate_console.html",
            version=__version__,
            views=VIEWS,
            current=view,
            operator=operator,
            namespaces=settings.namespaces,
            limits={"log_max_age_s": settings.log_max_age_s},
            trace_every=settings.trace_every,
        )

    @routes.post("/sign-in")
    def sign_in() -> ResponseReturnValue:
        if not access.takes_key:
            abort(404)
        check_own_page(request.environ, settings.proxies)
        try:
            session = access.sign_in(request.form.get("key", ""), request.environ)
        except LimitReached as error:
            page = _sign_in_page(access, f"Too many wrong keys from your address. Try again in {error.retry_after_s} s.")
            return page, 429, {"Retry-After": str(error.retry_after_s)}
        except Unauthorized:
            return _sign_in_page(access, "This is not the admin key."), 401
        response = redirect("/console", 303)
        secure = request.is_secure or forwarded_scheme(request.environ, settings.proxies) == "https"
        response.set_cookie(COOKIE, session, max_age=SESSION_S, path="/console", httponly=True, samesite="Strict", secure=secure)
        return response

    @routes.post("/sign-out")
    def sign_out() -> ResponseReturnValue:
        check_own_page(request.environ, settings.proxies)
        access.sign_out(g.operator, request.environ)
        response = redirect("/console", 303)
        response.delete_cookie(COOKIE, path="/console", httponly=True, samesite="Strict")
        return response

    @routes.get("/session")
    def session() -> Response:
        operator: Operator = g.operator
        return jsonify(user=operator.user, may=operator.may, ticket=access.ticket(operator))

    services = Services(gate, settings)
    read_routes(routes, gate, services)
    act_routes(routes, gate, services, access)
    return routes


def _sign_in_page(access: Access, fault: str = "") -> str:
    if not access.takes_key:
        abort(404)
    return render_template("headgate_console_sign_in.html", fault=fault)
