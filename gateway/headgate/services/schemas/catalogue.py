"""The catalogue of schema documents, with the patterns of each and the target of every reference. No I/O.

In: documents. Out: a consistent catalogue, or one error that names the file, the place in it and the allowed values. Checks at
publish and types use the same catalogue.

A file's pattern is its name without `.json`, or those in `x-topic` (a pattern or a list, for file systems that do not allow
`*`). A file with a name that begins with `_`, or with `"x-topic": null`, holds definitions for other files and has no topic.

A reference points to a schema in the same file or in another file of the folder, by file name or by `$id`, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple
from urllib.parse import unquote, urldefrag, urljoin

import msgspec

from headgate.errors import InvalidPattern, InvalidSchema, NotSerializable, SchemaViolation
from headgate.events.event import check_json
from headgate.events.topic import check_pattern, is_wildcard, matches, normal_form

from .documents import SUFFIX, Documents
from .validation import TOPIC, Validator, check_schema, dialect_fault, fault_of, keyword_fault, parts, pointer, validators

# The address of a document without `$id`. The name never resolves (RFC 6761, section 6.4).
_BASE = "https://schemas.invalid/"
_SHARED = "_"
# The most nested schemas for one value, by inclusion or by reference.
MAX_CHAIN = 100
# The most schemas for one value in total, counted as often as they are checked.
MAX_TOGETHER = 1000
# Topics with cached schemas. Beyond that the cache is cleared.
MAX_TOPICS = 4096
# Compiled versions per process.
MAX_COMPILED = 16

_decode = msgspec.json.Decoder().decode


class Place(NamedTuple):
    """A schema, by its file and its JSON Pointer there."""

    name: str
    pointer: str

    def below(self, *steps: str | int) -> Place:
        """Return a place inside this one."""
        return Place(self.name, self.pointer + pointer(steps))

    def __str__(self) -> str:
        return f"{self.name}#{self.pointer}" if self.pointer else self.name


class Catalogue:
    """See the module. Made by `read_catalogue`. It finds the first schema that the data of an event violates.

    If several patterns match a topic, all their schemas apply. `orders.#` constrains all orders, and `orders.*.shipped` adds to
    it. The schemas of MAX_TOPICS topics are cached.

    Attributes:
        documents, version: what it was read from.
        topics: pattern → file name, in the order of the patterns.
        places: every schema in every file.
        references: place of a schema with `$ref` → its target.
        validators: file name → its compiled validator.
    """

    def __init__(self, documents: Documents) -> None:
        self.documents, self.version = documents, documents.version
        schemas = {name: _schema(name, text) for name, text in documents.texts.items()}
        self.places, anchors = _walked(schemas)
        addresses: dict[str, str] = {}
        for name, schema in schemas.items():
            other = addresses.setdefault(_address(name, schema), name)
            if other != name:
                raise InvalidSchema(name, f"has the same $id as {other}", "/$id")
        self.references = {
            place: _target(place, part["$ref"], schemas, addresses, self.places, anchors)
            for place, part in self.places.items()
            if isinstance(part, dict) and "$ref" in part
        }
        _refuse_circles(self.places, self.references)
        self.topics = _topics(schemas)
        self.validators = validators({name: (_address(name, schema), schema) for name, schema in schemas.items()})
        by_pattern = {pattern: self.validators[name] for pattern, name in self.topics.items()}
        self._exact = {pattern: validator for pattern, validator in by_pattern.items() if not is_wildcard(pattern)}
        self._wildcards: dict[str, list[tuple[str, Validator]]] = {}  # by the first word
        for pattern, validator in by_pattern.items():
            if is_wildcard(pattern):
                self._wildcards.setdefault(pattern.partition(".")[0], []).append((pattern, validator))
        self._by_topic: dict[str, tuple[tuple[str, Validator], ...]] = {}

    def violation(self, topic: str, payload: bytes) -> SchemaViolation | None:
        """Return the first violation by the data of a topic, in the order of the patterns, or None."""
        matching = self._by_topic.get(topic)
        if matching is None:
            if len(self._by_topic) >= MAX_TOPICS:
                self._by_topic.clear()
            matching = self._by_topic[topic] = tuple(sorted(self._matching(topic), key=lambda each: each[0]))
        if not matching:
            return None
        value = _decode(payload)
        for pattern, validator in matching:
            if (fault := fault_of(validator, value)) is not None:
                return SchemaViolation(topic, pattern, *fault)
        return None

    def _matching(self, topic: str) -> Iterator[tuple[str, Validator]]:
        if topic in self._exact:
            yield topic, self._exact[topic]
        for first in (topic.partition(".")[0], "*", "#"):
            for pattern, validator in self._wildcards.get(first, ()):
                if matches(pattern, topic):
                    yield pattern, validator


@lru_cache(maxsize=MAX_COMPILED)
def read_catalogue(documents: Documents) -> Catalogue:
    """Return the catalogue of documents, the same for equal documents. Raises InvalidSchema with the first fault."""
    return Catalogue(documents)


def _walked(schemas: Mapping[str, Any]) -> tuple[dict[Place, Any], dict[tuple[str, str], Place]]:
    """Return all schemas by place, and the places of anchors by file and name."""
    places: dict[Place, Any] = {}
    anchors: dict[tuple[str, str], Place] = {}
    for name, schema in schemas.items():
        for place, part in _walk(Place(name, ""), schema):
            places[place] = part
            if isinstance(part, dict):
                if fault := keyword_fault(part, root=not place.pointer):
                    raise InvalidSchema(name, fault, place.pointer)
                if "$anchor" in part and anchors.setdefault((name, part["$anchor"]), place) != place:
                    raise InvalidSchema(name, f"$anchor {part['$anchor']!r} is there twice", place.pointer)
    return places, anchors


def _schema(name: str, text: bytes) -> Any:
    try:
        check_json(text)
    except NotSerializable as error:
        raise InvalidSchema(name, f"is not JSON: {error.parts['reason']}; expected one JSON Schema") from error
    schema = msgspec.json.decode(text)
    if isinstance(schema, dict) and (fault := dialect_fault(schema)):
        raise InvalidSchema(name, fault, "/$schema")
    check_schema(name, schema)
    return schema


def _walk(place: Place, schema: Any) -> Iterator[tuple[Place, Any]]:
    yield place, schema
    if isinstance(schema, dict):
        for path, part, _ in parts(schema):
            yield from _walk(place.below(*path), part)


def _topics(schemas: Mapping[str, Any]) -> dict[str, str]:
    topics: dict[str, str] = {}
    forms: dict[tuple[str, ...], str] = {}
    for name, schema in schemas.items():
        for pattern in _patterns(name, schema):
            form = normal_form(pattern)
            if form in forms:
                raise InvalidSchema(
                    name, f"the pattern {pattern!r} has a schema already, in {forms[form]}; expected one file for it"
                )
            forms[form] = name
            topics[pattern] = name
    return dict(sorted(topics.items()))


def _patterns(name: str, schema: Any) -> list[str]:
    if not isinstance(schema, dict) or TOPIC not in schema:
        if name.startswith(_SHARED):
            return []
        given: Any = [name.removesuffix(SUFFIX)]
        hint = (
            f'; or name the pattern in the file: "{TOPIC}": "orders.*.shipped"; definitions for other files begin with {_SHARED}'
        )
    else:
        given, hint = schema[TOPIC], ""
        given = [] if given is None else given if isinstance(given, list) else [given]
    try:
        return [check_pattern(pattern) for pattern in given]
    except InvalidPattern as error:
        where = f"/{TOPIC}" if not hint else ""
        raise InvalidSchema(name, f"{error.message}{hint}", where) from error


def _address(name: str, schema: Any) -> str:
    """Return the address of a document without its fragment, from its `$id` or its name."""
    own = _BASE + name.replace("#", "%23")
    return urldefrag(urljoin(own, schema["$id"])).url if isinstance(schema, dict) and "$id" in schema else own


def _target(
    place: Place,
    reference: str,
    schemas: Mapping[str, Any],
    addresses: Mapping[str, str],
    places: Mapping[Place, Any],
    anchors: Mapping[tuple[str, str], Place],
) -> Place:
    own = _address(place.name, schemas[place.name])
    address, fragment = urldefrag(reference)
    name = place.name if not address else addresses.get(urljoin(own, address))
    if name is None:
        known = ", ".join(schemas)
        raise InvalidSchema(
            place.name,
            f"$ref {reference[:80]!r} leads to no file of the folder, and nothing is fetched; there are {known[:200]}",
            place.pointer,
        )
    fragment = unquote(fragment)
    if fragment and not fragment.startswith("/"):
        target = anchors.get((name, fragment))
    else:
        target = Place(name, pointer([step.replace("~1", "/").replace("~0", "~") for step in fragment.split("/")[1:]]))
    if target is None or target not in places:
        raise InvalidSchema(place.name, f"$ref {reference[:80]!r} leads to no schema in {name}", place.pointer)
    return target


def _refuse_circles(places: Mapping[Place, Any], references: Mapping[Place, Place]) -> None:
    """Refuse a schema that refers to itself for the same value, which constrains nothing and has no finite type.

    Also refuses a combination of too many schemas. Two references in each of thirty schemas make a check of 2^30 steps.
    """
    looked_at: dict[Place, int] = {}  # number of schemas about one value, per place

    def count(place: Place, above: frozenset[Place]) -> int:
        if place in above:
            raise InvalidSchema(place.name, "refers to itself about the same value, which says nothing", place.pointer)
        if place in looked_at:
            return looked_at[place]
        if len(above) > MAX_CHAIN:
            raise InvalidSchema(place.name, f"more than {MAX_CHAIN} schemas refer to each other in a row", place.pointer)
        above |= {place}
        part = places[place]
        inner = [place.below(*path) for path, _, in_place in parts(part) if in_place] if isinstance(part, dict) else []
        if place in references:
            inner.append(references[place])
        total = 1 + sum(count(each, above) for each in inner)
        if total > MAX_TOGETHER:
            raise InvalidSchema(place.name, f"more than {MAX_TOGETHER} schemas speak of the same value", place.pointer)
        looked_at[place] = total
        return total

    for place in places:
        count(place, frozenset())
