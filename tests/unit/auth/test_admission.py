"""Admission: the connected clients, how many of each user and address, and how many logins of an address have failed."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.auth.admission import Admission, FailedLogins, PendingSessions
from headgate.auth.expiry import Expiry
from headgate.auth.identity import ANONYMOUS, Identity
from headgate.errors import LimitReached
from headgate.runtime.loop import sleep
from headgate.runtime.rates import MAX_CALLERS
from headgate.transport.peer_address import address_of


@dataclass(eq=False)
class Guest:
    """Stands for a client."""

    identity: Identity


def guest(user: str = "ana", token_id: str | None = None) -> Guest:
    return Guest(Identity(user, token_id=token_id))


def refusal(admission: Admission[Guest], user: str, address: str | None) -> tuple[str, int] | None:
    """Name and limit of the refusal, or None."""
    try:
        admission.check(user, address)
    except LimitReached as error:
        return error.parts["name"], error.parts["limit"]
    return None


def test_a_client_that_leaves_makes_room_once() -> None:
    """Leaving twice does not make room for two."""
    admission: Admission[Guest] = Admission(1, 1, Expiry(lambda clients: None))
    first, second = guest(), guest()
    admission.join(first, "192.0.2.1")
    admission.leave(first)
    admission.leave(first)
    assert refusal(admission, "ana", "192.0.2.1") is None
    admission.join(second, "192.0.2.1")
    admission.leave(first)
    assert refusal(admission, "ben", "192.0.2.1") == ("clients_per_address", 1)


def test_the_anonymous_are_no_user() -> None:
    """They share a name, not a limit."""
    admission: Admission[Guest] = Admission(1, 0, Expiry(lambda clients: None))
    admission.join(guest(ANONYMOUS), None)
    assert refusal(admission, ANONYMOUS, None) is None


def test_other_grants_leave_the_end_of_a_client_where_it_was() -> None:
    """The wall clock was set ahead since, and does not decide again; another end is by the clock of now."""
    wall_s, now_s = 1_000_000.0, 50.0
    ended: list[Guest] = []
    expiry: Expiry[Guest] = Expiry(ended.extend, lambda: wall_s, lambda: now_s)
    admission = Admission(0, 0, expiry)
    client, other = Guest(Identity("ana", expires_at=1_000_060)), Guest(Identity("ben", expires_at=1_000_060))
    for each in (client, other):
        admission.join(each, None)
    wall_s += 3600
    admission.renew(client, Identity("ana", expires_at=1_000_060, subscribe=("a",)))
    admission.renew(other, Identity("ben", expires_at=1_003_605))

    def due(at_s: float) -> list[str]:
        nonlocal now_s
        now_s = at_s
        expiry.tick()
        sleep(0)
        return [each.identity.user for each in ended]

    assert due(54.0) == []
    assert due(56.0) == ["ben"]
    assert due(109.0) == ["ben"]
    assert due(111.0) == ["ben", "ana"]
    expiry.close()


def test_a_renewed_client_is_found_by_its_new_token_only() -> None:
    """The old token may be revoked without hitting a client with a new one."""
    admission: Admission[Guest] = Admission(0, 0, Expiry(lambda clients: None))
    client = guest(token_id="old")
    admission.join(client, None)
    assert (admission.of_token("old"), admission.of_user("ana")) == ([client], [client])
    admission.renew(client, Identity("ana", token_id="new"))
    assert (admission.of_token("old"), admission.of_token("new")) == ([], [client])
    admission.leave(client)
    assert (admission.of_token("new"), admission.of_user("ana")) == ([], [])


@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from(["x", "y", None]), st.integers(0, 5))))
def test_it_counts_as_a_list_would(steps: list[tuple[str, str | None, int]]) -> None:
    """Joins, and leaves of present clients, against the naive count; nothing is kept of clients that left."""
    admission: Admission[Guest] = Admission(2, 3, Expiry(lambda clients: None))
    inside: list[tuple[Guest, str | None]] = []
    for user, address, leaver in steps:
        of_user = sum(1 for client, _ in inside if client.identity.user == user)
        at = [where for _, where in inside].count(address) if address else 0
        refused = refusal(admission, user, address)
        assert refused == (("clients_per_user", 2) if of_user >= 2 else ("clients_per_address", 3) if at >= 3 else None)
        if refused is None:
            client = guest(user, token_id=user)
            admission.join(client, address)
            inside.append((client, address))
        elif leaver < len(inside):
            admission.leave(inside.pop(leaver)[0])
    for client, _ in inside:
        admission.leave(client)
    assert not any([admission.users.own, admission.addresses.own, admission._of_user, admission._of_token, admission._address_of])


@given(st.lists(st.tuples(st.sampled_from(["open", "add", "forget"]), st.integers(0, 9), st.sampled_from(["x", "y", None]))))
def test_a_session_that_is_in_no_namespace_is_counted_once(steps: list[tuple[str, int, str | None]]) -> None:
    """Against the naive count: only new sessions are refused, and nothing is kept of sessions that joined or ended."""
    pending = PendingSessions(2)
    outside: dict[str, str | None] = {}
    for kind, number, address in steps:
        session = f"{kind}-{number}"
        at = sum(1 for where in outside.values() if where == address)
        if kind == "open":
            outside.pop(session, None)
            pending.forget(session)
            at = sum(1 for where in outside.values() if where == address)
            if address is not None and at >= 2:
                with pytest.raises(LimitReached) as caught:
                    pending.open(session, address)
                assert caught.value.parts == {"name": "unjoined_per_address", "limit": 2}
                continue
            pending.open(session, address)
            outside[session] = address
        elif kind == "add":
            pending.add(session, address)
            if address is not None:
                outside.setdefault(session, address)
        else:
            for each in (f"open-{number}", f"add-{number}"):
                outside.pop(each, None)
                pending.forget(each)
    for session in outside:
        pending.forget(session)
    assert not any([pending._at, pending._address_of])


def test_without_a_limit_any_number_may_be_outside() -> None:
    """And no client is counted."""
    pending = PendingSessions(0)
    for number in range(9):
        pending.open(f"session-{number}", "192.0.2.1")
        pending.add(f"session-{number}", "192.0.2.1")
    assert not any([pending._at, pending._address_of])


def test_limits_count_all_addresses_of_one_visitor_together() -> None:
    """For clients and for sessions that have not joined."""
    admission: Admission[Guest] = Admission(0, 2, Expiry(lambda clients: None))
    pending = PendingSessions(2)
    for number, spelt in enumerate(["2001:db8::1", "2001:DB8:0::2%eth0"]):
        address = address_of({"REMOTE_ADDR": spelt}, 0)
        admission.join(guest(), address)
        pending.open(str(number), address)
    third = address_of({"REMOTE_ADDR": "10.0.0.1", "HTTP_X_FORWARDED_FOR": "[2001:db8::3]:4711"}, 1)
    with pytest.raises(LimitReached):
        admission.check("ana", third)
    with pytest.raises(LimitReached):
        pending.open("third", third)


def looked_at(failed: FailedLogins, address: str | None, now_s: float) -> int | None:
    """None when a login would be looked at, else after how many seconds."""
    try:
        failed.check(address, now_s)
    except LimitReached as error:
        return error.retry_after_s
    return None


def test_too_many_failed_logins_close_an_address_for_a_while() -> None:
    """The refusal names the time, and that holds; others are not concerned, nor is an address without failures."""
    failed = FailedLogins(0.5, 3)
    for _ in range(3):
        assert looked_at(failed, "a", 0.0) is None
        failed.failed("a", 0.0)
    with pytest.raises(LimitReached) as caught:
        failed.check("a", 0.0)
    parts = {"name": "failed_logins", "limit": 3, "retry_after_s": 2}
    message = "limit reached: failed_logins (at most 3)"
    assert caught.value.to_wire() == {"code": "limit_reached", "message": message, "retry": True, **parts}
    assert looked_at(failed, "b", 0.0) is None
    assert looked_at(failed, None, 0.0) is None
    assert looked_at(failed, "a", 1.9) == 1
    assert looked_at(failed, "a", 2.0) is None
    failed.failed("a", 2.0)
    assert looked_at(failed, "a", 2.0) == 2


def test_failed_logins_are_remembered_of_so_many_addresses_only() -> None:
    """The address that failed longest ago is forgotten first, and nothing grows. One that is only examined is not remembered."""
    failed = FailedLogins(0.001, 1)
    for number in range(MAX_CALLERS + 10):
        failed.failed(str(number), 0.0)
        assert looked_at(failed, f"another {number}", 0.0) is None
    assert len(failed.rates._buckets) == MAX_CALLERS
    assert looked_at(failed, "9", 0.0) is None
    assert looked_at(failed, "10", 0.0) is not None


def test_without_a_limit_any_number_of_logins_may_fail() -> None:
    """And nothing is remembered."""
    failed = FailedLogins(1.0, 0)
    for _ in range(1000):
        failed.failed("a", 0.0)
    assert looked_at(failed, "a", 0.0) is None
    assert not failed.rates._buckets


def test_limits_can_be_changed_while_clients_are_in() -> None:
    """A client above a new limit stays; failed logins are counted from zero under another limit."""
    admission: Admission[Guest] = Admission(1, 2, Expiry(lambda clients: None))
    admission.join(guest(), "192.0.2.7")
    admission.apply(5, 1)
    admission.check("ana", None)
    with pytest.raises(LimitReached) as caught:
        admission.check("ben", "192.0.2.7")
    assert caught.value.parts["name"] == "clients_per_address"
    failed = FailedLogins(0.5, 1)
    failed.failed("a", 0.0)
    failed.apply(0.5, 1)
    assert looked_at(failed, "a", 0.0) == 2
    failed.apply(0.5, 2)
    assert looked_at(failed, "a", 0.0) is None
    failed.failed("a", 0.0)
    failed.failed("a", 0.0)
    assert looked_at(failed, "a", 0.0) == 2
    failed.apply(0.5, 0)
    assert looked_at(failed, "a", 0.0) is None


def fields_of(failed: FailedLogins) -> dict[str, bytes | None]:
    """Return what a process gives the others, as they read it."""
    return {name: field.encode() for name, field in failed.rates.fields(whole_row=False).items() if field is not None}


def test_failed_logins_count_at_every_process_that_hears_of_them() -> None:
    """And an address waits no longer than if all had failed at one, because it has company."""
    now_s = 0.0
    here, there = (FailedLogins(0.5, 3, lambda: now_s) for _ in range(2))
    for failed in (here, there):
        failed.rates.receive({"other": {}}, lost=False)
    for failed in (here, there):
        for _ in range(3):
            failed.failed("a", now_s)
    told = fields_of(there)
    here.rates.receive({"other": told}, lost=False)
    assert (looked_at(here, "a", now_s), looked_at(here, "b", now_s)) == (2, None)
    there.failed("b", now_s)
    there.failed("b", now_s)
    told |= fields_of(there)
    here.rates.receive({"other": told}, lost=False)
    assert looked_at(here, "b", now_s) is None
    here.failed("b", now_s)
    assert looked_at(here, "b", now_s) == 2


def test_a_unix_socket_has_no_address() -> None:
    """Nothing is counted then."""
    assert address_of({"REMOTE_ADDR": ""}, 0) is None
