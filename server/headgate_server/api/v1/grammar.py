"""The grammar of names for the OpenAPI document. `topic.py` checks them and reports faults."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from headgate.auth.scopes import PLAIN, WITH_PATTERN
from headgate.events.event import ID_CHARACTERS, MAX_ID_LENGTH
from headgate.events.topic import MAX_TOPIC_BYTES, MAX_TOPIC_WORDS

_WORD = "[A-Za-z0-9_-]+"
_TOKEN = rf"({_WORD}|\*|#)"
_MORE = MAX_TOPIC_WORDS - 1
_PATTERN = rf"{_TOKEN}(\.{_TOKEN}){{0,{_MORE}}}"
MAX_SCOPE = 200

Topic = Annotated[
    str, Meta(extra_json_schema={"maxLength": MAX_TOPIC_BYTES, "pattern": rf"^{_WORD}(\.{_WORD}){{0,{_MORE}}}$"})
]  # fmt: skip
Pattern = Annotated[str, Meta(extra_json_schema={"maxLength": MAX_TOPIC_BYTES, "pattern": f"^{_PATTERN}$"})]
EventId = Annotated[str, Meta(extra_json_schema={"maxLength": MAX_ID_LENGTH, "pattern": f"^{ID_CHARACTERS}+$"})]
Scope = Annotated[
    str,
    Meta(max_length=MAX_SCOPE, extra_json_schema={"pattern": f"^(({'|'.join(WITH_PATTERN)}):{_PATTERN}|{'|'.join(PLAIN)})$"}),
]
