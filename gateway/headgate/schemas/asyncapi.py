"""The AsyncAPI 3.0 document of the Socket.IO side: a channel per pattern, with the namespace as the server. No I/O.

In: a catalogue, and the gateway's URL. Out: a document of plain values, deterministic for its input. A message is one `event`
on the wire (docs/protocol.md): its payload is the event's data, and its headers are the other fields. Clients receive on every
channel, and publish where their grants allow it.

Schemas are included unchanged, each file once; references between them point to their places in the document.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from headgate.errors import InvalidRequest

from .catalogue import Catalogue, Place
from .documents import SUFFIX
from .keywords import TOPIC, parts
from .shapes import read_model

VERSION = "3.0.0"
_FORMAT = "application/schema+json;version=draft-2020-12"
_INTRODUCTION = (
    "Events over Socket.IO 5. A client subscribes to a pattern (`*` is one word, `#` is zero or more) and gets each event as "
    "`event(topic, data, {id, time, offset?, replayed?})`. It publishes with `publish({topic, data, id?})`. "
    "The operations are a client's."
)
_LEFT_OUT = ("$id", "$schema", TOPIC)
_HEADERS: Mapping[str, Any] = {
    "type": "object",
    "description": "The third argument of `event`; the first is the topic, and the second the data.",
    "required": ["id", "time"],
    "properties": {
        "id": {"type": ["string", "null"], "description": "The event's id; null for a plain PUBLISH."},
        "time": {"type": "integer", "description": "Milliseconds since 1970, by the clock of the log."},
        "offset": {"type": "integer", "description": "The position in the log; missing where the event is live only."},
        "replayed": {"type": "boolean", "description": "Whether it comes out of the log."},
    },
}


def asyncapi(catalogue: Catalogue, *, url: str, namespace: str, title: str, version: str) -> dict[str, Any]:
    """Return the document.

    Args:
        catalogue: the schemas.
        url: of the gateway, such as `https://example.com`.
        namespace: of the topics.
        title: of the application.
        version: of its schemas, as chosen by their authors.

    Raises:
        InvalidRequest: `url` is invalid.
        InvalidSchema: as `read_model`.
    """
    names = {catalogue.topics[pattern]: shape.name for pattern, shape in read_model(catalogue).topics.items()}
    components = {file: names.get(file, _definitions(file)) for file in catalogue.schemas}
    channels: dict[str, Any] = {}
    operations: dict[str, Any] = {}
    for pattern, file in catalogue.topics.items():
        name = names[file]
        key = name if list(catalogue.topics.values()).count(file) == 1 else f"{name}-{_key(pattern)}"
        channels[key] = {"address": pattern, "messages": {name: {"$ref": f"#/components/messages/{name}"}}}
        for action, does in (("receive", "Get events of"), ("send", "Publish, where granted, to")):
            operations[f"{action}-{key}"] = {
                "action": action,
                "channel": {"$ref": f"#/channels/{key}"},
                "summary": f"{does} {pattern}",
                "messages": [{"$ref": f"#/channels/{key}/messages/{name}"}],
            }
    return {
        "asyncapi": VERSION,
        "info": {
            "title": title,
            "version": version,
            "description": _INTRODUCTION,
        },
        "defaultContentType": "application/json",
        "servers": {"gateway": _server(url, namespace)},
        "channels": channels,
        "operations": operations,
        "components": {
            "messages": {name: _message(catalogue.schemas[file], name) for file, name in names.items()},
            "schemas": {
                components[file]: {"schemaFormat": _FORMAT, "schema": _schema(catalogue, Place(file, ""), components)}
                for file in catalogue.schemas
            },
        },
    }


def _server(url: str, namespace: str) -> dict[str, Any]:
    found = urlsplit(url)
    if found.scheme not in ("http", "https", "ws", "wss") or not found.netloc or "@" in found.netloc:
        raise InvalidRequest(f"url {url[:80]!r}: expected the gateway's, such as https://example.com")
    return {
        "host": found.netloc,
        "pathname": "/socket.io/",
        "protocol": "wss" if found.scheme in ("https", "wss") else "ws",
        "description": f"The Socket.IO namespace /{namespace}.",
    }


def _message(schema: Any, name: str) -> dict[str, Any]:
    said = schema if isinstance(schema, dict) else {}
    words = {"title": said.get("title"), "description": said.get("description")}
    return {
        "name": "event",
        **{key: text for key, text in words.items() if text},
        "contentType": "application/json",
        "headers": dict(_HEADERS),
        "payload": {"$ref": f"#/components/schemas/{name}"},
    }


def _schema(catalogue: Catalogue, place: Place, components: Mapping[str, str]) -> Any:
    """Return a schema with references that point into the document."""
    schema = catalogue.places[place]
    if not isinstance(schema, dict):
        return schema
    found = {key: value for key, value in schema.items() if key not in _LEFT_OUT}
    for path, _, _ in parts(schema):
        inner = _schema(catalogue, place.below(*path), components)
        if len(path) == 1:
            found[path[0]] = inner
        else:
            keyword, key = path
            if found[keyword] is schema[keyword]:
                found[keyword] = schema[keyword].copy()
            found[keyword][int(key) if isinstance(found[keyword], list) else key] = inner
    if place in catalogue.references:
        target = catalogue.references[place]
        found["$ref"] = f"#/components/schemas/{components[target.name]}/schema{target.pointer}"
    return found


def _definitions(file: str) -> str:
    return "_" + re.sub(r"[^A-Za-z0-9.-]", "-", file.removesuffix(SUFFIX)).strip("-")


def _key(pattern: str) -> str:
    return pattern.replace("*", "_any").replace("#", "_all")
