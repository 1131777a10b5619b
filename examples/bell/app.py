"""A shop whose page has a bell. `npm run build`, then `headgate serve app:app --dev`."""

from pathlib import Path

from flask import Flask, Response

from headgate import Headgate, Identity

app = Flask(__name__, static_folder="dist", static_url_path="")
if not Path(__file__).with_name("dist").exists():
    raise SystemExit("dist/ is missing: npm install --no-save ../../dist/headgate-*.tgz && npm run build")
gate = Headgate(app)
USER = "ana"  # yours: the user of the session
gate.authenticate(lambda handshake: Identity(USER))


@app.post("/orders/<int:number>/fail")
def fail(number: int) -> tuple[str, int]:
    """What the user must not miss goes into the inbox."""
    gate.publish("inbox.orders.failed", {"title": f"Order {number} failed", "detail": "Out of stock"}, user=USER)
    return "", 204


@app.get("/")
def page() -> Response:
    return app.send_static_file("index.html")
