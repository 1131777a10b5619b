"""A shop whose page has a bell. `npm run build`, then `headgate serve app:app --dev`."""

import random
from pathlib import Path

try:
    from flask import Flask, Response, request, send_from_directory

    from headgate import Headgate, Identity
    from headgate.auth.identity import Handshake
except ModuleNotFoundError as missing:
    raise SystemExit(f'{missing.name} is not installed: pip install "headgate[server,embedded]"') from None

app = Flask(__name__)
gate = Headgate(app)
BUILT = Path(__file__).parent / "dist"
PROBLEMS = ("The card was declined", "The address is unknown", "Out of stock")


@gate.authenticate
def sign_in(handshake: Handshake) -> Identity | None:
    """Take the name that the page shows. Yours reads the user of a session or a token."""
    name = handshake.auth.get("name")
    if not (isinstance(name, str) and name.isalnum() and name.isascii() and len(name) <= 20):
        return None
    return Identity(name)


@app.post("/orders")
def order() -> tuple[str, int]:
    """Fail an order of the user: what the user must not miss goes into the inbox."""
    number = random.randrange(1000, 10_000)
    data = {"title": f"Order {number} failed", "detail": random.choice(PROBLEMS)}
    gate.publish("inbox.orders.failed", data, f"failed-{number}", user=request.args["name"])
    return "", 204


@app.get("/")
@app.get("/<path:name>")
def page(name: str = "index.html") -> Response:
    return send_from_directory(BUILT, name)
