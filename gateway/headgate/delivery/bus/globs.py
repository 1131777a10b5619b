"""Globs, and sets of channels that may lie in them. No I/O.

A glob's `*` stands for any bytes, including dots; nothing else is special. A glob lies in another if the other matches its text,
where only a `*` matches a `*`. All names begin with a prefix of the same length, before the topic.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import TypeAlias, TypeVar

# Command and name, as Redis acknowledges them, such as (b"subscribe", b"hg:{n}:orders.1"), (b"psubscribe", b"hg:{n}:orders.*") or
# (b"ssubscribe", b"hg:{n}:orders.1").
Source: TypeAlias = tuple[bytes, bytes]
# The part of a glob before its first `*`, which most names do not begin with, and the glob.
Glob: TypeAlias = tuple[bytes, bytes]


@lru_cache(maxsize=1024)
def matcher(glob: bytes) -> re.Pattern[bytes]:
    """Return a regular expression for the names in a glob."""
    return re.compile(re.escape(glob).replace(rb"\*", b".*"), re.DOTALL)


def split(glob: bytes) -> Glob:
    """Return a glob with its part before the first `*`."""
    return glob[: glob.index(b"*")], glob


def covers(globs: Iterable[Glob], name: bytes) -> bool:
    """Return whether a name or a glob lies in one of these few globs."""
    for start, glob in globs:  # noqa: SIM110 - a generator takes twice as long
        if name.startswith(start) and matcher(glob).fullmatch(name):
            return True
    return False


class SourceCounts:
    """Counted channels, or globs, grouped by the first and the last two bytes of their topics, so that `inside` searches few."""

    # By bytes there are a few thousand groups at most, and by words there may be one for each channel.
    __slots__ = ("_by_start", "_prefix_bytes", "count")

    def __init__(self, prefix_bytes: int) -> None:
        self._prefix_bytes = prefix_bytes
        self._by_start: dict[bytes, dict[bytes, dict[Source, int]]] = {}
        self.count = 0

    def __contains__(self, source: Source) -> bool:
        start, end = self._edges(source)
        return source in self._by_start.get(start, {}).get(end, ())

    def __iter__(self) -> Iterator[Source]:
        for by_end in self._by_start.values():
            for sources in by_end.values():
                yield from sources

    def add(self, source: Source) -> bool:
        """Count a source once more; return whether it is new."""
        start, end = self._edges(source)
        sources = self._by_start.setdefault(start, {}).setdefault(end, {})
        count = sources[source] = sources.get(source, 0) + 1
        self.count += count == 1
        return count == 1

    def remove(self, source: Source) -> bool:
        """Count a present source once less; return whether it has gone."""
        start, end = self._edges(source)
        by_end = self._by_start[start]
        sources = by_end[end]
        sources[source] -= 1
        if sources[source]:
            return False
        del sources[source]
        if not sources:
            del by_end[end]
            if not by_end:
                del self._by_start[start]
        self.count -= 1
        return True

    def clear(self) -> None:
        self._by_start.clear()
        self.count = 0

    def inside(self, glob: bytes) -> Iterator[Source]:
        """Yield the sources in a glob."""
        fits = matcher(glob).fullmatch
        start = glob[self._prefix_bytes : glob.index(b"*")][:2]
        end = glob[glob.rindex(b"*") + 1 :][-2:]
        for by_end in _fitting(self._by_start, start, bytes.startswith):
            for sources in _fitting(by_end, end, bytes.endswith):
                for source in sources:
                    if fits(source[1]):
                        yield source

    def _edges(self, source: Source) -> tuple[bytes, bytes]:
        topic = source[1][self._prefix_bytes :]
        return topic[:2], topic[-2:]


V = TypeVar("V")


def _fitting(groups: dict[bytes, V], edge: bytes, fits: Callable[[bytes, bytes], bool]) -> Iterable[V]:
    """Return the groups with an edge of up to two bytes."""
    if len(edge) < 2:
        return [group for key, group in groups.items() if fits(key, edge)]
    return (groups[edge],) if edge in groups else ()
