"""A map whose keys are patterns: from a topic to the values of the patterns that match it. No I/O, nothing is remembered.

In: `add` and `discard` of a pattern with its value. Out: `reached(topic)`. Patterns are AMQP's: `*` is exactly one word, `#` zero
or more, anywhere.

All patterns are keys of one dict. Patterns with the same wildcards at the same places have one *shape*: `orders.*.shipped` and
`users.*.alerts` are both `.*.`. A topic and a shape leave one candidate: the topic's own words with the wildcards in their
places. So a match takes one look-up, 0.2 µs, for each shape in use, however many patterns there are: an application has a
handful of shapes, and the grammar allows at most 2,048 that fit one topic. Patterns with more than one `#` fit a topic in
several ways. They are rare, and are walked together as automata (below).

The rejected alternative is a trie of words. It takes about twice the memory, and each wildcard opens a branch at each word: 3,000
patterns made for that cost a topic 2 ms, here 0.2. A trie is the faster one where wildcards stand at dozens of different places,
as in the classic comparison of matchers (bench/results/README.md, topics).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import itemgetter
from string import ascii_letters, digits
from typing import Generic, TypeVar

from headgate.events.topic import MAX_TOPIC_WORDS, normal_form

V = TypeVar("V")

# Takes the literal words out of a pattern: what is left is its shape.
_WITHOUT_WORDS = str.maketrans("", "", ascii_letters + digits + "_-")
_WILDCARDS = ("*", "#")
# Patterns that one automaton holds: its numbers have 576 bits, and Python computes with them about as fast as with 30.
_AUTOMATON_PATTERNS = 64
# Places in a pattern: before each of its tokens and behind all.
_PLACES = MAX_TOPIC_WORDS + 1

# From a topic's words and the two wildcards behind them to the words of a candidate.
_Recipe = Callable[[Sequence[str]], Iterable[str]]


class PatternMap(Generic[V]):
    """See the module."""

    __slots__ = ("_automata", "_automaton_of", "_recipes", "_shapes", "_values")

    def __init__(self) -> None:
        self._values: dict[str, V] = {}
        self._shapes: dict[str, int] = {}  # how many patterns have each
        self._recipes: dict[int, dict[str, _Recipe]] = {}  # for topics of so many words, by shape
        self._automata: list[_Automaton[V]] = []
        self._automaton_of: dict[str, _Automaton[V]] = {}

    def get(self, pattern: str) -> V | None:
        """Return the value of a pattern, None if it is not here."""
        return self._values.get(pattern)

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Iterator[str]:
        """Yield the patterns in the order in which they were added."""
        return iter(self._values)

    def add(self, pattern: str, value: V) -> None:
        """Add a valid pattern that is not here yet."""
        self._values[pattern] = value
        hashes = pattern.count("#")
        if hashes > 1:
            self._add_to_automaton(pattern, value)
        elif hashes or "*" in pattern:
            shape = pattern.translate(_WITHOUT_WORDS)
            count = self._shapes[shape] = self._shapes.get(shape, 0) + 1
            if count == 1:
                for words, recipe in _recipes(shape.split(".")):
                    self._recipes.setdefault(words, {})[shape] = recipe

    def discard(self, pattern: str) -> None:
        """Remove a pattern and what only it needed. Idempotent."""
        if self._values.pop(pattern, None) is None:
            return
        hashes = pattern.count("#")
        if hashes > 1:
            automaton = self._automaton_of.pop(pattern)
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
        """Return the values of the patterns that match a valid topic, each once; the same patterns always in the same order."""
        get, join = self._values.get, ".".join
        value = get(topic)
        found = [] if value is None else [value]
        words = topic.split(".")
        recipes = self._recipes.get(len(words))
        if recipes is not None:
            supply = (*words, *_WILDCARDS)
            candidates = map(join, [recipe(supply) for recipe in recipes.values()])
            found += [value for value in map(get, candidates) if value is not None]
        for automaton in self._automata:
            automaton.reached(words, found)
        return found

    def _add_to_automaton(self, pattern: str, value: V) -> None:
        automaton = next((each for each in self._automata if len(each.patterns) < _AUTOMATON_PATTERNS), None)
        if automaton is None:
            automaton = _Automaton()
            self._automata.append(automaton)
        automaton.add(pattern, value)
        self._automaton_of[pattern] = automaton


def _recipes(tokens: Sequence[str]) -> Iterator[tuple[int, _Recipe]]:
    """Yield, for each number of words that a topic of this shape may have, how to make the candidate of them.

    A candidate of one token is that token, a wildcard: joining the characters of `*` or `#` leaves it as it is.
    """
    if "#" not in tokens:
        count = len(tokens)
        yield count, itemgetter(*(count if token == "*" else index for index, token in enumerate(tokens)))
        return
    before = tokens.index("#")
    least = len(tokens) - 1
    for count in range(max(least, 1), MAX_TOPIC_WORDS + 1):
        # Behind the `#`, words are counted from the topic's end.
        at = [index if index < before else count - len(tokens) + index for index in range(len(tokens))]
        yield count, itemgetter(*({"*": count, "#": count + 1}.get(token, at[index]) for index, token in enumerate(tokens)))


class _Automaton(Generic[V]):
    """Patterns with several `#`, walked together: a bit of a number is a place in one, before a token or behind all.

    The walk costs the topic's words times five operations on 576 bits for 64 patterns, 2.5 µs at most, whatever they are.
    """

    __slots__ = ("_ends", "_free", "_hashes", "_stars", "_start", "_takes", "_values", "patterns")

    def __init__(self) -> None:
        self._start = self._ends = self._hashes = self._stars = 0
        self._takes: dict[str, int] = {}  # word → places before it
        self._values: dict[int, V] = {}  # by the place behind all
        self._free = [number * _PLACES for number in range(_AUTOMATON_PATTERNS)]
        self.patterns: dict[str, int] = {}  # and where their places begin

    def add(self, pattern: str, value: V) -> None:
        """Add a pattern that is not here yet; there must be room."""
        begin = self.patterns[pattern] = self._free.pop()
        place = 1 << begin
        # In the normal form no two `#` stand next to each other, so one may be passed over at a time.
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
        """Remove a pattern that is here."""
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

    def reached(self, words: Iterable[str], found: list[V]) -> None:
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
            found.append(self._values[lowest.bit_length() - 1])
            ends ^= lowest
