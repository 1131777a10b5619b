"""A Redis of sorted sets, hashes, lists, strings and channels in this process, on a clock of the test's own, as far as places,
pauses, questions and vitals need it.

tests/contract/test_small_redis.py has a real server answer the same commands.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import redis

from headgate.errors import BusUnavailable
from headgate.redis.client import Client


class SmallRedis:
    """`refuses` names a command that is refused; while it is not `up`, no caller is answered.

    `hearers` get the messages of their channel at once; `idle` runs when a caller waits for a list that is empty.
    """

    connection_pool = SimpleNamespace(connection_class=redis.Connection, connection_kwargs={"db": 0, "path": "small"})

    def __init__(self, now_s: int = 1000) -> None:
        self.now_s, self.refuses, self.up = now_s, "", True
        self._sets: dict[str, dict[str, float]] = {}
        self._hashes: dict[str, dict[str, bytes]] = {}
        self._strings: dict[str, bytes] = {}
        self._lists: dict[str, list[bytes]] = {}
        self._ends_s: dict[str, int] = {}
        self.hearers: dict[str, list[Callable[[bytes], object]]] = {}
        self.idle: Callable[[], object] = lambda: None
        self.asked: list[str] = []

    def client(self) -> Client:
        return cast(Client, self)

    def flush(self) -> None:
        self._sets, self._hashes, self._lists, self._strings, self._ends_s = {}, {}, {}, {}, {}

    def present(self) -> set[str]:
        self._expire()
        return {*self._sets, *self._hashes, *self._lists, *self._strings}

    # -- as redis-py's client -----------------------------------------------------------------------------------------

    def execute_command(self, name: str, *arguments: Any) -> Any:
        if not self.up:
            raise BusUnavailable("gone")
        self.asked.append(name)
        if name == self.refuses:
            raise redis.ResponseError("NOPERM no permission")
        self._expire()
        return getattr(self, "_expire_in" if name == "EXPIRE" else f"_{name.lower()}")(*arguments)

    def pipeline(self, transaction: bool) -> Pipeline:
        assert not transaction
        return Pipeline(self.execute_command)

    def close(self) -> None:
        """Close the connections, of which there are none."""

    # -- private ------------------------------------------------------------------------------------------------------

    def _expire(self) -> None:
        for key in [key for key, end_s in self._ends_s.items() if end_s <= self.now_s]:
            self._unlink(key)
        self._sets = {key: members for key, members in self._sets.items() if members}
        self._hashes = {key: fields for key, fields in self._hashes.items() if fields}
        self._lists = {key: values for key, values in self._lists.items() if values}

    def _time(self) -> list[int]:
        return [self.now_s, 5]

    def _zadd(self, key: str, *words: Any) -> int:
        members = self._sets.setdefault(key, {})
        options = {"NX", "GT", "CH"} & {*words}
        pairs, before = [word for word in words if word not in options], dict(members)
        for score, member in zip(map(float, pairs[::2]), pairs[1::2], strict=True):
            if not (member in members and ("NX" in options or ("GT" in options and score <= members[member]))):
                members[member] = score
        if "CH" in options:
            return sum(before.get(member) != score for member, score in members.items())
        return len(members) - len(before)

    def _zremrangebyscore(self, key: str, least: str | int, most: str | int) -> int:
        members = self._sets.get(key, {})
        gone = [member for member, score in members.items() if float(least) <= score <= float(most)]
        for member in gone:
            del members[member]
        return len(gone)

    def _zremrangebyrank(self, key: str, first: int, last: int) -> int:
        assert first == 0
        assert last < 0
        members = self._sets.get(key, {})
        gone = [member for _, member in sorted((score, member) for member, score in members.items())][: last + 1]
        for member in gone:
            del members[member]
        return len(gone)

    def _zrange(self, key: str, first: Any, last: Any, *how: Any) -> list[Any]:
        pairs = sorted(self._sets.get(key, {}).items(), key=lambda pair: (pair[1], pair[0]), reverse="REV" in how)
        if "BYSCORE" in how:
            most, bound = (first, str(last)) if "REV" in how else (last, str(first))
            limit = how.index("LIMIT")
            assert (most, how[limit + 1]) == ("+inf", 0)
            least = float(bound.removeprefix("("))
            pairs = [pair for pair in pairs if pair[1] > least or (pair[1] == least and bound[0] != "(")][: how[limit + 2]]
        else:
            pairs = pairs[first : last + 1]
        return [(member.encode(), score) if "WITHSCORES" in how else member.encode() for member, score in pairs]

    def _zcard(self, key: str) -> int:
        return len(self._sets.get(key, {}))

    def _zscore(self, key: str, member: str) -> float | None:
        return self._sets.get(key, {}).get(member)

    def _zrem(self, key: str, member: str) -> int:
        return int(self._sets.get(key, {}).pop(member, None) is not None)

    def _hset(self, key: str, *parts: Any) -> int:
        fields = self._hashes.setdefault(key, {})
        given = {
            field: value if isinstance(value, bytes) else str(value).encode()
            for field, value in zip(parts[::2], parts[1::2], strict=True)
        }
        fresh = len(given.keys() - fields.keys())
        fields.update(given)
        return fresh

    def _hsetnx(self, key: str, name: str, value: Any) -> int:
        return 0 if name in self._hashes.get(key, {}) else self._hset(key, name, value)

    def _hdel(self, key: str, *names: str) -> int:
        fields = self._hashes.get(key, {})
        return sum(fields.pop(name, None) is not None for name in names)

    def _hget(self, key: str, name: str) -> bytes | None:
        return self._hashes.get(key, {}).get(name)

    def _hlen(self, key: str) -> int:
        return len(self._hashes.get(key, {}))

    def _hvals(self, key: str) -> list[bytes]:
        return list(self._hashes.get(key, {}).values())

    def _hmget(self, key: str, *names: str) -> list[bytes | None]:
        fields = self._hashes.get(key, {})
        return [fields.get(name) for name in names]

    def _hgetall(self, key: str) -> dict[bytes, bytes]:
        return {name.encode(): value for name, value in self._hashes.get(key, {}).items()}

    def _set(self, key: str, value: str, ex: str, seconds: int) -> bool:
        assert ex == "EX"
        self._strings[key] = value.encode()
        self._ends_s[key] = self.now_s + seconds
        return True

    def _exists(self, key: str) -> int:
        return int(any(key in kind for kind in (self._strings, self._sets, self._hashes, self._lists)))

    def _publish(self, channel: str, message: bytes) -> int:
        hearers = self.hearers.get(channel, [])
        for hear in hearers:
            hear(message)
        return len(hearers)

    def _rpush(self, key: str, *values: bytes) -> int:
        self._lists.setdefault(key, []).extend(values)
        return len(self._lists[key])

    def _blpop(self, key: str, timeout_s: str) -> tuple[bytes, bytes] | None:
        if not self._lists.get(key):
            self.idle()  # everything happens that needs no time
        if self._lists.get(key):
            return key.encode(), self._lists[key].pop(0)
        self.now_s += round(float(timeout_s))
        return None

    def _expire_in(self, key: str, seconds: int) -> int:
        known = key in self._sets or key in self._hashes or key in self._lists
        if known:
            self._ends_s[key] = self.now_s + seconds
        return int(known)

    def _unlink(self, key: str) -> int:
        known = self._exists(key)
        for kind in (self._sets, self._hashes, self._lists, self._strings):
            kind.pop(key, None)
        self._ends_s.pop(key, None)
        return known


class Pipeline:
    """Commands in one round trip; a refused one does not keep the others from running."""

    def __init__(self, answer: Callable[..., Any]) -> None:
        self._answer = answer
        self._commands: list[tuple[Any, ...]] = []

    def execute_command(self, *command: Any) -> None:
        self._commands.append(command)

    def execute(self, raise_on_error: bool) -> list[Any]:
        assert not raise_on_error
        return [self._reply(command) for command in self._commands]

    def _reply(self, command: tuple[Any, ...]) -> Any:
        try:
            return self._answer(*command)
        except redis.ResponseError as error:
            return error
