"""The fence: a question whose answer proves that everything before it has arrived."""

from headgate.delivery.bus.fence import Fence


def test_each_fence_has_a_token_of_its_own_across_connections() -> None:
    """A late answer must not be taken for one of the new connection."""
    fence = Fence()
    fence.begin(5, frozenset(), expedited=False)
    before = fence.token
    fence.reset()
    fence.begin(5, frozenset(), expedited=False)
    assert fence.token != before


def test_a_fence_begun_between_two_ticks_is_not_late_at_the_next() -> None:
    """The answer to one that began at a tick is late then."""
    for expedited in (True, False):
        fence = Fence()
        fence.begin(5, frozenset(), expedited=expedited)
        fence.tick()
        assert fence.missed == (not expedited)
