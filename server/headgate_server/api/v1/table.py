"""The table of all operations of /api/v1, and the OpenAPI document that is made from it."""

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
    """Return the document. It is made when somebody first asks: a gateway that nobody asks starts a tenth of a second sooner."""
    return document(OPERATIONS)


@cache
def openapi_text() -> msgspec.Raw:
    """Return the document as JSON. Anyone may ask for it: it is not written anew each time."""
    return msgspec.Raw(msgspec.json.encode(openapi()))
