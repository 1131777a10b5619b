"""Access to the console: by key, by the application's word, for how long; and the proof for an action. On a test's clock."""

from typing import Any

import pytest
from structlog.testing import capture_logs

from headgate.auth.audit import Audit
from headgate.auth.identity import Handshake, Identity
from headgate.errors import BusUnavailable, Forbidden, LimitReached, Unauthorized
from headgate.settings.settings import Settings
from headgate_server.api.console import access as module
from headgate_server.api.console.access import SESSION_S, TICKET_S, WRONG_KEYS, WRONG_KEYS_PER_S, Access, Operator
from tests.support.console_gate import ConsoleGate

KEY = "the-admin-key-of-this-test-0123456789"
ENVIRON = {"REMOTE_ADDR": "192.0.2.9", "HTTP_HOST": "gate.example"}
OWN = {**ENVIRON, "HTTP_ORIGIN": "https://gate.example", "HTTP_X_HEADGATE_CONSOLE": "1"}


class Clock:
    now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(autouse=True)
def fresh_audit(monkeypatch: pytest.MonkeyPatch) -> None:
    """An audit log that has not left out a line yet."""
    monkeypatch.setattr(module, "audit", Audit())


def access(clock: Clock, *, identify: Any = None, gate: ConsoleGate | None = None, **settings: Any) -> Access:
    ended = gate or ConsoleGate()

    def revoke(session: str, for_s: int) -> None:
        ended.revoke(token_id=session, for_s=for_s)

    return Access(Settings(**{"admin_key": KEY, **settings}), identify, ended.check_revoked, revoke, clock, clock)


def handshake(token: str | None) -> Handshake:
    return Handshake("notifications", {"console": True, "token": token}, ENVIRON)


def signed_in(console: Access) -> Operator:
    operator = console.operator(console.sign_in(KEY, ENVIRON), ENVIRON)
    assert operator is not None
    return operator


def test_the_right_key_gives_a_session_and_its_page_a_ticket(clock: Clock) -> None:
    """The ticket is an identity that sees everything, publishes nothing, and ends with the session."""
    console = access(clock, namespaces=("shop", "chat"))
    operator = signed_in(console)
    assert operator == Operator("console", "read", 1_000.0 + SESSION_S, operator.session)
    identity = console.admit(handshake(console.ticket(operator)))
    ends_s, session = 1_000.0 + SESSION_S, operator.session
    assert identity == Identity("console", ("#",), (), ends_s, session, namespaces=("shop", "chat"), admin="read")


def test_with_the_setting_those_who_sign_in_by_key_may_act(clock: Clock) -> None:
    """And their page may publish over its socket."""
    console = access(clock, console_actions=True)
    operator = signed_in(console)
    identity = console.admit(handshake(console.ticket(operator)))
    assert identity is not None
    assert (operator.may, identity.admin, identity.publish) == ("act", "act", ("#",))


@pytest.mark.parametrize("key", ["", "x", KEY[:-1], KEY + "x", KEY.upper(), "\udcff" * 40, "x" * 100_000])
def test_another_key_is_refused(clock: Clock, key: str) -> None:
    """It is in the audit log, and the key is not."""
    with capture_logs() as lines, pytest.raises(Unauthorized):
        access(clock).sign_in(key, ENVIRON)
    assert [line["event"] for line in lines] == ["login refused"]
    assert not key or key[:200] not in str(lines)


def test_an_address_with_many_wrong_keys_is_not_heard_for_a_while(clock: Clock) -> None:
    """Not with the right key either; another address is."""
    console = access(clock)
    for _ in range(WRONG_KEYS):
        with pytest.raises(Unauthorized):
            console.sign_in("wrong", ENVIRON)
    with pytest.raises(LimitReached):
        console.sign_in(KEY, ENVIRON)
    assert console.sign_in(KEY, {**ENVIRON, "REMOTE_ADDR": "192.0.2.10"})
    clock.now_s += 1 / WRONG_KEYS_PER_S
    assert console.sign_in(KEY, ENVIRON)


def test_signing_out_ends_the_session_wherever_its_cookie_is(clock: Clock) -> None:
    """At each process that hears of revocations, until it would have ended; another session of the key goes on."""
    gate = ConsoleGate()
    console, elsewhere = access(clock, gate=gate), access(clock, gate=gate)
    stolen, other = console.sign_in(KEY, ENVIRON), console.sign_in(KEY, ENVIRON)
    operator = console.operator(stolen, ENVIRON)
    assert operator is not None
    identity = console.admit(handshake(console.ticket(operator)))
    clock.now_s += 100
    console.sign_out(operator, ENVIRON)
    assert elsewhere.operator(stolen, ENVIRON) is None
    assert elsewhere.operator(other, ENVIRON) is not None
    # By that id gateways end its sockets, and let none in again.
    assert identity is not None
    assert gate.revoked == {identity.token_id: SESSION_S - 100}


def test_without_word_of_what_is_revoked_no_session_counts(clock: Clock) -> None:
    """503, to be tried again, because an ended session may be among them."""

    def not_known(identity: Identity) -> None:
        raise BusUnavailable("not read yet")

    console = Access(Settings(admin_key=KEY), None, not_known, lambda session, for_s: None, clock, clock)
    with pytest.raises(BusUnavailable):
        console.operator(console.sign_in(KEY, ENVIRON), ENVIRON)


def test_a_ticket_is_for_one_minute_and_a_session_ends_after_its_time(clock: Clock) -> None:
    """A ticket from a log or a history admits no client, and an old cookie no operator."""
    console = access(clock)
    cookie, ticket = console.sign_in(KEY, ENVIRON), console.ticket(signed_in(console))
    clock.now_s += TICKET_S
    assert console.admit(handshake(ticket)) is None
    clock.now_s += SESSION_S - TICKET_S
    assert console.operator(cookie, ENVIRON) is None


def test_a_session_holds_at_every_process_with_the_key_and_nowhere_else(clock: Clock) -> None:
    """It is signed with a key derived from the admin key."""
    cookie = access(clock).sign_in(KEY, ENVIRON)
    assert access(clock).operator(cookie, ENVIRON) is not None
    assert access(clock, admin_key="another-admin-key-0123456789-abcdef").operator(cookie, ENVIRON) is None


def test_a_session_is_no_ticket_and_a_ticket_no_session(clock: Clock) -> None:
    """Each is signed for its own use."""
    console = access(clock)
    cookie = console.sign_in(KEY, ENVIRON)
    operator = console.operator(cookie, ENVIRON)
    assert operator is not None
    assert console.admit(handshake(cookie)) is None
    assert console.operator(console.ticket(operator), ENVIRON) is None


@pytest.mark.parametrize("shown", [None, "", "x", "x.y", "W10.x", "é", "x" * 10_000])
def test_what_we_have_not_signed_lets_nobody_in(clock: Clock, shown: str | None) -> None:
    """As a cookie or as a ticket."""
    console = access(clock)
    assert console.operator(shown, ENVIRON) is None
    assert console.admit(handshake(shown)) is None


def test_an_application_lets_in_whom_it_marks(clock: Clock) -> None:
    """Its own authenticator is asked, with the request's cookie, and again at the CONNECT, so there is no ticket.

    A user without the mark is unknown here.
    """
    gate = ConsoleGate(identities={"ann": Identity("ann", admin="act"), "ben": Identity("ben", ("#",), ("#",))})
    for admin_key in (None, KEY):
        console = access(clock, identify=gate.identify, admin_key=admin_key)
        assert console.operator(None, {**ENVIRON, "HTTP_COOKIE": "app=ann"}) == Operator("ann", "act")
        assert console.operator(None, {**ENVIRON, "HTTP_COOKIE": "app=ben"}) is None
        assert console.operator(None, ENVIRON) is None
        assert console.ticket(Operator("ann", "act")) is None
        assert console.takes_key is (admin_key is not None)


@pytest.mark.parametrize("cookie", ["", "headgate_console=x", "headgate_console=x; "])
def test_an_application_is_not_asked_about_nobody(clock: Clock, cookie: str) -> None:
    """It would be a failed login of that address, for each request of a page to sign in."""

    def asked(handshake: Handshake) -> Identity:
        raise AssertionError

    assert access(clock, identify=asked).operator(None, {**ENVIRON, "HTTP_COOKIE": cookie}) is None


@pytest.mark.parametrize(
    "change",
    [
        *({"HTTP_ORIGIN": origin} for origin in ("https://evil.example", "null", "", "https://gate.example.evil.example")),
        *({"HTTP_ORIGIN": origin} for origin in ("https://gate.example:444", "file://gate.example")),
        {"HTTP_X_HEADGATE_CONSOLE": ""},
        {"HTTP_HOST": ""},
    ],
)
def test_an_action_from_another_page_is_refused(clock: Clock, change: dict[str, str]) -> None:
    """One that cannot say that it is from ours, too; it is in the audit log."""
    with capture_logs() as lines, pytest.raises(Forbidden):
        access(clock, console_actions=True).check_act(Operator("console", "act"), {**OWN, **change}, "publish")
    assert [(line["event"], line["by"], line["outcome"], line["address"]) for line in lines] == [
        ("publish", "console", "forbidden", "192.0.2.9")
    ]


def test_an_action_from_our_page_is_taken_behind_a_proxy_as_well(clock: Clock) -> None:
    """Where the host is the one that the proxy forwards."""
    operator = Operator("console", "act")
    access(clock).check_act(operator, OWN, "publish")
    behind = {**OWN, "HTTP_HOST": "10.0.0.7:8000", "HTTP_X_FORWARDED_HOST": "gate.example"}
    access(clock, proxies=1).check_act(operator, behind, "publish")
    for spelling in (
        {"HTTP_HOST": "Gate.example.:443"},
        {"HTTP_ORIGIN": "https://gate.example:8443", "HTTP_X_FORWARDED_PORT": "8443"},
        {"HTTP_ORIGIN": "https://gate.example:8443", "HTTP_HOST": "10.0.0.7", "HTTP_FORWARDED": 'host="gate.example:8443"'},
    ):
        access(clock, proxies=1).check_act(operator, {**OWN, **spelling}, "publish")
    with pytest.raises(Forbidden):
        access(clock).check_act(operator, behind, "publish")
