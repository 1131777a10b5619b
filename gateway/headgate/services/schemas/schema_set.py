"""One compiled version of the schemas, which finds the constraints of a topic. No I/O.

In: documents. Out: for the data of an event, the first schema that it violates. If several patterns match a topic, all their
schemas apply: `orders.#` states what all orders share, and `orders.*.shipped` adds to it.

A process compiles the same documents once, and caches the schemas of MAX_TOPICS topics.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import msgspec

from headgate.errors import SchemaViolation
from headgate.events.topic import is_wildcard, matches

from .catalogue import Catalogue, read_catalogue
from .documents import Documents
from .validation import Validator

# Topics with cached schemas; then the cache is cleared.
MAX_TOPICS = 4096
# Compiled versions per process.
MAX_COMPILED = 16

_decode = msgspec.json.Decoder().decode


@lru_cache(maxsize=MAX_COMPILED)
def schema_set(documents: Documents) -> SchemaSet:
    """Return documents as a set of schemas; equal documents give the same set. Raises InvalidSchema: as `read_catalogue`."""
    return SchemaSet(read_catalogue(documents))


class SchemaSet:
    """See the module."""

    def __init__(self, catalogue: Catalogue) -> None:
        compiled = catalogue.validators
        self._exact = {pattern: compiled[name] for pattern, name in catalogue.topics.items() if not is_wildcard(pattern)}
        self._wildcards: dict[str, list[tuple[str, Validator]]] = {}  # by the first word
        for pattern, name in catalogue.topics.items():
            if is_wildcard(pattern):
                self._wildcards.setdefault(pattern.partition(".")[0], []).append((pattern, compiled[name]))
        self._by_topic: dict[str, tuple[tuple[str, Validator], ...]] = {}
        self.version = catalogue.documents.version

    def violation(self, topic: str, payload: bytes) -> SchemaViolation | None:
        """Return the violation by the data of a topic, by the first pattern in order, or None."""
        matching = self._by_topic.get(topic)
        if matching is None:
            if len(self._by_topic) >= MAX_TOPICS:
                self._by_topic.clear()
            matching = self._by_topic[topic] = tuple(sorted(self._matching(topic), key=lambda each: each[0]))
        if not matching:
            return None
        value = _decode(payload)
        for pattern, validator in matching:
            if (fault := validator.fault(value)) is not None:
                return SchemaViolation(topic, pattern, fault.path, fault.reason)
        return None

    def _matching(self, topic: str) -> Iterator[tuple[str, Validator]]:
        if topic in self._exact:
            yield topic, self._exact[topic]
        for first in (topic.partition(".")[0], "*", "#"):
            for pattern, validator in self._wildcards.get(first, ()):
                if matches(pattern, topic):
                    yield pattern, validator
