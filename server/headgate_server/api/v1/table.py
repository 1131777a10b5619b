"""The table of all operations of /api/v1, and the OpenAPI document generated from it."""

from __future__ import annotations

import threading
import time
from contextlib import AbstractContextManager
from functools import cache
from typing import Any

import msgspec

from . import clients, consumers, health, inbox, keys, namespaces, pauses, presence, publishing, reading
from .openapi import document
from .operation import Call, Cost, Operation, Who, operation


@operation("GET /openapi.json", Who.ANYONE, returns=dict[str, Any], cost=Cost.NOTHING)
def get_document(_: Call) -> msgspec.Raw:
    """This document."""
    return openapi_text()


_ROOMS = (reading, presence, inbox, namespaces, clients, consumers, pauses, keys, health)
_ROWS = (row for room in _ROOMS for row in vars(room).values() if isinstance(row, Operation))
OPERATIONS: tuple[Operation, ...] = (*publishing.OPERATIONS, *_ROWS, get_document)


# Long enough for the loop of a gateway to serve all others; without such a loop, a moment.
_TURN_S = 0.0001


def openapi() -> dict[str, Any]:
    """Return the document. The first caller builds it, which makes the start of a gateway faster; others have turns meanwhile."""
    with _building():  # a caller that comes in between waits
        return _openapi()


@cache
def openapi_text() -> msgspec.Raw:
    """Return the document as JSON. It is encoded only once, because anyone may ask for it."""
    return msgspec.Raw(msgspec.json.encode(openapi()))


@cache
def _building() -> AbstractContextManager[Any]:
    """Return the one lock. It is made at the first request, as gevent may patch locks after this module was imported."""
    return threading.Lock()


@cache
def _openapi() -> dict[str, Any]:
    return document(OPERATIONS, lambda: time.sleep(_TURN_S))
