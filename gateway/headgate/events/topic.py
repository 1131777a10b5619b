"""Topics, patterns, namespaces and users' names: the grammar, matching, containment. Pure functions, no I/O; mirrored by
web/src/language/topic.js.

A topic is 1 to 8 words of `[A-Za-z0-9_-]` joined by dots, at most 255 bytes. A pattern may also use the AMQP wildcards
`*` (exactly one word) and `#` (zero or more words) as whole words, anywhere. `tests/golden/topics.json` holds the
vectors that both implementations must satisfy.

A user's name is any text without control characters. In a topic it is one word, `user_word(name)`: a byte of its UTF-8 that a
word may have stands for itself, and any other is `__` and two hexadecimal digits. `tests/golden/users.json` holds the vectors.

`matches` and `contains` here are the plain definitions, which the tests hold the fast ones against. The hot path uses
delivery/matcher.py, and authorization auth/grants.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from headgate.errors import InvalidPattern, InvalidRequest, InvalidTopic, UnknownNamespace

DEFAULT_NAMESPACE = "notifications"
MAX_TOPIC_BYTES = 255
MAX_TOPIC_WORDS = 8
# Topics that were found right and are remembered, of at most MAX_TOPIC_BYTES each.
MAX_KNOWN_TOPICS = 4096
# The first word of topics that belong to one user (`users.<user>.…`).
USERS = "users"
# Behind a user's word: an event on `users.<user>.inbox.<kind>` stays in the user's inbox; `users.<user>.inbox` has its changes.
INBOX = "inbox"
# The second word that stands for the user's own in a page (web/src/subscriptions/own-topics.js); on the wire it is nobody's.
ME = "me"
# The word of a user's name at most, so that the pattern of the user's own topics is one.
MAX_USER_BYTES = MAX_TOPIC_BYTES - len(f"{USERS}..#")
# The event by which `headgate doctor` tries the way has this topic, or a user's own of this name. Consumers leave it alone.
PROBE = "headgate-probe"

_WORD = "[A-Za-z0-9_-]+"
_ONE_WORD = re.compile(_WORD, re.ASCII)
NAMESPACE = "[A-Za-z0-9_-]{1,64}"
_NAMESPACE = re.compile(NAMESPACE, re.ASCII)
# The bytes of a name that a word cannot have, and each underscore that would read as the beginning of an escape.
_TO_ESCAPE = re.compile(rb"[^A-Za-z0-9_-]|_(?=_[0-9a-f]{2})")
_ESCAPED = re.compile(rb"__([0-9a-f]{2})")
# A name without control characters, ends of lines, and halves of surrogate pairs, which UTF-8 does not have.
NAME_PATTERN = "[^\\x00-\\x1f\\x7f-\\x9f\\u2028\\u2029\\ud800-\\udfff]+"
_NAME = re.compile(NAME_PATTERN)
_PLAIN = re.compile("[A-Za-z0-9-]{1,64}")
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


def user_word(name: object) -> str:
    """Return the word that stands for a user in topics: `ana` is `ana`, and `ana@example.org` is `ana__40example__2eorg`.

    Different names have different words. Names are compared byte by byte: no form of Unicode is normalised.

    Raises:
        InvalidRequest: it is no name: not text, empty, with a control character, or longer than a topic takes.
    """
    if not isinstance(name, str):
        raise InvalidRequest(f"user: expected text, got {type(name).__name__}")
    if _PLAIN.fullmatch(name) and name != ME:  # as most are, in an eighth of the time: each join asks twice
        return name
    if not _NAME.fullmatch(name):
        raise InvalidRequest("user: expected one or more characters of Unicode, none of them a control character")
    if name == ME:
        return "__6de"
    word = _TO_ESCAPE.sub(_escape, name.encode()).decode("ascii")
    if len(word) > MAX_USER_BYTES:
        raise InvalidRequest(
            f"user: {len(word)} bytes as a word of a topic, at most {MAX_USER_BYTES} are allowed: a letter, a digit, _ and - take"
            " one, every other byte of UTF-8 takes four"
        )
    return word


def _escape(found: re.Match[bytes]) -> bytes:
    return b"__%02x" % found[0][0]


def user_name(word: str) -> str | None:
    """Return the user whom a word stands for; None: it is no user's, as `user_word` writes it for no name."""
    try:
        name = _ESCAPED.sub(lambda found: bytes.fromhex(found[1].decode()), word.encode()).decode()
        return name if user_word(name) == word else None
    except (UnicodeError, InvalidRequest):
        return None


def check_user(name: object) -> str:
    """Return `name` unchanged if a user can have it.

    Raises:
        InvalidRequest: as `user_word`.
    """
    user_word(name)
    return name  # type: ignore[return-value]


def user_topic(user: object, topic: object) -> str:
    """Return the topic that only one user's clients are granted: `users.<word of the user>.<topic>`.

    Raises:
        InvalidRequest: `user` is no name.
        InvalidTopic: the whole is no topic.
    """
    return check_topic(f"{USERS}.{user_word(user)}.{check_topic(topic)}")


def user_of(topic: str) -> str | None:
    """Return the name of the user whose topic this is; None: it is not under `users.<word of a user>.`."""
    words = topic.split(".", 2)
    return user_name(words[1]) if len(words) == 3 and words[0] == USERS else None


def probe_topic(user: str | None) -> str:
    """Return the topic of a probe: the user's own, so that no other page sees it; that of all where there is no user."""
    return PROBE if user is None else user_topic(user, PROBE)


def is_probe(topic: str) -> bool:
    """Return whether an event of this topic is a probe, on which nobody works."""
    return topic == PROBE or (topic.endswith(f".{PROBE}") and user_of(topic) is not None and topic.count(".") == 2)


def inbox_topic(user: object) -> str:
    """Return the topic of the changes of one user's inbox, `users.<word of the user>.inbox`. The user may always publish there.

    Raises:
        InvalidRequest: `user` is no name.
    """
    return user_topic(user, INBOX)


def is_item(topic: str) -> bool:
    """Return whether an event of this topic is an item of a user's inbox."""
    words = topic.split(".", 3)
    return len(words) > 3 and (words[0], words[2]) == (USERS, INBOX)


def own_topics(user: object) -> str:
    """Return the pattern of one user's own topics, `users.<word of the user>.#`. The gateway grants it to every user by itself.

    Raises:
        InvalidRequest: `user` is no name.
    """
    return f"{USERS}.{user_word(user)}.#"


def pattern(template: str, **words: object) -> str:
    """Return a pattern whose variable parts cannot widen it: `pattern("teams.{team}.*", team=team)`.

    The wildcards are those that the template has; each `{name}` in it stands for exactly one word (text, or a number). A user's
    name becomes one with `user_word`.

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
