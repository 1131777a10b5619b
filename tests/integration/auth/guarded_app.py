"""An application with an authenticator, served by tests as `headgate serve tests.integration.auth.guarded_app:app`."""

from time import sleep

from flask import Flask

from headgate import Headgate, Identity
from headgate.auth.identity import Handshake
from headgate.errors import Unauthorized

app = Flask(__name__)
gate = Headgate(app)

GRANTS = {
    "clerk": Identity("clerk", subscribe=("orders.#", "stock.*"), publish=("orders.*.seen",)),
    "guest": Identity("guest"),
}


@gate.authenticate
def identify(handshake: Handshake) -> Identity | None:
    """The token is the user's name; two words provoke the two ways to fail, a third waits until the gateway drains."""
    if handshake.token == "expired":
        raise Unauthorized("the token has expired")
    if handshake.token == "broken":
        raise RuntimeError("password=hunter2")
    if handshake.token == "slow":
        print("asked about slow", flush=True)
        while not gate.gateway.draining:
            sleep(0.01)
        return GRANTS["guest"]
    return GRANTS.get(handshake.token or "")
