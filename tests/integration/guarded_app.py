"""An application with an authenticator, served by test_gateway.py as `headgate serve tests.integration.guarded_app:app`."""

from flask import Flask

from headgate import Headgate, Identity
from headgate.errors import Unauthorized
from headgate.identity import Handshake

app = Flask(__name__)
gate = Headgate(app)

GRANTS = {
    "clerk": Identity("clerk", subscribe=("orders.#", "stock.*"), publish=("orders.*.seen",)),
    "guest": Identity("guest"),
}


@gate.authenticate
def who(handshake: Handshake) -> Identity | None:
    """The token is the user's name; two words provoke the two ways to fail."""
    if handshake.token == "expired":
        raise Unauthorized("the token has expired")
    if handshake.token == "broken":
        raise RuntimeError("password=hunter2")
    return GRANTS.get(handshake.token or "")
