"""`POST /api/publish {topic, data, id?, namespace?}`: publishing over HTTP, for those whose grants contain the topic.

Out: 201 with the receipt `{epoch, offset, duplicate, id}`, or an error of the tree; 429 for who goes too fast.
"""

from __future__ import annotations

import time

import msgspec
from flask import Blueprint, Response, jsonify, request
from werkzeug.exceptions import RequestEntityTooLarge

from headgate.auth.audit import audit
from headgate.errors import Forbidden, InvalidRequest, LimitReached, NotSerializable, PayloadTooLarge
from headgate.runtime.rates import Rates
from headgate.settings import Settings
from headgate.topic import check_topic
from headgate.transport.peer_address import address_of
from headgate_server.gate import Gate

from .callers import caller, check_known


class _Request(msgspec.Struct, forbid_unknown_fields=True):
    topic: str
    data: msgspec.Raw
    id: str | None = None
    namespace: str | None = None


_decode = msgspec.json.Decoder(_Request).decode


def publish_routes(gate: Gate, settings: Settings) -> Blueprint:
    """Return the route. Its body is bounded by the application's MAX_CONTENT_LENGTH before it is read."""
    routes = Blueprint("publish_api", __name__)
    rates = Rates(settings.publish_per_s, settings.publish_burst)

    @routes.post("/api/publish")
    def publish() -> Response:
        check_known(gate, settings.namespaces)  # a stranger's body is not waited for
        # Nothing but JSON is read: a page of another site could send text/plain without asking first.
        asked, data = _read_body(settings.max_payload_bytes)
        topic = check_topic(asked.topic)
        namespace = (asked.namespace if asked.namespace is not None else settings.namespaces[0]).removeprefix("/")
        identity = caller(gate, namespace)
        if not identity.may_publish(topic):
            address = address_of(request.environ, settings.proxies)
            audit.right_refused(address=address, namespace=namespace, user=identity.user, action="publish", name=topic)
            raise Forbidden("publish to", topic)
        if wait_s := rates.spend(identity.user, time.monotonic()):
            raise LimitReached("publish_per_s", settings.publish_per_s, wait_s)
        receipt = gate.publish(topic, data, id=asked.id, namespace=namespace, by=identity.user)
        response = jsonify(epoch=receipt.epoch, offset=receipt.offset, duplicate=receipt.duplicate, id=receipt.id)
        response.status_code = 201
        return response

    return routes


def _whole_body() -> bytes:
    """Return the body. Of a chunked one werkzeug reads as much as may come, and passes that off as the whole."""
    body = request.get_data(cache=False)
    if request.content_length is None and request.environ["wsgi.input"].read(1):
        raise RequestEntityTooLarge
    return body


def _read_body(max_payload_bytes: int) -> tuple[_Request, object]:
    if request.mimetype != "application/json":
        raise InvalidRequest("expected a body of type application/json")
    try:
        asked = _decode(_whole_body())
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidRequest(f"expected {{topic, data, id?, namespace?}}: {error}") from error
    if (size := len(asked.data)) > max_payload_bytes:
        raise PayloadTooLarge(size, max_payload_bytes, "http")
    try:
        return asked, msgspec.json.decode(asked.data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise NotSerializable(str(error)) from error
