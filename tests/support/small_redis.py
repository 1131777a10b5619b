"""A Redis with sorted sets and hashes in this process, on a clock of the test's own, as far as places and pauses need it.

tests/contract/test_small_redis.py has a real server answer the same commands.
"""

from __future__ import annotations

from typing import Any, cast

import redis

from headgate.errors import BusUnavailable
from headgate.redis.client import Client


class SmallRedis:
    """`refuses` names a command that is refused; while it is not `up`, nobody is answered."""

    def __init__(self, now_s: int = 1000) -> None:
        self.now_s, self.refuses, self.up = now_s, "", True
        self._sets: dict[str, dict[str, float]] = {}
        self._hashes: dict[str, dict[str, bytes]] = {}
        self._ends_s: dict[str, int] = {}
        self.asked: list[str] = []

    def client(self) -> Client:
        """Return a client that is connected to it."""
        return cast(Client, self)

    def flush(self) -> None:
        """Forget everything."""
        self._sets, self._hashes, self._ends_s = {}, {}, {}

    def present(self) -> set[str]:
        """Return the keys that there are."""
        self._expire()
        return {*self._sets, *self._hashes}

    # -- as redis-py's client -----------------------------------------------------------------------------------------

    def execute_command(self, name: str, *arguments: Any) -> Any:
        """Answer a command."""
        if not self.up:
            raise BusUnavailable("gone")
        self.asked.append(name)
        if name == self.refuses:
            raise redis.ResponseError("NOPERM no permission")
        self._expire()
        return getattr(self, "_expire_in" if name == "EXPIRE" else f"_{name.lower()}")(*arguments)

    def pipeline(self, transaction: bool) -> Pipeline:
        """Return an empty pipeline."""
        assert not transaction
        return Pipeline(self)

    def close(self) -> None:
        """Close the connections: there are none."""

    # -- private ------------------------------------------------------------------------------------------------------

    def _expire(self) -> None:
        for key in [key for key, end_s in self._ends_s.items() if end_s <= self.now_s]:
            self._unlink(key)
        self._sets = {key: members for key, members in self._sets.items() if members}
        self._hashes = {key: fields for key, fields in self._hashes.items() if fields}

    def _time(self) -> list[int]:
        return [self.now_s, 5]

    def _zadd(self, key: str, score: Any, member: str) -> int:
        members = self._sets.setdefault(key, {})
        is_new = member not in members
        members[member] = float(score)
        return int(is_new)

    def _zremrangebyscore(self, key: str, least: str, most: int) -> int:
        assert least == "-inf"
        members = self._sets.get(key, {})
        gone = [member for member, score in members.items() if score <= most]
        for member in gone:
            del members[member]
        return len(gone)

    def _zrange(self, key: str, first: int, last: int, with_scores: str = "") -> list[Any]:
        pairs = sorted(self._sets.get(key, {}).items(), key=lambda pair: (pair[1], pair[0]))[first : last + 1]
        return [(member.encode(), score) if with_scores else member.encode() for member, score in pairs]

    def _zcard(self, key: str) -> int:
        return len(self._sets.get(key, {}))

    def _zscore(self, key: str, member: str) -> float | None:
        return self._sets.get(key, {}).get(member)

    def _zrem(self, key: str, member: str) -> int:
        return int(self._sets.get(key, {}).pop(member, None) is not None)

    def _hset(self, key: str, *parts: Any) -> int:
        fields = self._hashes.setdefault(key, {})
        given = {field: str(value).encode() for field, value in zip(parts[::2], parts[1::2], strict=True)}
        fresh = len(given.keys() - fields.keys())
        fields.update(given)
        return fresh

    def _hdel(self, key: str, *names: str) -> int:
        fields = self._hashes.get(key, {})
        return sum(fields.pop(name, None) is not None for name in names)

    def _hmget(self, key: str, *names: str) -> list[bytes | None]:
        fields = self._hashes.get(key, {})
        return [fields.get(name) for name in names]

    def _expire_in(self, key: str, seconds: int) -> int:
        known = key in self._sets or key in self._hashes
        if known:
            self._ends_s[key] = self.now_s + seconds
        return int(known)

    def _unlink(self, key: str) -> int:
        known = self._sets.pop(key, None) is not None or self._hashes.pop(key, None) is not None
        self._ends_s.pop(key, None)
        return int(known)


class Pipeline:
    """Commands in one round trip; one that is refused does not keep the others from running."""

    def __init__(self, server: SmallRedis) -> None:
        self._server = server
        self._commands: list[tuple[Any, ...]] = []

    def execute_command(self, *command: Any) -> None:
        """Add a command."""
        self._commands.append(command)

    def execute(self, raise_on_error: bool) -> list[Any]:
        """Run them."""
        assert not raise_on_error
        return [self._reply(command) for command in self._commands]

    def _reply(self, command: tuple[Any, ...]) -> Any:
        try:
            return self._server.execute_command(*command)
        except redis.ResponseError as error:
            return error
