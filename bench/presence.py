"""The cost of presence: commands of Redis for each join, and how soon another page at another gateway sees one.

    python -m bench.presence [users]

Two gateways on a private Redis. First users enter one after the other, then as many others all at once. A watcher at the second
gateway takes the time from the request to the notice. Commands are Redis' own counts (INFO commandstats), beats included.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from headgate.auth.tokens import Tokens
from headgate.redis.client import Client, call, open_client
from headgate.redis.embedded import start_private_redis
from headgate.settings.settings import Settings
from tests.support.gateway_process import GatewayProcess
from tests.support.raw_client import RawClient

SECRET = "a secret of thirty-two bytes or more, for the bench"
TOPIC = "rooms.7"
USERS = 200
COMMANDS = ("fcall", "hget", "hset", "publish", "hscan", "smembers")


class Watcher:
    """A page that watches, and when it saw each user come."""

    def __init__(self, client: RawClient) -> None:
        self.client, self.seen_s = client, dict[str, float]()
        take = client.take

        def taken(packet: str) -> None:
            now_s = time.monotonic()
            take(packet)
            if packet.startswith("42") and '"presence"' in packet[:40]:
                for member in client.received[-1][1]["members"]:
                    self.seen_s.setdefault(member[0], now_s)

        client.take = taken  # type: ignore[method-assign]


def counts(redis: Client) -> dict[str, int]:
    """Return how often Redis has run each command, inside functions too."""
    found = call(redis, "INFO", "commandstats")
    return {name: int(found.get(f"cmdstat_{name}", {"calls": 0})["calls"]) for name in COMMANDS}


def measure(redis: Client, watcher: Watcher, clients: dict[str, RawClient], enter: Callable[[RawClient], Any]) -> None:
    """Let clients enter, and print what it took."""
    before = counts(redis)
    begun_s: dict[str, float] = {}
    for user, client in clients.items():
        begun_s[user] = time.monotonic()
        enter(client)
    watcher.client.wait_for(lambda: begun_s.keys() <= watcher.seen_s.keys(), "all of them")
    each = ", ".join(f"{name} {(count - before[name]) / len(clients):.2f}" for name, count in counts(redis).items() if count)
    took_ms = sorted(1000 * (watcher.seen_s[user] - at_s) for user, at_s in begun_s.items())
    print(f"  commands for each join: {each}")
    print(f"  seen by another page: median {took_ms[len(took_ms) // 2]:.1f} ms, p99 {took_ms[-(len(took_ms) // 100) - 1]:.1f} ms")


def main() -> None:
    """Measure, and print."""
    users = int(sys.argv[1]) if len(sys.argv) > 1 else USERS
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server = stack.enter_context(start_private_redis(folder / "redis"))
        settings = {"HEADGATE_REDIS_URL": server.url, "HEADGATE_TOKEN_SECRET": SECRET}
        gateways = [stack.enter_context(GatewayProcess(folder / name, settings)) for name in ("one", "two")]
        redis = open_client(server.url)
        tokens = Tokens.configured(Settings.read(settings))
        assert tokens is not None

        def join(gateway: GatewayProcess, user: str) -> RawClient:
            client = RawClient(gateway.url, {"token": tokens.mint(user, [TOPIC], [], 600)})
            assert client.welcome
            stack.callback(client.close)
            return client

        watcher = Watcher(join(gateways[1], "watcher"))
        watcher.client.request("presence", {"topic": TOPIC, "act": "watch"})
        first = {f"a{number}": join(gateways[0], f"a{number}") for number in range(users)}
        rest = {f"b{number}": join(gateways[0], f"b{number}") for number in range(users)}

        def one_by_one(client: RawClient) -> None:
            client.request("presence", {"topic": TOPIC, "act": "enter"})
            time.sleep(0.1)  # no two of them may share a write, or a notice

        print(f"{users} users, one after the other:")
        measure(redis, watcher, first, one_by_one)
        print(f"{users} users at once:")
        measure(redis, watcher, rest, lambda client: client.send_request(f'["presence",{{"topic":"{TOPIC}","act":"enter"}}]'))


if __name__ == "__main__":
    main()
