"""Remembered topics, indexed by their words to find exactly those that a pattern matches. No I/O.

Each topic has a number. For each place and word there are bitmaps of the topics with this word there, one `int` for each
CHUNK of numbers. A pattern takes one `&` for each of its words and chunks. A word without a topic ends the search at once, so a
new user's pattern costs the same for any number of topics.

Topics leave one at a time, in order of arrival, and the next topic takes the number.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from struct import Struct
from typing import TypeAlias

from headgate.events.topic import MAX_TOPIC_WORDS

# Bits of the longest numbers here. Python takes 0.1 to 0.2 µs for an operation.
CHUNK = 8192
_SHIFT = CHUNK.bit_length() - 1
_MASK = CHUNK - 1
_PIECES = Struct(f"<{CHUNK // 64}Q")

# The topics with a word at a place, as the number of the only one, a few numbers, or bitmaps by chunk. So the word of a single
# topic, such as an id, takes 32 bytes rather than some hundred for a bitmap.
_Having: TypeAlias = int | list[int] | dict[int, int]
_FEW = 4


class TopicIndex:
    """A set of topics."""

    __slots__ = ("_free", "_hand", "_lengths", "_topics", "_words")

    def __init__(self) -> None:
        self._topics: list[str | None] = []  # by number
        self._free: list[int] = []
        self._hand = 0  # the number of the oldest topic, or an earlier free one
        self._words: list[dict[str, _Having]] = [{} for _ in range(MAX_TOPIC_WORDS)]  # by place
        self._lengths: list[dict[int, int]] = [{} for _ in range(MAX_TOPIC_WORDS + 1)]  # by the number of words

    def __len__(self) -> int:
        return len(self._topics) - len(self._free)

    def add(self, topic: str) -> None:
        """Add an absent valid topic."""
        if self._free:
            number = self._free.pop()
            self._topics[number] = topic
        else:
            number = len(self._topics)
            self._topics.append(topic)
        chunk, bit = number >> _SHIFT, 1 << (number & _MASK)
        split = topic.split(".")
        lengths = self._lengths[len(split)]
        lengths[chunk] = lengths.get(chunk, 0) | bit
        for words, word in zip(self._words, split, strict=False):
            having = words.get(word)
            if having is None:
                words[word] = number
            elif isinstance(having, int):
                words[word] = [having, number]
            elif isinstance(having, dict):
                having[chunk] = having.get(chunk, 0) | bit
            elif len(having) < _FEW:
                having.append(number)
            else:
                bitmaps = words[word] = {chunk: bit}
                for each in having:
                    bitmaps[each >> _SHIFT] = bitmaps.get(each >> _SHIFT, 0) | 1 << (each & _MASK)

    def pop(self) -> str:
        """Remove and return a topic, which is the oldest if no more topics have left than come."""
        while (topic := self._topics[self._hand % len(self._topics)]) is None:
            self._hand += 1
        number = self._hand % len(self._topics)
        self._hand = number + 1
        self._topics[number] = None
        self._free.append(number)
        chunk, others = number >> _SHIFT, ~(1 << (number & _MASK))
        split = topic.split(".")
        lengths = self._lengths[len(split)]
        lengths[chunk] &= others
        for words, word in zip(self._words, split, strict=False):
            having = words[word]
            if isinstance(having, int):
                del words[word]
            elif isinstance(having, list):
                having.remove(number)
                if len(having) == 1:
                    words[word] = having[0]
            elif left := having[chunk] & others:
                having[chunk] = left
            else:
                del having[chunk]
                if not having:
                    del words[word]
        return topic

    def matching(self, pattern: str, at_most: int) -> list[str] | None:
        """Return the topics that a valid pattern matches, each once; None if they are more than `at_most`.

        Takes at most 72 operations on the bitmaps of each chunk, for any pattern.
        """
        tokens = pattern.split(".")
        first = tokens.index("#") if "#" in tokens else len(tokens)
        chunks = self._chunks(tokens, first)
        found, count = [], 0
        for chunk in chunks:
            if first < len(tokens):
                bits = self._matching_open_end(tokens, first, chunk)
            else:
                bits = self._step(self._lengths[first].get(chunk, 0), tokens, 0, chunk)
            if bits:
                found.append((chunk, bits))
                count += bits.bit_count()
                if count > at_most:
                    return None
        return [topic for chunk, bits in found for number in _numbers(bits) if (topic := self._topics[chunk << _SHIFT | number])]

    def _chunks(self, tokens: Sequence[str], first: int) -> Collection[int]:
        """Return the chunks that may have matching topics. `first` is the place of the first `#`, or the number of tokens."""
        chunks: Collection[int] = range((len(self._topics) + CHUNK - 1) >> _SHIFT)
        for place, token in enumerate(tokens):
            if place < first:
                if token != "*":
                    having = self._words[place].get(token)
                    if having is None:
                        return ()
                    if not isinstance(having, dict):
                        having = {each >> _SHIFT: 0 for each in ([having] if isinstance(having, int) else having)}
                    chunks = having.keys() & chunks
            elif token not in ("*", "#") and not any(token in words for words in self._words):
                return ()
        return chunks

    def _step(self, bits: int, tokens: Sequence[str], place: int, chunk: int) -> int:
        """Return the topics in `bits` that have these tokens, without `#`, from a place on. All must be long enough."""
        for token in tokens:
            if not bits:
                return 0
            if token != "*":
                having = self._words[place].get(token)
                if having is None:
                    return 0
                if isinstance(having, int):
                    bits &= 1 << (having & _MASK) if having >> _SHIFT == chunk else 0
                elif isinstance(having, dict):
                    bits &= having.get(chunk, 0)
                else:
                    few = 0
                    for each in having:
                        if each >> _SHIFT == chunk:
                            few |= 1 << (each & _MASK)
                    bits &= few
            place += 1
        return bits

    def _matching_open_end(self, tokens: Sequence[str], first: int, chunk: int) -> int:
        """Return the topics of a chunk that a pattern with `#` matches."""
        lengths = [length.get(chunk, 0) for length in self._lengths]
        longer = [0] * (MAX_TOPIC_WORDS + 1)  # number of words → topics with more
        for count in range(MAX_TOPIC_WORDS, 0, -1):
            longer[count - 1] = longer[count] | lengths[count]
        begun = self._step(longer[max(first - 1, 0)], tokens[:first], 0, chunk)
        if first == len(tokens) - 1 or not begun:
            return begun
        # Number of words → topics in which the tokens so far may match that many.
        reached = [0] * (MAX_TOPIC_WORDS + 1)
        reached[first] = begun
        for token in tokens[first:]:
            if token == "#":
                for place in range(MAX_TOPIC_WORDS):
                    reached[place + 1] |= reached[place] & longer[place]
            else:
                after = [0] * (MAX_TOPIC_WORDS + 1)
                for place in range(MAX_TOPIC_WORDS):
                    if reached[place]:
                        after[place + 1] = self._step(reached[place] & longer[place], (token,), place, chunk)
                reached = after
        ended = 0
        for bits, length in zip(reached, lengths, strict=True):
            ended |= bits & length
        return ended


def _numbers(bits: int) -> Iterator[int]:
    """Yield the indexes of the bits set; many go in pieces, as taking one bit off a long number costs as much as a chunk."""
    if bits.bit_count() <= _FEW:
        while bits:
            lowest = bits & -bits
            yield lowest.bit_length() - 1
            bits ^= lowest
        return
    for index, piece in enumerate(_PIECES.unpack(bits.to_bytes(CHUNK // 8, "little"))):
        while piece:
            lowest = piece & -piece
            yield index << 6 | lowest.bit_length() - 1
            piece ^= lowest
