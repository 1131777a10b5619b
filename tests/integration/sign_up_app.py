"""An application whose users choose their own names, served by tests as `headgate serve tests.integration.sign_up_app:app`.

Its authenticator makes the mistakes that real ones make, so that tests can see what becomes of them.
"""

import json

from flask import Flask, request
from flask.typing import ResponseReturnValue

from headgate import Handshake, Headgate, HeadgateError, Identity

app = Flask(__name__)
gate = Headgate(app)


def misused(token: str) -> Identity:
    """Fail as libraries do: with a text that has the token, or a part of it, in it."""
    raise ValueError(f"cannot parse {token!r}: bad padding near {token[10:30]}")


@gate.authenticate
def identify(handshake: Handshake) -> Identity | None:
    """The token is JSON: `{name}` of a user who chose it, and what goes wrong with it."""
    token = handshake.token or ""
    if token.startswith("leak:"):
        try:
            misused(token)
        except ValueError as error:
            raise RuntimeError(f"{handshake!r} failed with {token}") from error
    if not token.startswith("{"):
        return None
    asked = json.loads(token)
    name = asked["name"]
    if asked.get("by_hand"):
        return Identity(name, subscribe=("orders.#", f"users.{name}.#"))
    if asked.get("one_text"):
        return Identity(name, subscribe="ab")  # type: ignore[arg-type]
    return Identity(name, subscribe=("orders.#",), publish=("orders.#",), namespaces=asked.get("namespaces"))


@app.get("/me")
def me() -> ResponseReturnValue:
    """Say who the bearer of a token is, by the same authenticator."""
    token = request.headers.get("Authorization", "").removeprefix("Bearer ")
    try:
        return {"user": gate.identify(Handshake("notifications", {"token": token}, request.environ)).user}
    except HeadgateError as error:
        return {"error": error.to_wire()}, 401
