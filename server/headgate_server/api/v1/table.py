"""The table of all operations of /api/v1, and the OpenAPI document generated from it."""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec

from . import clients, consumers, health, inbox, keys, namespaces, pauses, presence, publishing, reading
from .openapi import document
from .operation import Call, Cost, Operation, Who


def _own_document(_: Call) -> msgspec.Raw:
    """Return the document of the table in which this is a row."""
    return openapi_text()


OPERATIONS = (
    *publishing.OPERATIONS,
    *reading.OPERATIONS,
    *presence.OPERATIONS,
    *inbox.OPERATIONS,
    *namespaces.OPERATIONS,
    *clients.OPERATIONS,
    *consumers.OPERATIONS,
    *pauses.OPERATIONS,
    *keys.OPERATIONS,
    *health.OPERATIONS,
    Operation(
        "getDocument", "GET", "/openapi.json", "This document", Who.ANYONE, dict[str, Any], _own_document, cost=Cost.NOTHING
    ),
)


@cache
def openapi() -> dict[str, Any]:
    """Return the document. It is created on the first request, which makes the start of a gateway a tenth of a second faster."""
    return document(OPERATIONS)


@cache
def openapi_text() -> msgspec.Raw:
    """Return the document as JSON. It is encoded only once, because anyone may ask for it."""
    return msgspec.Raw(msgspec.json.encode(openapi()))
