"""A map with patterns as keys, to find the values of the patterns that match a topic. No I/O, nothing is remembered.

In: `add` and `discard` of a pattern with its value. Out: `reached(topic)`. As in AMQP, `*` is exactly one word, and `#` any
number, anywhere.

All patterns are keys of one dict. Patterns with the same wildcards at the same places have one *shape*. For example,
`orders.*.shipped` and `users.*.alerts` both have `.*.`. A topic and a shape leave one candidate, the topic's own words with the
wildcards in their places. So a match takes one lookup, 0.2 µs, for each shape in use, whatever the number of patterns. An
application has a handful of shapes, and the grammar allows at most 2,048 for one topic. Patterns with more than one `#` fit a
topic in several ways. They are rare, and are walked together as automata (below).

A trie of words takes about twice the memory, and each wildcard opens a branch at each word. With 3,000 patterns designed against
it, a topic took 2 ms, and takes 0.2 ms here. A trie is faster where wildcards are at dozens of different places, as in the
classic comparison of matchers (bench/results/README.md, topics).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import itemgetter
from string import ascii_letters, digits
from typing import Generic, TypeVar

from headgate.events.topic import MAX_TOPIC_WORDS, normal_form

V = TypeVar("V")

# Removes the literal words from a pattern, which leaves its shape.
_WITHOUT_WORDS = str.maketrans("", "", ascii_letters + digits + "_-")
_WILDCARDS = ("*", "#")
# Patterns per automaton. Python computes with its numbers of 576 bits about as fast as with 30 bits.
_AUTOMATON_PATTERNS = 64
# Places in a pattern, before each of its tokens and after the last.
_PLACES = MAX_TOPIC_WORDS + 1

# A topic's words, followed by the two wildcards → the words of a candidate.
_Recipe = Callable[[Sequence[str]], Iterable[str]]


class PatternMap(Generic[V]):
    """See the module."""

    __slots__ = ("_automata", "_recipes", "_shapes", "_values")

    def __init__(self) -> None:
        self._values: dict[str, V] = {}
        self._shapes: dict[str, int] = {}  # shape → number of its patterns
        self._recipes: dict[int, dict[str, _Recipe]] = {}  # number of words → shape → recipe
        self._automata: list[_Automaton[V]] = []

    def get(self, pattern: str) -> V | None:
        """Return the value of a pattern, or None."""
        return self._values.get(pattern)

    def __len__(self) -> int:
        return len(self._values)

    def add(self, pattern: str, value: V) -> None:
        """Add an absent valid pattern."""
        self._values[pattern] = value
        hashes = pattern.count("#")
        if hashes > 1:
            automaton = next((each for each in self._automata if len(each.patterns) < _AUTOMATON_PATTERNS), None)
            if automaton is None:
                automaton = _Automaton()
                self._automata.append(automaton)
            automaton.add(pattern, value)
        elif hashes or "*" in pattern:
            shape = pattern.translate(_WITHOUT_WORDS)
            count = self._shapes[shape] = self._shapes.get(shape, 0) + 1
            if count == 1:
                for words, recipe in _recipes(shape.split(".")):
                    self._recipes.setdefault(words, {})[shape] = recipe

    def discard(self, pattern: str) -> None:
        """Remove a pattern and everything that only it needed. Idempotent."""
        if self._values.pop(pattern, None) is None:
            return
        hashes = pattern.count("#")
        if hashes > 1:
            automaton = next(each for each in self._automata if pattern in each.patterns)
            automaton.remove(pattern)
            if not automaton.patterns:
                self._automata.remove(automaton)
        elif hashes or "*" in pattern:
            shape = pattern.translate(_WITHOUT_WORDS)
            self._shapes[shape] -= 1
            if not self._shapes[shape]:
                del self._shapes[shape]
                for words, recipes in tuple(self._recipes.items()):
                    recipes.pop(shape, None)
                    if not recipes:
                        del self._recipes[words]

    def reached(self, topic: str) -> list[V]:
        """Return the values of the patterns that match a valid topic, each once. The order depends only on the patterns."""
        get, join = self._values.get, ".".join
        value = get(topic)
        values = [] if value is None else [value]
        words = topic.split(".")
        if (recipes := self._recipes.get(len(words))) is not None:
            supply = (*words, *_WILDCARDS)
            candidates = map(join, [recipe(supply) for recipe in recipes.values()])
            values += [value for value in map(get, candidates) if value is not None]
        for automaton in self._automata:
            automaton.reached(words, values)
        return values


def _recipes(tokens: Sequence[str]) -> Iterator[tuple[int, _Recipe]]:
    """Yield each number of words that a shape may match in a topic, with the function that makes a candidate of them."""
    # For a single token, `itemgetter` returns the wildcard itself, and joining its one character leaves it unchanged.
    if "#" not in tokens:
        count = len(tokens)
        yield count, itemgetter(*(count if token == "*" else index for index, token in enumerate(tokens)))
        return
    before = tokens.index("#")
    least = len(tokens) - 1
    for count in range(max(least, 1), MAX_TOPIC_WORDS + 1):
        # After the `#`, words are counted from the topic's end.
        at = [index if index < before else count - len(tokens) + index for index in range(len(tokens))]
        yield count, itemgetter(*({"*": count, "#": count + 1}.get(token, at[index]) for index, token in enumerate(tokens)))


class _Automaton(Generic[V]):
    """Patterns with several `#`, walked together. Each bit of a number is a place in a pattern, before a token or after the last.

    For 64 patterns, a walk costs five operations on 576 bits for each of the topic's words, at most 2.5 µs.
    """

    __slots__ = ("_ends", "_free", "_hashes", "_stars", "_start", "_takes", "_values", "patterns")

    def __init__(self) -> None:
        self._start = self._ends = self._hashes = self._stars = 0
        self._takes: dict[str, int] = {}  # word → places before it
        self._values: dict[int, V] = {}  # by the place after the last token
        self._free = [number * _PLACES for number in range(_AUTOMATON_PATTERNS)]
        self.patterns: dict[str, int] = {}  # → their first place

    def add(self, pattern: str, value: V) -> None:
        """Add an absent pattern. There must be room."""
        begin = self.patterns[pattern] = self._free.pop()
        place = 1 << begin
        # The normal form has no two adjacent `#`, so skipping one at a time is enough.
        tokens = normal_form(pattern)
        self._start |= place | (place << 1 if tokens[0] == "#" else 0)
        for token in tokens:
            if token == "#":
                self._hashes |= place
            elif token == "*":
                self._stars |= place
            else:
                self._takes[token] = self._takes.get(token, 0) | place
            place <<= 1
        self._ends |= place
        self._values[begin + len(tokens)] = value

    def remove(self, pattern: str) -> None:
        begin = self.patterns.pop(pattern)
        self._free.append(begin)
        tokens = normal_form(pattern)
        others = ~((1 << _PLACES) - 1 << begin)
        self._start &= others
        self._hashes &= others
        self._stars &= others
        self._ends &= others
        for token in set(tokens) & self._takes.keys():
            self._takes[token] &= others
            if not self._takes[token]:
                del self._takes[token]
        del self._values[begin + len(tokens)]

    def reached(self, words: Iterable[str], values: list[V]) -> None:
        """Append the values of the patterns that match a topic of these words."""
        takes, stars, hashes = self._takes, self._stars, self._hashes
        places = self._start
        for word in words:
            places = (places & (takes.get(word, 0) | stars)) << 1 | places & hashes
            if not places:
                return
            places |= (places & hashes) << 1
        ends = places & self._ends
        while ends:
            lowest = ends & -ends
            values.append(self._values[lowest.bit_length() - 1])
            ends ^= lowest
