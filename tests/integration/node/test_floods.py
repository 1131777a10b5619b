"""A client that asks for too much, and the others that do not notice: wildcard bombs (F15), and the costliest CONNECTs (F30).

tests/unit/node/test_gateway.py has floods, and the limits one by one.
"""

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from headgate.auth.tokens import Tokens
from headgate.services.publisher import Publisher
from headgate.settings.settings import Settings
from tests.support.gateway_here import ClientHere, GatewayHere, StartGatewayHere
from tests.support.raw_client import RawClient

EVENTS = 200
SECRET = "a secret of the tests, thirty-two bytes long"
BOMBERS = 10
WILDCARDS = 32
# Every way for `#` to stand for words has to be tried.
BOMBS = [
    ".".join(words) for words in itertools.islice(itertools.product(["#", "*", "a"], repeat=8), 10_000) if words.count("#") == 4
]


@pytest.fixture
def gateway(gateway_here: StartGatewayHere) -> GatewayHere:
    return gateway_here(token_secret=SECRET)


@pytest.fixture
def witness(gateway: GatewayHere) -> ClientHere:
    client = gateway.join({"subscriptions": [{"pattern": "a.#"}]})
    assert client.welcome
    return client


def served(witness: RawClient | ClientHere, publisher: Publisher) -> None:
    """Every event reaches the witness, in order, and nothing else does, neither a gap nor a warning."""
    before = len(witness.events)
    for number in range(EVENTS):
        publisher.publish("a.a.a.a.a.a.a.a", number)
    assert [event[1] for event in witness.wait_for_events(before + EVENTS)[before:]] == list(range(EVENTS))
    assert not witness.named("gap") + witness.named("backpressure")


def test_a_wildcard_bomb_leaves_others_their_service(gateway: GatewayHere, witness: ClientHere, publisher: Publisher) -> None:
    """As many clients as wish, each with the most and the worst patterns that it may have, against the deepest topic."""
    bombers = []
    for number in range(BOMBERS):
        patterns = [{"pattern": pattern} for pattern in BOMBS[number * WILDCARDS : (number + 1) * WILDCARDS]]
        bomber = gateway.join({"subscriptions": patterns})
        assert all(entry["ok"] for entry in bomber.welcome["subscriptions"])
        bombers.append(bomber)
    served(witness, publisher)
    for bomber in bombers:
        assert [event[1] for event in bomber.wait_for_events(EVENTS)] == list(range(EVENTS))


# As many grants as a token may hold; one of them contains a pattern that every one of its expansions has to show.
GRANTS = [
    "x.#",
    *(f"#.a.#.b.#.{number}" for number in range(31)),
    *(f"#.{number}.*.#.c" for number in range(31)),
    "#.a.#.b.#.c.#",
]
COSTLY: dict[str, Callable[[int], list[dict[str, Any]]]] = {
    "contained after every expansion": lambda number: [
        {"pattern": f"#.a.#.b.#.c.#.{number}-{each}"} for each in range(WILDCARDS)
    ],
    "contained in none": lambda number: [{"pattern": f"#.a.#.b.#.{number}.#.{each}"} for each in range(128)],
    "a past for each": lambda number: [{"pattern": f"x.{number}.{each}", "since": {"last": 1000}} for each in range(128)],
    "a time for each": lambda number: [{"pattern": f"x.{number}.{each}", "since": {"time": each}} for each in range(128)],
}


@pytest.mark.parametrize("attack", COSTLY)
def test_the_costliest_connects_leave_others_their_service(
    gateway: GatewayHere, witness: ClientHere, publisher: Publisher, attack: str
) -> None:
    """As many clients as wish, each with all that its limits allow; each learns the outcome of each of its subscriptions."""
    tokens = Tokens.configured(Settings.read({"HEADGATE_TOKEN_SECRET": SECRET}))
    assert tokens is not None
    attackers: list[tuple[dict[str, Any], ClientHere]] = []
    for number in range(BOMBERS):
        auth: dict[str, Any] = {
            "token": tokens.mint(f"mallory-{number}", GRANTS, [], 600),
            "subscriptions": COSTLY[attack](number),
        }
        attackers.append((auth, gateway.join(auth)))
    served(witness, publisher)
    for auth, attacker in attackers:
        results = attacker.welcome["subscriptions"]
        assert [result["pattern"] for result in results] == [wanted["pattern"] for wanted in auth["subscriptions"]]
        refused = {result["error"]["code"] for result in results if not result["ok"]}
        assert refused == ({"forbidden", "limit_reached"} if attack == "contained in none" else set())
