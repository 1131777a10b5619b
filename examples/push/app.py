"""Web Push for what nobody has read: `headgate serve app:app --with-consumers --config headgate.toml --dev`."""

import os

try:
    from flask import Flask, Response, abort, redirect, render_template, request, session

    from headgate import Headgate, Identity
    from headgate.auth.identity import Handshake
except ModuleNotFoundError as missing:
    raise SystemExit(f'{missing.name} is not installed: pip install "headgate[server,push,embedded]"') from None

import devices

app = Flask(__name__)
# Yours is a secret of its own, and cookies are `Secure`.
app.secret_key = os.environ["VAPID_PRIVATE_KEY"]
app.config["SESSION_COOKIE_SAMESITE"] = "Lax"
gate = Headgate(app)


@gate.authenticate
def sign_in(handshake: Handshake) -> Identity | None:
    """Let in the user of Flask's session."""
    with app.request_context(dict(handshake.environ)):
        return Identity(session["user"]) if "user" in session else None


@app.get("/")
def page() -> Response | str:
    if "user" not in session:  # Yours asks for a password.
        session["user"] = request.args.get("user", "ana")
        return redirect("/")
    return render_template("page.html", key=os.environ["VAPID_PUBLIC_KEY"], user=session["user"])


@app.get("/worker.js")
def worker() -> Response:
    """At the top, so that it serves every page."""
    return app.send_static_file("worker.js")


@app.post("/devices")
def subscribe() -> tuple[str, int]:
    return ("", 204) if devices.add(user(), request.get_json()) else ("no subscription", 400)


@app.delete("/devices")
def unsubscribe() -> tuple[str, int]:
    devices.remove(user(), request.get_json()["endpoint"])
    return "", 204


@app.post("/read")
def read() -> tuple[str, int]:
    """Mark an item as read, in every tab and on every device."""
    gate.publish("inbox", {"op": "read", "ids": [request.get_json()["item"]]}, user=user())
    return "", 204


@app.post("/orders/<int:number>/fail")
def fail(number: int) -> tuple[str, int]:
    gate.publish("inbox.orders.failed", {"title": f"Order {number}", "why": "no stock"}, user=user())
    return "", 204


def user() -> str:
    """Return who is signed in."""
    return session["user"] if "user" in session else abort(401)
