"""Compiles the patterns of an identity, so that a pattern is checked against all of them together. No I/O.

In: the granted patterns. Out: `contain(pattern)`, whether one of them contains it: whether every topic that matches the pattern
also matches that grant. Two grants that cover a pattern only together do not contain it.

There are three kinds of grants, in the order of their cost. A topic, or a pattern requested in the same letters, takes one set
lookup. A whole branch (`orders.#`, `orders.*.#`, `#`) takes one dict lookup per leading literal word of the pattern. All others
are walked together, as bits of one number.

The worst case of a wildcard in the requested pattern is a word that occurs in no grant, so a wildcard is walked as such a
word. One walk therefore decides a pattern with only `*`. A pattern with `#` is contained if and only if one grant
contains each of its expansions (`#` as no, one, two … `*`, at most MAX_TOPIC_WORDS words in all). Expansions share their
beginnings, so 8 tokens make about a hundred steps at most, for any number of grants: 0.2 ms for 64 grants and a pattern
designed to be slow.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

from headgate.events.topic import MAX_TOPIC_WORDS, is_wildcard, normal_form

# Cached sets of grants, usually below 1 KiB each; 64 patterns of 255 bytes take about 40 KiB.
MAX_COMPILED = 256


class Grants:
    """See the module. Immutable."""

    __slots__ = ("_branches", "_everything", "_literally", "_others")

    def __init__(self, patterns: Iterable[str]) -> None:
        self._everything = False
        self._literally: set[str] = set()
        self._branches: dict[str, int] = {}  # literal words → least number of words of a pattern below them
        others: list[tuple[str, ...]] = []
        for pattern in patterns:
            self._literally.add(pattern)
            stem_text, _, last = pattern.rpartition(".")
            if not is_wildcard(stem_text):  # the usual case, at an eighth of the cost
                if last == "#":
                    self._everything = self._everything or not stem_text
                    if stem_text:
                        self._branches[stem_text] = stem_text.count(".") + 1
                    continue
                if last != "*":
                    continue
            tokens = normal_form(pattern)
            stem = _literal_start(tokens)
            least_words = len(tokens) - 1
            if tokens == ("#",):
                self._everything = True
            elif tokens[-1] == "#" and set(tokens[len(stem) : -1]) <= {"*"}:
                key = ".".join(stem)
                self._branches[key] = min(least_words, self._branches.get(key, least_words))
            else:
                others.append(tokens)
        self._others = _walk(tuple(others)) if others else None

    def contain(self, pattern: str) -> bool:
        """Return whether a single grant contains a valid pattern."""
        if self._everything or pattern in self._literally:
            return True
        if not (self._branches or self._others):
            return False
        words = pattern.split(".")
        if self._branches and self._in_branch(words):
            return True
        if self._others is None:
            return False
        return self._others.contains_every_expansion(normal_form(pattern)) if "#" in words else self._others.contains(words)

    def _in_branch(self, words: Sequence[str]) -> bool:
        least_words = len(words) - words.count("#")
        branches = self._branches
        stem = ""
        for word in words:
            needed = branches.get(stem)
            if needed is not None and needed <= least_words:
                return True
            if word == "*" or word == "#":
                return False
            stem = f"{stem}.{word}" if stem else word
        needed = branches.get(stem)
        return needed is not None and needed <= least_words


class _Walk:
    """Patterns in normal form, walked together. Each bit is a position in one pattern, before a token or after the last."""

    __slots__ = ("_ends", "_hashes", "_stars", "_start", "_takes")

    def __init__(self, patterns: Iterable[Sequence[str]]) -> None:
        self._start = self._ends = self._hashes = self._stars = 0
        literals: dict[str, int] = {}
        place = 1
        for tokens in patterns:
            self._start |= place
            for token in tokens:
                if token == "#":
                    self._hashes |= place
                elif token == "*":
                    self._stars |= place
                else:
                    literals[token] = literals.get(token, 0) | place
                place <<= 1
            self._ends |= place
            place <<= 1
        self._takes = {word: places | self._stars for word, places in literals.items()}
        self._start |= (self._start & self._hashes) << 1

    def contains(self, words: Iterable[str]) -> bool:
        """Return whether a pattern of literal words and `*` is contained."""
        places = self._start
        for word in words:
            places = self._step(places, word)
            if not places:
                return False
        return bool(places & self._ends)

    def contains_every_expansion(self, tokens: Sequence[str]) -> bool:
        """Return whether one of these patterns contains every expansion of `tokens`, in normal form and with a `#`."""
        count = len(tokens)
        # The least number of words that the tokens from an index onwards match.
        rest = [sum(token != "#" for token in tokens[index:]) for index in range(count + 1)]
        left = self._ends  # the ends of patterns that contain every expansion so far
        states = {(0, self._start), (1, self._start)} if tokens[0] == "#" else {(0, self._start)}
        for room in range(MAX_TOPIC_WORDS - 1, -1, -1):
            after: set[tuple[int, int]] = set()
            for index, places in states:
                if index == count:
                    continue
                token = tokens[index]
                reached = self._step(places, token)
                following = index if token == "#" else index + 1
                if rest[following] > room:
                    continue
                if not reached:
                    return False  # an expansion with this beginning is in no pattern
                after.add((following, reached))
                if following < count and tokens[following] == "#":
                    after.add((following + 1, reached))
            for index, places in after:
                if index == count:
                    left &= places
            if not left:
                return False
            states = after
        return True

    def _step(self, places: int, word: str) -> int:
        """Advance by one word. A wildcard stands for a word in no pattern, so only wildcards match it."""
        hashes = self._hashes
        places = (places & self._takes.get(word, self._stars)) << 1 | places & hashes
        # Once is enough, because the normal form has no two adjacent `#`.
        return places | (places & hashes) << 1


def _literal_start(tokens: Sequence[str]) -> Sequence[str]:
    for index, token in enumerate(tokens):
        if token in ("*", "#"):
            return tokens[:index]
    return tokens


@lru_cache(maxsize=MAX_COMPILED)  # users of a role differ only in their own topics, which are a branch
def _walk(patterns: tuple[tuple[str, ...], ...]) -> _Walk:
    return _Walk(patterns)


@lru_cache(maxsize=MAX_COMPILED)
def compiled(patterns: tuple[str, ...]) -> Grants:
    """Return these grants compiled. Recent ones are cached, because a user's clients and reconnects share them."""
    return Grants(patterns)
