"""The console's reads over HTTP, for Redis, topics, consumers, dead letters, schemas, presence and traces.

In: GET requests of an operator. Out: JSON. Each asks Redis over its own connection for a bounded amount. A page repeats it
every few seconds at most, and only while its view is open. An unavailable part has its reason, and the rest is complete.
"""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Any

import msgspec
from flask import Blueprint, Response, g, request

from headgate.auth.api_keys import Key
from headgate.consumers.work.dead_letters import DeadLetter, DeadLetters
from headgate.consumers.work.groups import check_consumer
from headgate.diagnosis.redis_state import check_gateways
from headgate.diagnosis.tracing import trace
from headgate.errors import BusRefused, InvalidRequest
from headgate.events.topic import check_topic
from headgate.flask.extension import Headgate
from headgate.redis.api_keys import find_all
from headgate.redis.client import Client, call, primaries
from headgate.redis.connections import address_of
from headgate.redis.keys import log_key
from headgate.redis.server_advice import advise
from headgate.services.schemas.documents import Documents, read_folder
from headgate.services.schemas.registry import read_registry
from headgate.settings.settings import Settings
from headgate_server.api.v1.services import Services

LETTERS = 50
CLIENTS = 50
MAX_MEMBERS = 500
# The part of a dead letter's data or a schema that a page shows.
MAX_SHOWN_BYTES = 64 * 1024
# Topics of the newest events. Redis extracts them, so many per call, so that no data travels and no call blocks it for long.
MAX_TOPICS = 500
TOPICS_PART = 100
_TOPICS = """\
local rows = {}
for _, entry in ipairs(redis.call('XREVRANGE', KEYS[1], ARGV[1], ARGV[2], 'COUNT', ARGV[3])) do
  local topic, size = '', 0
  for at = 1, #entry[2], 2 do
    if entry[2][at] == 'topic' then topic = entry[2][at + 1] end
    if entry[2][at] == 'data' then size = #entry[2][at + 1] end
  end
  rows[#rows + 1] = {entry[1], topic, size}
end
return rows
"""


def read_routes(routes: Blueprint, gate: Headgate, services: Services) -> None:
    """Add the routes."""
    settings = services.settings

    def namespace() -> str:
        return settings.served(request.args.get("namespace"))

    @routes.get("/api/redis")
    def redis() -> Response:
        with services.lent_redis() as client:
            return _json({"servers": [_server(server) for server in primaries(client)], "elsewhere": _elsewhere(client)})

    @routes.get("/api/consumers")
    def consumers() -> Response:
        with services.lent_redis() as client:
            rows = [
                {"namespace": name, **asdict(each)} for name in settings.namespaces for each in services.consumers(client, name)
            ]
        return _json({"consumers": rows})

    @routes.get("/api/clients")
    def clients() -> Response:
        given = {name: request.args.get(name) or None for name in ("namespace", "user", "after")}
        return _json(gate.clients(**given, sort=request.args.get("sort", "trouble"), limit=CLIENTS))

    @routes.get("/api/client")
    def client() -> Response:
        return _json({"client": gate.client(request.args.get("session", ""))})

    @routes.get("/api/topics")
    def topics() -> Response:
        with services.lent_redis() as client:
            return _json(_newest_topics(client, namespace(), request.args.get("after", "")))

    @routes.get("/api/keys")
    def keys() -> Response:
        with services.lent_redis() as client:
            rows = [{**msgspec.structs.asdict(Key.of(each)), "expires_s": each.expires_s} for each in find_all(client)]
        return _json({"keys": rows})

    @routes.get("/api/letters")
    def letters() -> Response:
        consumer = check_consumer(request.args.get("consumer", ""))
        with services.lent_redis() as client:
            kept = DeadLetters(client, namespace(), consumer)
            page = kept.page(request.args.get("after") or None, LETTERS)
            return _json({"count": kept.count(), "letters": [_letter(each) for each in page]})

    @routes.get("/api/trace")
    def traced() -> Response:
        wanted = request.args.get("event", "").strip()
        if not wanted:
            raise InvalidRequest("event: expected the id of an event, or its offset")
        with services.searches.lend(g.operator.user), services.lent_redis() as client:
            return _json(trace(client, namespace(), wanted))

    @routes.get("/api/presence")
    def presence() -> Response:
        topic = check_topic(request.args.get("topic", "").strip())
        page = gate.presence_page(topic, None, MAX_MEMBERS, namespace())
        members = [
            {"user": one.user, "connections": one.connections, "since": one.since_ms, "meta": one.meta} for one in page.members
        ]
        return _json({"topic": topic, "count": page.count, "members": members})

    @routes.get("/api/schemas")
    def schemas() -> Response:
        now = gate.settings
        documents = _documents(now, services, namespace())
        texts = {} if documents is None else documents.texts
        shown = [{"name": name, "text": text[:MAX_SHOWN_BYTES].decode("utf-8", "replace")} for name, text in texts.items()]
        return _json({"check": now.schema_check_in_force(), "source": now.schemas, "documents": shown})


def _elsewhere(client: Client) -> list[dict[str, Any]]:
    try:
        return [{"text": f"{each.name}: {each.text}", "remedy": each.fix} for each in check_gateways(client)]
    except BusRefused:
        return []  # a user without the right to read the state of gateways


def _server(server: Any) -> dict[str, Any]:
    began_s = time.monotonic()
    info = call(server, "INFO")
    took_s = time.monotonic() - began_s
    names = (
        *("redis_version", "valkey_version", "role", "uptime_in_seconds", "connected_clients", "used_memory", "maxmemory"),
        *("maxmemory_policy", "instantaneous_ops_per_sec", "aof_enabled", "connected_slaves", "evicted_keys"),
        "total_error_replies",
    )
    shown = {name: info.get(name) for name in names}
    return {"address": address_of(server), "info_ms": took_s * 1000, "advice": [each.line for each in advise(info)], **shown}


def _newest_topics(client: Client, namespace: str, after: str) -> dict[str, Any]:
    """Return `{events: [[offset, topic, bytes]…]}` of the newest events above an offset, newest first, without their data."""
    if after and not (after.isascii() and after.isdigit() and len(after) < 17):
        raise InvalidRequest("after: expected an offset")
    oldest, newest = f"({after}-0" if after else "-", "+"
    topics: list[tuple[int, str, int]] = []
    while len(topics) < MAX_TOPICS:
        part = call(client, "EVAL_RO", _TOPICS, 1, log_key(namespace), newest, oldest, TOPICS_PART)
        topics += [(int(entry.partition(b"-")[0]), topic.decode("utf-8", "replace"), int(size)) for entry, topic, size in part]
        if len(part) < TOPICS_PART:
            break
        newest = f"({topics[-1][0]}-0"
    return {"events": topics}


def _letter(letter: DeadLetter) -> dict[str, Any]:
    data = letter.task.data[:MAX_SHOWN_BYTES].decode("utf-8", "replace")
    return {**msgspec.structs.asdict(letter.shown()), "at": letter.at_ms, "data": data}


def _documents(settings: Settings, services: Services, namespace: str) -> Documents | None:
    """Return the schemas that gateways use, from their folder or registry; None without any."""
    if settings.schemas is None or settings.schemas == "redis":
        with services.lent_redis() as client:
            return read_registry(client, namespace)
    return read_folder(settings.schemas)


def _json(body: object) -> Response:
    return Response(msgspec.json.encode(body), mimetype="application/json")
