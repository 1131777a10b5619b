"""The wall clock of a real Redis, in the hands of a test: both function libraries get the time that the test sets.

Only where they ask for the time is replaced (`TIME` by a key). Everything else is the library as it is loaded elsewhere.
"""

from headgate.consumers.work.store import GROUP_LIBRARY
from headgate.redis.client import Client, call
from headgate.redis.functions import LOG_LIBRARY

KEY = "test:wall-clock"
ASKING = "local time = redis.call('TIME')"
TOLD = f"local time = redis.call('HMGET', '{KEY}', 'seconds', 'microseconds')"
# Redis may be full.
SET = "#!lua flags=allow-oom\nredis.call('HSET', KEYS[1], 'seconds', ARGV[1], 'microseconds', ARGV[2])"
BEGIN_MS = 1_800_000_000_000
HOUR_MS = 3_600_000


class WallClock:
    """Shows BEGIN_MS until it is set."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.ms = BEGIN_MS
        self.set(BEGIN_MS)
        self.restart()

    def restart(self) -> None:
        """Have Redis forget the libraries' memory, like another process."""
        for library in (LOG_LIBRARY, GROUP_LIBRARY):
            assert library.source.count(ASKING) == 1
            call(self._client, "FUNCTION", "LOAD", "REPLACE", library.source.replace(ASKING, TOLD))

    def set(self, ms: int) -> None:
        """Show this time from now on."""
        self.ms = ms
        call(self._client, "EVAL", SET, 1, KEY, ms // 1000, ms % 1000 * 1000)

    def advance(self, ms: int) -> None:
        """Show a time so much later, or earlier."""
        self.set(self.ms + ms)
