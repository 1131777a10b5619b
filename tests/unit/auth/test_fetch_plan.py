"""The plan of fetching an issuer's keys: on a clock of the test's own, without chance."""

from hypothesis import given
from hypothesis import strategies as st

from headgate.auth.fetch_plan import (
    AGAIN_S,
    FIRST_RETRY_S,
    KEPT_S,
    LAST_RETRY_S,
    MAX_ASKED,
    MAX_KEY_ID_CHARACTERS,
    REFRESH_S,
    FetchPlan,
)


def longest(low: float, high: float) -> float:
    return high


def plan() -> FetchPlan:
    return FetchPlan(between=longest)


def brought(now_s: float = 0.0) -> FetchPlan:
    """A plan with a first fetch at `now_s` that brought a set."""
    made = plan()
    made.begin(now_s)
    made.brought(now_s)
    return made


def test_an_absent_key_may_be_asked_for_again_later() -> None:
    """The issuer may have published it since."""
    made = plan()
    made.may_bring("new", 0.0)
    made.begin(0.0)
    made.brought(1.0)
    assert not made.may_bring("new", 1.0 + AGAIN_S - 0.1)
    assert made.may_bring("new", 1.0 + AGAIN_S)


def test_a_key_that_was_asked_for_stays_asked_for_when_the_fetch_fails() -> None:
    """The next fetch that succeeds decides about it."""
    made = plan()
    made.may_bring("new", 0.0)
    made.begin(0.0)
    made.failed(1.0)
    made.begin(2.0)
    made.brought(3.0)
    assert not made.may_bring("new", 3.0)


def test_a_key_id_that_no_set_can_hold_is_never_on_its_way() -> None:
    """It is longer than a key id may be."""
    assert plan().may_bring("k" * MAX_KEY_ID_CHARACTERS, 0.0)
    assert not plan().may_bring("k" * (MAX_KEY_ID_CHARACTERS + 1), 0.0)


def test_a_flood_of_made_up_key_ids_is_not_remembered_without_end() -> None:
    """Those beyond the bound are asked to try again, and are forgotten."""
    made = plan()
    assert all(made.may_bring(f"made-up-{number}", 0.0) for number in range(2 * MAX_ASKED))
    assert len(made._asked) == MAX_ASKED
    made.begin(0.0)
    made.brought(0.0)
    assert not made.may_bring("made-up-0", 0.0)
    assert made.may_bring(f"made-up-{MAX_ASKED}", 0.0)


def test_known_keys_stay_active_while_fetches_fail_for_a_day_at_most() -> None:
    """After that it is unknown whether the issuer has withdrawn them."""
    made = brought(0.0)
    states, dropped = [], []
    for now_s in (REFRESH_S, KEPT_S, KEPT_S + 1, KEPT_S + 2):
        made.begin(now_s)
        dropped.append(made.failed(now_s))
        states.append((made.has_set, made.is_failing))
    assert states == [(True, True), (True, True), (False, True), (False, True)]
    assert dropped == [False, False, True, False]


def test_a_gateway_that_slept_for_a_day_drops_its_keys_at_the_first_fetch_that_fails() -> None:
    """A suspended machine makes no fetch."""
    made = brought(0.0)
    assert made.failed(KEPT_S + 1)
    assert not made.has_set


def test_retries_become_rarer_up_to_a_bound_and_begin_anew_after_a_success() -> None:
    """An issuer in trouble is not flooded."""
    made = plan()
    waits = [made.next_retry_s() for _ in range(8)]
    assert waits == [FIRST_RETRY_S, 2.0, 4.0, 8.0, 16.0, 32.0, LAST_RETRY_S, LAST_RETRY_S]
    made.begin(0.0)
    made.brought(0.0)
    assert made.next_retry_s() == FIRST_RETRY_S


def test_asking_brings_about_one_fetch_each_again_s_at_most() -> None:
    """Counted from the beginning of the fetch before it; without requests the set is refreshed."""
    made = plan()
    made.begin(100.0)
    made.brought(103.0)
    assert made.earliest_s(103.0) == AGAIN_S - 3.0
    assert made.earliest_s(200.0) == 0.0
    assert made.refresh_s() == REFRESH_S


def test_gateways_that_start_together_do_not_fetch_together() -> None:
    """Each wait is drawn from a range."""
    drawn: list[tuple[float, float]] = []

    def note(low: float, high: float) -> float:
        drawn.append((low, high))
        return low

    made = FetchPlan(between=note)
    assert (made.next_retry_s(), made.refresh_s()) == (FIRST_RETRY_S * 0.5, REFRESH_S * 0.8)
    assert drawn == [(0.5, 1.0), (0.8, 1.0)]


@given(st.lists(st.tuples(st.sampled_from(["ask", "begin", "brought", "failed"]), st.sampled_from("xy"), st.floats(0, 7))))
def test_no_key_is_called_absent_before_a_later_fetch_brought_a_set(steps: list[tuple[str, str, float]]) -> None:
    """Against a naive history of questions and fetches."""
    made, now_s = plan(), 0.0
    open_since: dict[str, float] = {}  # key id → the first question that no such fetch has answered
    began_s: float | None = None
    for kind, key_id, passed_s in steps:
        now_s += passed_s + 0.001
        if kind == "ask":
            if not made.may_bring(key_id, now_s):
                assert key_id not in open_since
            else:
                open_since.setdefault(key_id, now_s)
        elif kind == "begin" and began_s is None:
            made.begin(now_s)
            began_s = now_s
        elif kind in ("brought", "failed") and began_s is not None:
            if kind == "brought":
                made.brought(now_s)
                open_since = {name: at_s for name, at_s in open_since.items() if at_s > began_s}
            else:
                made.failed(now_s)
            began_s = None
