"""A chat room with presence. `npm run build`, then `headgate serve app:app --dev`."""

from pathlib import Path

try:
    from flask import Flask, Response, send_from_directory

    from headgate import Headgate, Identity
    from headgate.auth.identity import Handshake
except ModuleNotFoundError as missing:
    raise SystemExit(f'{missing.name} is not installed: pip install "headgate[server,embedded]"') from None

app = Flask(__name__)
gate = Headgate(app)
BUILT = Path(__file__).parent / "dist"


@gate.authenticate
def sign_in(handshake: Handshake) -> Identity | None:
    """Take the name that the visitor has typed. Yours reads the user of a session or a token.

    Each user may publish on a topic of its own only, so nobody can speak in the name of another.
    """
    name = handshake.auth.get("name")
    if not (isinstance(name, str) and name.isalnum() and name.isascii() and len(name) <= 20):
        return None
    return Identity(name, subscribe=("chat.lobby.*", "chat.lobby"), publish=(f"chat.lobby.{name}",))


@app.get("/")
@app.get("/<path:name>")
def page(name: str = "index.html") -> Response:
    return send_from_directory(BUILT, name)
