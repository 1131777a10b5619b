"""The grammar of topics, patterns, namespaces and users' names, with matching. No I/O.

A topic is 1 to 8 words of `[A-Za-z0-9_-]` joined by dots, at most 255 bytes. A pattern may also use the AMQP wildcards
`*` (exactly one word) and `#` (zero or more words) as whole words, anywhere. web/src/language/topic.js implements the same.
`tests/golden/topics.json` holds the vectors that both must satisfy.

A user's name is any text without control characters. In a topic it is one word, `user_word(name)`. Each byte of its UTF-8 that
is allowed in a word stays, and any other becomes `__` and two hexadecimal digits. `tests/golden/users.json` holds the vectors.

`matches` is the plain definition, and tests compare the fast one with it. The hot path uses delivery/matcher.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from headgate.errors import InvalidPattern, InvalidRequest, InvalidTopic, UnknownNamespace

DEFAULT_NAMESPACE = "notifications"
MAX_TOPIC_BYTES = 255
MAX_TOPIC_WORDS = 8
# Valid topics in the cache, of at most MAX_TOPIC_BYTES each.
MAX_KNOWN_TOPICS = 4096
# The first word of a user's own topics (`users.<user>.…`).
USERS = "users"
# Follows a user's word. Events on `users.<user>.inbox.<kind>` are items of the user's inbox, and `users.<user>.inbox` has its
# changes.
INBOX = "inbox"
# In a page, this second word means the user's own (web/src/subscriptions/own-topics.js). It never is a user's word on the wire.
ME = "me"
# The longest word of a user's name for which the pattern of the user's own topics is valid.
MAX_USER_BYTES = MAX_TOPIC_BYTES - len(f"{USERS}..#")
# The topic of the event of `headgate doctor`, also below a user's own topics. Consumers ignore it.
PROBE = "headgate-probe"

_WORD = "[A-Za-z0-9_-]+"
_ONE_WORD = re.compile(_WORD, re.ASCII)
NAMESPACE = "[A-Za-z0-9_-]{1,64}"
_NAMESPACE = re.compile(NAMESPACE, re.ASCII)
# The bytes of a name that are not allowed in a word, and each underscore that would look like the start of an escape.
_TO_ESCAPE = re.compile(rb"[^A-Za-z0-9_-]|_(?=_[0-9a-f]{2})")
_ESCAPED = re.compile(rb"__([0-9a-f]{2})")
# A name without control characters, line ends and lone surrogates, which UTF-8 cannot encode.
NAME_PATTERN = "[^\\x00-\\x1f\\x7f-\\x9f\\u2028\\u2029\\ud800-\\udfff]+"
_NAME = re.compile(NAME_PATTERN)
_PLAIN = re.compile("[A-Za-z0-9-]{1,64}")
_TOPIC = re.compile(rf"{_WORD}(?:\.{_WORD})*", re.ASCII)
# A placeholder of `pattern`.
_PLACE = re.compile(r"\{([A-Za-z_]\w*)\}", re.ASCII)
_PATTERN = re.compile(rf"(?:{_WORD}|\*|#)(?:\.(?:{_WORD}|\*|#))*", re.ASCII)


def check_topic(topic: object) -> str:
    """Return `topic` unchanged if it is a valid topic. Raises InvalidTopic with the first broken rule."""
    return _known_topic(topic) if type(topic) is str else _checked_topic(topic)


def _checked_topic(topic: object) -> str:
    fault = _fault(topic, _TOPIC, "words are ASCII letters, digits, _ and -, joined by single dots; wildcards are for patterns")
    if fault:
        raise InvalidTopic(topic, fault)
    return topic  # type: ignore[return-value]


# A service publishes to the same topics repeatedly.
_known_topic = lru_cache(maxsize=MAX_KNOWN_TOPICS)(_checked_topic)


def check_pattern(pattern: object) -> str:
    """Return `pattern` unchanged if it is a valid pattern. Every topic is one.

    Raises InvalidPattern with the first broken rule.
    """
    fault = _fault(pattern, _PATTERN, "words are ASCII letters, digits, _ and -, or a lone * or #, joined by single dots")
    if fault:
        raise InvalidPattern(pattern, fault)
    return pattern  # type: ignore[return-value]


def check_namespace(namespace: object) -> str:
    """Return a namespace's name without Socket.IO's leading slash.

    Raises UnknownNamespace unless the name is 1 to 64 characters of `[A-Za-z0-9_-]`.
    """
    name = namespace.removeprefix("/") if isinstance(namespace, str) else ""
    if not _NAMESPACE.fullmatch(name):
        raise UnknownNamespace(namespace, ())
    return name


def user_word(name: object) -> str:
    """Return a user's word in topics: `ana` for `ana`, and `ana__40example__2eorg` for `ana@example.org`.

    Different names have different words. Names are compared byte by byte, without Unicode normalisation.

    Raises:
        InvalidRequest: it is not text, is empty, has a control character, or is too long for a topic.
    """
    if not isinstance(name, str):
        raise InvalidRequest(f"user: expected text, got {type(name).__name__}")
    if _PLAIN.fullmatch(name) and name != ME:  # most names, in an eighth of the time, because each join calls this twice
        return name
    if not _NAME.fullmatch(name):
        raise InvalidRequest("user: expected one or more characters of Unicode, none of them a control character")
    if name == ME:
        return "__6de"
    word = _TO_ESCAPE.sub(lambda match: b"__%02x" % match[0][0], name.encode()).decode("ascii")
    if len(word) > MAX_USER_BYTES:
        raise InvalidRequest(
            f"user: {len(word)} bytes as a word of a topic, at most {MAX_USER_BYTES} are allowed: a letter, a digit, _ and - take"
            " one, every other byte of UTF-8 takes four"
        )
    return word


def user_name(word: str) -> str | None:
    """Return the user of a word, or None if `user_word` never returns it."""
    try:
        name = _ESCAPED.sub(lambda match: bytes.fromhex(match[1].decode()), word.encode()).decode()
        return name if user_word(name) == word else None
    except (UnicodeError, InvalidRequest):
        return None


def check_user(name: object) -> str:
    """Return `name` unchanged if it is a valid user name. Raises InvalidRequest as `user_word`."""
    user_word(name)
    return name  # type: ignore[return-value]


def user_topic(user: object, topic: object) -> str:
    """Return `users.<word of the user>.<topic>`, a topic granted only to one user's clients.

    Raises InvalidRequest for an invalid `user`, and InvalidTopic for an invalid result.
    """
    return check_topic(f"{USERS}.{user_word(user)}.{check_topic(topic)}")


def user_of(topic: str) -> str | None:
    """Return the name of the user who owns a topic, or None if it is not under `users.<word of a user>.`."""
    words = topic.split(".", 2)
    return user_name(words[1]) if len(words) == 3 and words[0] == USERS else None


def probe_topic(user: str | None) -> str:
    """Return the topic of a probe, which is the user's own, hidden from other pages, or the common one without a user."""
    return PROBE if user is None else user_topic(user, PROBE)


def is_probe(topic: str) -> bool:
    """Return whether an event of this topic is a probe, which consumers ignore."""
    return topic == PROBE or (topic.endswith(f".{PROBE}") and user_of(topic) is not None and topic.count(".") == 2)


def inbox_topic(user: object) -> str:
    """Return the topic for changes of a user's inbox, `users.<word of the user>.inbox`. The user may always publish there.

    Raises InvalidRequest for an invalid `user`.
    """
    return user_topic(user, INBOX)


def is_item(topic: str) -> bool:
    """Return whether an event of this topic is an item of a user's inbox."""
    words = topic.split(".", 3)
    return len(words) > 3 and (words[0], words[2]) == (USERS, INBOX)


def own_topics(user: object) -> str:
    """Return the pattern of a user's own topics, `users.<word of the user>.#`, which the gateway grants to every user.

    Raises:
        InvalidRequest: `user` is invalid.
    """
    return f"{USERS}.{user_word(user)}.#"


def pattern(template: str, **words: object) -> str:
    """Fill in a pattern template with values that cannot widen it, as in `pattern("teams.{team}.*", team=team)`.

    Only the template may have wildcards. Each `{name}` stands for exactly one word (text, or a number). `user_word` makes a
    user's name one word.

    Raises:
        InvalidPattern: a value is not one word, is missing or is unused, or the result is invalid.
    """
    if not isinstance(template, str):
        raise InvalidPattern(template, f"expected a string, got {type(template).__name__}")
    names = _PLACE.findall(template)
    if odd := sorted(set(names) ^ set(words)):
        raise InvalidPattern(template, f"{odd[0]} is {'not given' if odd[0] in names else 'not in the template'}")
    for name, value in words.items():
        text = str(value) if type(value) is int else value
        if not isinstance(text, str) or not _ONE_WORD.fullmatch(text):
            raise InvalidPattern(template, f"{name}={repr(value)[:80]}: expected one word of ASCII letters, digits, _ and -")
    return check_pattern(_PLACE.sub(lambda match: str(words[match[1]]), template))


def is_wildcard(pattern: str) -> bool:
    """Return whether a valid pattern has a wildcard."""
    return "*" in pattern or "#" in pattern


def matches(pattern: str, topic: str) -> bool:
    """Return whether a valid topic matches a valid pattern. Linear in words × words; `PatternMap` is faster."""
    positions = _start(tokens := tuple(pattern.split(".")))
    for word in topic.split("."):
        positions = _step(tokens, positions, word)
        if not positions:
            return False
    return bool(positions >> len(tokens) & 1)


def normal_form(pattern: str) -> tuple[str, ...]:
    """Return the tokens of a pattern that matches the same topics, without `#` before `*` and without `##` in a row.

    `#.*.#` and `*.#.#` both become `*.#`. A lone `*.#` becomes `#`, because every topic matches it.
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


def overlaps(pattern: str, other: str) -> bool:
    """Return whether a valid topic matches both valid patterns.

    Exact, also at the edges of the grammar. It runs the two patterns as automata over the words in either of them and one word
    for all others. That takes 16 µs for a usual pair, and milliseconds for contrived ones.
    """
    left, right = tuple(pattern.split(".")), tuple(other.split("."))
    return any(inside >> len(left) & 1 and covered >> len(right) & 1 for inside, covered in _walk(left, right))


def _walk(inner: tuple[str, ...], outer: tuple[str, ...]) -> Iterator[tuple[int, int]]:
    """Yield the positions in two patterns after every topic that the first may still match, each pair once per length."""
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
    """Advance a set of positions (bit i: the first i tokens are consumed) by one word."""
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
