"""A chat room with presence. `npm run build`, then `headgate serve app:app --dev`."""

from pathlib import Path

from flask import Flask, Response

from headgate import Handshake, Headgate, Identity

app = Flask(__name__, static_folder="dist", static_url_path="")
if not Path(__file__).with_name("dist").exists():
    raise SystemExit("dist/ is missing: npm install --no-save ../../dist/headgate-*.tgz && npm run build")
gate = Headgate(app)


@gate.authenticate
def sign_in(handshake: Handshake) -> Identity | None:
    """Take the name that the visitor has typed. Yours reads the user of a session or a token.

    Each user may publish on one topic only, so nobody can speak in the name of another.
    """
    name = handshake.auth.get("name")
    valid = isinstance(name, str) and name.isalnum() and name.isascii() and len(name) <= 20
    return Identity(name, subscribe=("chat.lobby.*", "chat.lobby"), publish=(f"chat.lobby.{name}",)) if valid else None


@app.get("/")
def page() -> Response:
    return app.send_static_file("index.html")
