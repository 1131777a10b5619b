"""Web Push for what the user has not read: `headgate serve app:app --with-consumers --config headgate.toml --dev`."""

import os

import devices
from flask import Flask, render_template, request

from headgate import Headgate, Identity

if "VAPID_PUBLIC_KEY" not in os.environ:
    raise SystemExit("VAPID_PUBLIC_KEY is not set: headgate vapid-keys --file push.env; set -a; . ./push.env; set +a")

app = Flask(__name__, static_url_path="")  # /worker.js is at the top, so that it serves every page
gate = Headgate(app)
USER = "ana"  # yours: the user of the session
gate.authenticate(lambda handshake: Identity(USER))


@app.get("/")
def page() -> str:
    return render_template("page.html", key=os.environ["VAPID_PUBLIC_KEY"])


@app.post("/devices")
def device() -> tuple[str, int]:
    return ("", 204) if devices.add(USER, request.get_json()) else ("expected a subscription", 400)


@app.post("/orders/<int:number>/fail")
def fail(number: int) -> tuple[str, int]:
    gate.publish("inbox.orders.failed", {"title": f"Order {number}", "why": "no stock"}, user=USER)
    return "", 204
