"""Topics, patterns and namespaces: the grammar, matching, containment. Pure functions, no I/O; mirrored by web/src/topic.js.

A topic is 1 to 8 words of `[A-Za-z0-9_-]` joined by dots, at most 255 bytes. A pattern may also use the AMQP wildcards
`*` (exactly one word) and `#` (zero or more words) as whole words, anywhere. `tests/golden/topics.json` holds the
vectors that both implementations must satisfy.

`matches` and `contains` here are the plain definitions, which the tests hold the fast ones against. The hot path uses
delivery/matcher.py, and authorization auth/grants.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from .errors import InvalidPattern, InvalidTopic, UnknownNamespace

DEFAULT_NAMESPACE = "notifications"
MAX_TOPIC_BYTES = 255
MAX_TOPIC_WORDS = 8
# Topics that were found right and are remembered, of at most MAX_TOPIC_BYTES each.
MAX_KNOWN_TOPICS = 4096
# The first word of topics that belong to one user (`users.<user>.…`).
USERS = "users"
# The event by which `headgate doctor` tries the way has this topic, or a user's own of this name. Consumers leave it alone.
PROBE = "headgate-probe"

_WORD = "[A-Za-z0-9_-]+"
_ONE_WORD = re.compile(_WORD, re.ASCII)
NAMESPACE = "[A-Za-z0-9_-]{1,64}"
_NAMESPACE = re.compile(NAMESPACE, re.ASCII)
_TOPIC = re.compile(rf"{_WORD}(?:\.{_WORD})*", re.ASCII)
# Where `pattern` puts a word.
_PLACE = re.compile(r"\{([A-Za-z_]\w*)\}", re.ASCII)
_PATTERN = re.compile(rf"(?:{_WORD}|\*|#)(?:\.(?:{_WORD}|\*|#))*", re.ASCII)


def check_topic(topic: object) -> str:
    """Return `topic` unchanged if it is a valid topic.

    Raises:
        InvalidTopic: with the first rule that it breaks.
    """
    return _known_topic(topic) if type(topic) is str else _checked_topic(topic)


def _checked_topic(topic: object) -> str:
    fault = _fault(topic, _TOPIC, "words are letters, digits, _ and -, joined by single dots; wildcards are for patterns")
    if fault:
        raise InvalidTopic(topic, fault)
    return topic  # type: ignore[return-value]


# A service publishes to the same topics again and again.
_known_topic = lru_cache(maxsize=MAX_KNOWN_TOPICS)(_checked_topic)


def check_pattern(pattern: object) -> str:
    """Return `pattern` unchanged if it is a valid pattern (every topic is one).

    Raises:
        InvalidPattern: with the first rule that it breaks.
    """
    fault = _fault(pattern, _PATTERN, "words are letters, digits, _ and -, or a lone * or #, joined by single dots")
    if fault:
        raise InvalidPattern(pattern, fault)
    return pattern  # type: ignore[return-value]


def check_namespace(namespace: object) -> str:
    """Return a namespace's name without the leading slash that Socket.IO gives it.

    Raises:
        UnknownNamespace: it is not 1 to 64 characters of `[A-Za-z0-9_-]`.
    """
    name = namespace.removeprefix("/") if isinstance(namespace, str) else ""
    if not _NAMESPACE.fullmatch(name):
        raise UnknownNamespace(namespace, ())
    return name


def check_word(word: object) -> str:
    """Return `word` unchanged if it can stand in a topic: one word, no dot, no wildcard.

    Raises:
        InvalidTopic: it cannot.
    """
    if not isinstance(word, str) or not _ONE_WORD.fullmatch(word):
        raise InvalidTopic(word, "expected one word of letters, digits, _ and -")
    return check_topic(word)


def user_topic(user: object, topic: object) -> str:
    """Return the topic that only one user's clients are granted: `users.<user>.<topic>`.

    Raises:
        InvalidTopic: `user` is not one word, or the whole is no topic.
    """
    return check_topic(f"{USERS}.{check_word(user)}.{check_topic(topic)}")


def user_of(topic: str) -> str | None:
    """Return the user whose topic this is; None: it is not under `users.<user>.`."""
    words = topic.split(".", 2)
    return words[1] if len(words) == 3 and words[0] == USERS else None


def probe_topic(user: str | None) -> str:
    """Return the topic of a probe: the user's own, so that no other page sees it; that of all where there is no user."""
    return PROBE if user is None else user_topic(user, PROBE)


def is_probe(topic: str) -> bool:
    """Return whether an event of this topic is a probe, on which nobody works."""
    return topic == PROBE or (topic.endswith(f".{PROBE}") and user_of(topic) is not None and topic.count(".") == 2)


def own_topics(user: object) -> str:
    """Return the pattern of one user's own topics, `users.<user>.#`. The gateway grants it to every user by itself.

    Raises:
        InvalidPattern: `user` is not one word, and a grant made of it would reach other users' topics.
    """
    if isinstance(user, str) and _ONE_WORD.fullmatch(user) and len(user) <= MAX_TOPIC_BYTES - len(USERS) - len("..#"):
        return f"{USERS}.{user}.#"  # each join of another user asks for it: a tenth of the time
    return pattern(f"{USERS}.{{user}}.#", user=user)


def pattern(template: str, **words: object) -> str:
    """Return a pattern whose variable parts cannot widen it: `pattern("teams.{team}.*", team=team)`.

    The wildcards are those that the template has; each `{name}` in it stands for exactly one word (text, or a number).

    Raises:
        InvalidPattern: a value is not one word, is missing or is not used, or the result is no pattern.
    """
    names = _PLACE.findall(template)
    if odd := sorted(set(names) ^ set(words)):
        raise InvalidPattern(template, f"{odd[0]} is {'not given' if odd[0] in names else 'not in the template'}")
    for name, value in words.items():
        text = str(value) if type(value) is int else value
        if not isinstance(text, str) or not _ONE_WORD.fullmatch(text):
            raise InvalidPattern(template, f"{name}={repr(value)[:80]}: expected one word of letters, digits, _ and -")
    return check_pattern(_PLACE.sub(lambda found: str(words[found[1]]), template))


def is_wildcard(pattern: str) -> bool:
    """Return whether a valid pattern holds a wildcard."""
    return "*" in pattern or "#" in pattern


def matches(pattern: str, topic: str) -> bool:
    """Return whether a valid topic matches a valid pattern. Linear in words × words; `PatternMap` is the fast way."""
    positions = _start(tokens := tuple(pattern.split(".")))
    for word in topic.split("."):
        positions = _step(tokens, positions, word)
        if not positions:
            return False
    return bool(positions >> len(tokens) & 1)


def normal_form(pattern: str) -> tuple[str, ...]:
    """Return the tokens of a pattern that matches exactly the same topics, with no `#` before a `*` and no two `#` in a row.

    `#.*.#` and `*.#.#` both become `*.#`, and that alone, which every topic matches, becomes `#`.
    """
    tokens: list[str] = []
    pending = False
    for token in pattern.split("."):
        if token == "#":
            pending = True
            continue
        if pending and token != "*":
            tokens.append("#")
            pending = False
        tokens.append(token)
    if pending:
        tokens.append("#")
    return ("#",) if tokens == ["*", "#"] else tuple(tokens)


def contains(grant: str, pattern: str) -> bool:
    """Return whether every valid topic that matches `pattern` also matches `grant`: pattern in pattern.

    Only tests call this: it is the reference that compiled grants (auth/grants.py) are held against.

    Exact, also for the edges of the grammar (a topic has 1 to 8 words, so `*.#` contains `#`). It walks the two
    patterns as automata over the words that occur in either of them and one word that occurs in neither, which
    stands for all others. That takes 16 µs for a usual pair, and milliseconds for pairs that somebody has thought about.
    """
    inner, outer = tuple(pattern.split(".")), tuple(grant.split("."))
    return all(covered >> len(outer) & 1 for inside, covered in _walk(inner, outer) if inside >> len(inner) & 1)


def overlaps(pattern: str, other: str) -> bool:
    """Return whether some valid topic matches both patterns. Exact, as `contains`."""
    left, right = tuple(pattern.split(".")), tuple(other.split("."))
    return any(inside >> len(left) & 1 and covered >> len(right) & 1 for inside, covered in _walk(left, right))


def _walk(inner: tuple[str, ...], outer: tuple[str, ...]) -> Iterator[tuple[int, int]]:
    """Yield the positions in two patterns after every topic that the first may still match, each pair of a length once."""
    alphabet = {word for word in (*inner, *outer) if word not in ("*", "#")} | {"\0 any other word"}
    seen = {(_start(inner), _start(outer))}
    for _ in range(MAX_TOPIC_WORDS):
        seen = {
            (stepped, _step(outer, covered, word))
            for inside, covered in seen
            for word in alphabet
            if (stepped := _step(inner, inside, word))
        }
        yield from seen


def _start(tokens: tuple[str, ...]) -> int:
    return _skip_hashes(tokens, 1)


def _step(tokens: tuple[str, ...], positions: int, word: str) -> int:
    """Advance a set of positions (bit i: the first i tokens are used up) over one word."""
    after = 0
    for index, token in enumerate(tokens):
        if positions >> index & 1:
            if token == "#":
                after |= 1 << index
            elif token in ("*", word):
                after |= 1 << index + 1
    return _skip_hashes(tokens, after)


def _skip_hashes(tokens: tuple[str, ...], positions: int) -> int:
    for index, token in enumerate(tokens):
        if token == "#" and positions >> index & 1:
            positions |= 1 << index + 1
    return positions


def _fault(name: object, grammar: re.Pattern[str], rule: str) -> str | None:
    if not isinstance(name, str):
        return f"expected a string, got {type(name).__name__}"
    if not name:
        return "it is empty"
    if len(name) > MAX_TOPIC_BYTES:
        return f"longer than {MAX_TOPIC_BYTES} bytes"
    if not grammar.fullmatch(name):
        return rule
    if (words := name.count(".") + 1) > MAX_TOPIC_WORDS:
        return f"{words} words, at most {MAX_TOPIC_WORDS} are allowed"
    return None
