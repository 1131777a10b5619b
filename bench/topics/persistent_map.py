"""A map that never changes: `including` and `without` return another map, which shares nearly everything with this one.

The keys lie in small dicts, by their hash. A changed copy takes a new tuple of these dicts and one new dict, each about as long
as the square root of the number of keys. So a node of the concurrent trie may have as many branches, and a branch as many
subscribers, as there are users.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

# A dict alone holds so many keys. Beyond, with p dicts, so many and a quarter of p × p.
_ALONE = 16


class PersistentMap(Generic[K, V]):
    """See the module. A value is never None."""

    __slots__ = ("_count", "_parts")

    def __init__(self, parts: tuple[dict[K, V], ...] = ({},), count: int = 0) -> None:
        self._parts = parts
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[K]:
        for part in self._parts:
            yield from part

    def get(self, key: K) -> V | None:
        """Return the value of a key, None if it is not here."""
        parts = self._parts
        return parts[hash(key) & len(parts) - 1].get(key)

    def values(self) -> Iterator[V]:
        """Yield the values, in any order."""
        for part in self._parts:
            yield from part.values()

    def add_keys_to(self, found: set[K]) -> None:
        """Add all keys to a set."""
        for part in self._parts:
            found.update(part)

    def including(self, key: K, value: V) -> PersistentMap[K, V]:
        """Return a map that has this value for the key besides."""
        place = hash(key) & len(self._parts) - 1
        part = {**self._parts[place], key: value}
        return self._with(place, part, self._count + len(part) - len(self._parts[place]))

    def without(self, key: K) -> PersistentMap[K, V]:
        """Return a map without a key that is here."""
        place = hash(key) & len(self._parts) - 1
        part = dict(self._parts[place])
        del part[key]
        return self._with(place, part, self._count - 1)

    def _with(self, place: int, part: dict[K, V], count: int) -> PersistentMap[K, V]:
        parts = (*self._parts[:place], part, *self._parts[place + 1 :])
        size = len(parts)
        if count > _ALONE + size * size // 4:
            parts = _dealt(parts, size * 4)
        elif count < size * size // 64:
            parts = _dealt(parts, size // 4)
        return PersistentMap(parts, count)


def _dealt(parts: tuple[dict[K, V], ...], size: int) -> tuple[dict[K, V], ...]:
    """Return the same keys in so many dicts, a power of two."""
    dealt: tuple[dict[K, V], ...] = tuple({} for _ in range(size))
    for part in parts:
        for key, value in part.items():
            dealt[hash(key) & size - 1][key] = value
    return dealt
