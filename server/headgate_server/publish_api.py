"""`POST /api/publish {topic, data, id?, namespace?}`: publishing over HTTP, for now in development only.

Out: 201 with the receipt `{epoch, offset, duplicate, id}`, or an error of the tree. Without HEADGATE_DEV there is one
answer, 403: nobody may publish over HTTP before there are tokens that say who.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import msgspec
from flask import Blueprint, Response, jsonify, request

from headgate.errors import Forbidden, HeadgateError, InvalidRequest, NotSerializable, PayloadTooLarge
from headgate.settings import Settings

from .gate import Gate

_LOOPBACK_NAMES = {"127.0.0.1", "::1", "localhost"}


class PublishDisabled(HeadgateError):
    """Publishing over HTTP is off; the message says what to set."""

    code = "forbidden"

    def __init__(self) -> None:
        super().__init__(
            "publishing over HTTP is off: set HEADGATE_DEV=1 (development, loopback only), or publish with headgate.Publisher",
            action="publish",
            setting="HEADGATE_DEV",
        )


class _Request(msgspec.Struct, forbid_unknown_fields=True):
    topic: str
    data: msgspec.Raw
    id: str | None = None
    namespace: str | None = None


_decode = msgspec.json.Decoder(_Request).decode


def publish_routes(gate: Gate, settings: Settings) -> Blueprint:
    """Return the route. Its body is bounded by the application's MAX_CONTENT_LENGTH before it is read."""
    routes = Blueprint("publish_api", __name__)

    @routes.post("/api/publish")
    def publish() -> Response:
        if not settings.dev:
            raise PublishDisabled
        _refuse_other_sites()
        asked, data = _read_body(settings.max_payload_bytes)
        receipt = gate.publish(asked.topic, data, id=asked.id, namespace=asked.namespace)
        response = jsonify(epoch=receipt.epoch, offset=receipt.offset, duplicate=receipt.duplicate, id=receipt.id)
        response.status_code = 201
        return response

    return routes


def _refuse_other_sites() -> None:
    """Refuse a browser that another site sent here: development lets anyone on this machine in, and no web page.

    The Origin names the page's site; the Host, checked too, is what a page that rebinds its DNS name cannot fake. A
    page could send a body of text/plain without asking first, so nothing but JSON is read (see _read_body).
    """
    try:
        host = urlsplit(f"//{request.host}").hostname
    except ValueError:
        host = None
    if host not in _LOOPBACK_NAMES:
        raise Forbidden("publish from host", request.host)
    origin = request.headers.get("Origin")
    if origin is not None and origin != request.host_url.rstrip("/"):
        raise Forbidden("publish from origin", origin)


def _read_body(max_payload_bytes: int) -> tuple[_Request, Any]:
    if request.mimetype != "application/json":
        raise InvalidRequest("expected a body of type application/json")
    try:
        asked = _decode(request.get_data(cache=False))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidRequest(f"expected {{topic, data, id?, namespace?}}: {error}") from error
    if (size := len(asked.data)) > max_payload_bytes:
        raise PayloadTooLarge(size, max_payload_bytes, "http")
    try:
        return asked, msgspec.json.decode(asked.data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise NotSerializable(str(error)) from error
