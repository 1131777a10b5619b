"""The sets of topics that patterns match, by regular expressions: an oracle that shares nothing with the product."""

import itertools
import re
from functools import lru_cache

from headgate.events.topic import MAX_TOPIC_WORDS

# Two words and a third that no pattern names. Words that a pattern does not name are interchangeable.
_WORDS = "abz"
_PIECES = {"*": r"[^.]+\.", "#": r"(?:[^.]+\.)*"}


@lru_cache(maxsize=1)
def all_topics() -> list[list[str]]:
    """Every topic up to the limit of words."""
    return [list(topic) for length in range(1, MAX_TOPIC_WORDS + 1) for topic in itertools.product(_WORDS, repeat=length)]


@lru_cache(maxsize=4096)
def covered(pattern: str) -> int:
    """Return the set of all topics that match a pattern of the words `a` and `b`, as a bit mask."""
    expression = re.compile("".join(_PIECES.get(word, rf"{re.escape(word)}\.") for word in pattern.split(".")))
    return sum(1 << i for i, topic in enumerate(all_topics()) if expression.fullmatch(".".join(topic) + "."))


def contains(grant: str, pattern: str) -> bool:
    """Whether every topic that matches `pattern` also matches `grant`."""
    return not covered(pattern) & ~covered(grant)
