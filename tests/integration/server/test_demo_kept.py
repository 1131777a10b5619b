"""The demo's data in Redis: orders and a secret, for later processes and those beside."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from headgate_server.demo.kept import SECRET_BYTES, Kept
from headgate_server.demo.orders import OrderBook
from headgate_server.demo.tokens import demo_tokens, issue


def kept(redis_url: str) -> Kept:
    return Kept(lambda: redis_url)


def book(redis_url: str) -> OrderBook:
    """The book of another process, with a bus that takes everything."""

    def publish(events: Sequence[object]) -> Sequence[object]:
        return events

    return OrderBook(publish, keep=kept(redis_url))


def test_a_token_outlives_the_server_that_issued_it(redis_url: str) -> None:
    """The secret is made once, and the next server takes the token, and so does one beside it."""
    token = issue(demo_tokens(kept(redis_url).secret)(), "ana")
    assert demo_tokens(kept(redis_url).secret)().verify(token).user == "ana"
    assert len(kept(redis_url).secret()) >= SECRET_BYTES


def test_orders_of_processes_beside_each_other_are_all_there(redis_url: str) -> None:
    """They create them at the same time."""
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda user: book(redis_url).create(user), ["ana", "ben"] * 4))
    assert len({order.id for order in made}) == len(made)
    assert set(made) <= set(book(redis_url).all())
