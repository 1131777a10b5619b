"""A reader of streams: Server-Sent Events, parsed as a browser's EventSource does (WHATWG HTML, section 9.2.6). No I/O."""

import json
from dataclasses import dataclass, field
from typing import Any


@dataclass
class StreamReader:
    """The received items, in order. `events` are those of topics, `notices` have (name, body); `cursor` is the last event id.

    `blocks` has all of them as (name, body), where the name of an event is `message`.
    """

    cursor: str | None = None
    events: list[dict[str, Any]] = field(default_factory=list)
    notices: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    order: list[int | str | None] = field(default_factory=list)
    blocks: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    _rest: bytes = b""

    def feed(self, data: bytes) -> None:
        *blocks, self._rest = (self._rest + data).split(b"\n\n")
        for block in blocks:
            self._take(block.decode())

    def _take(self, block: str) -> None:
        fields = {"event": "message", "data": ""}
        for line in block.split("\n"):
            name, _, value = line.partition(":")
            if name:
                fields[name] = value.removeprefix(" ")
        self.cursor = fields.get("id", self.cursor)
        if not fields["data"]:
            return
        body = json.loads(fields["data"])
        self.blocks.append((fields["event"], body))
        if fields["event"] == "message":
            self.events.append(body)
            self.order.append(body.get("offset"))
        else:
            self.notices.append((fields["event"], body))
            self.order.append(fields["event"])

    def named(self, name: str) -> list[dict[str, Any]]:
        return [body for each, body in self.notices if each == name]
