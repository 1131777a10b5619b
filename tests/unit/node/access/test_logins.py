"""Logins: authenticator, revocations and an address's failures decide about a handshake. On a clock of the test's own."""

import json
from asyncio import CancelledError
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import gevent
import gevent.event
import jwt
import pytest
from prometheus_client import REGISTRY
from structlog.testing import capture_logs

from headgate.auth.api_keys import ApiKeys, NewKey, new_key
from headgate.auth.identity import ANONYMOUS, Handshake, Identity
from headgate.auth.keys import configured_keys
from headgate.auth.regrants import note_regrant
from headgate.errors import (
    BusUnavailable,
    HeadgateError,
    InvalidPattern,
    LimitReached,
    Unauthorized,
    UnauthorizedReason,
    UnknownNamespace,
)
from headgate.node.access import logins as module
from headgate.node.access.logins import Logins
from headgate.settings.settings import Settings
from tests.support.held_clock import HeldClock
from tests.support.token_keys import OTHER_SECRET, SECRET

SETTINGS = Settings(namespaces=("notifications", "other"), failed_logins_burst=2)
NOW_S = 1_800_000_000.0


def nobody_is_revoked(identity: Identity) -> None:
    """The revocations of a quiet day."""


def logins(
    authenticator: Callable[[Handshake], Identity | None] | None,
    *,
    check_revoked: Callable[[Identity], None] = nobody_is_revoked,
    clock: HeldClock | None = None,
    settings: Settings = SETTINGS,
) -> Logins:
    return Logins(settings, authenticator, check_revoked, clock or HeldClock(100.0), lambda: NOW_S)


def shown(token: str = "secret-token", namespace: str = "notifications", address: str = "192.0.2.9") -> Handshake:
    return Handshake(namespace, {"token": token}, {"REMOTE_ADDR": address})


def refusal(tried: Logins, handshake: Handshake) -> HeadgateError:
    with pytest.raises(HeadgateError) as caught:
        tried.identify(handshake)
    return caught.value


@pytest.mark.parametrize(
    ("identity", "namespace", "reason"),
    [
        (None, "notifications", UnauthorizedReason.NOT_ACCEPTED),
        (Identity("ana"), "other", UnauthorizedReason.WRONG_NAMESPACE),
        (Identity("ana", namespaces=("other",)), "notifications", UnauthorizedReason.WRONG_NAMESPACE),
        (Identity("ana", expires_at=NOW_S), "notifications", UnauthorizedReason.EXPIRED),
    ],
)
def test_who_may_not_enter_is_told_the_reason(identity: Identity | None, namespace: str, reason: UnauthorizedReason) -> None:
    """None is the authenticator's own refusal."""
    error = refusal(logins(lambda _: identity), shown(namespace=namespace))
    assert isinstance(error, Unauthorized)
    assert error.reason is reason


def test_a_revoked_identity_is_refused_after_the_authenticator_took_it() -> None:
    """The watch on revocations has the last word."""

    def check(identity: Identity) -> None:
        raise Unauthorized(UnauthorizedReason.REVOKED)

    assert refusal(logins(lambda _: Identity("ana"), check_revoked=check), shown()).parts["reason"] == "revoked"


@pytest.mark.parametrize("fault", [RuntimeError, SystemExit, CancelledError])
def test_an_authenticator_that_fails_is_logged_without_the_token_and_is_no_failed_login(fault: type[BaseException]) -> None:
    """It is a fault of the gateway's side, and the address is not closed for it."""

    def broken(handshake: Handshake) -> Identity:
        raise fault(f"cannot read {handshake.token}")

    tried = logins(broken)
    with capture_logs() as lines:
        errors = [refusal(tried, shown()) for _ in range(5)]
    assert [error.parts["reason"] for error in errors] == ["authenticator_failed"] * 5
    assert all(error.retry for error in errors), "a page tries again when the fault is over"
    (line,) = [line for line in lines if line["event"] == "authenticator failed"]
    assert fault.__name__ in line["error"]
    assert "test_logins.py" in line["where"]
    assert "secret-token" not in str(lines)


def test_the_sentence_of_an_application_is_in_the_audit_log_without_the_token() -> None:
    """The reason is a word of the list; the sentence comes beside it."""

    def refuse(handshake: Handshake) -> Identity:
        raise Unauthorized(f"no trial for {handshake.token}")

    with capture_logs() as lines:
        refusal(logins(refuse), shown(address="192.0.2.77"))
    (line,) = [line for line in lines if line["event"] == "login refused"]
    assert (line["reason"], line["detail"]) == ("not_accepted", "no trial for (hidden)")


def test_a_wrong_grant_of_an_application_is_in_the_audit_log() -> None:
    """Its developer reads there which one it is."""
    with capture_logs() as lines, pytest.raises(InvalidPattern):
        logins(lambda handshake: Identity("ana", subscribe=("orders/#",))).identify(shown(address="192.0.2.78"))
    (line,) = [line for line in lines if line["event"] == "login refused"]
    assert "'orders/#'" in line["detail"]


def test_an_address_of_which_too_many_logins_fail_is_refused_without_a_look() -> None:
    """A good token from there waits as well; another address, and the same one later, does not."""
    clock = HeldClock(100.0)
    asked: list[str | None] = []

    def authenticator(handshake: Handshake) -> Identity | None:
        asked.append(handshake.token)
        return Identity("ana") if handshake.token == "good" else None

    tried = logins(authenticator, clock=clock)
    for _ in range(2):
        refusal(tried, shown("bad"))
    assert isinstance(refusal(tried, shown("good")), LimitReached)
    assert asked == ["bad", "bad"]
    assert tried.identify(shown("good", address="198.51.100.1")).user == "ana"
    clock.now_s += 25
    assert tried.identify(shown("good")).user == "ana"


@pytest.mark.parametrize(("token", "outcomes"), [("bad", [Unauthorized] * 2 + [LimitReached] * 3), ("good", [Identity] * 5)])
def test_logins_at_the_same_time_do_not_pass_the_limit_of_an_address(token: str, outcomes: list[type]) -> None:
    """The authenticator waits. Accepted logins only take turns, however many there are."""
    go_on = gevent.event.Event()
    asked: list[int] = []

    def authenticator(handshake: Handshake) -> Identity | None:
        asked.append(1)
        go_on.wait()
        return Identity("ana") if handshake.token == "good" else None

    tried = logins(authenticator)

    def outcome() -> object:
        try:
            return tried.identify(shown(token))
        except HeadgateError as error:
            return error

    tries = [gevent.spawn(outcome) for _ in outcomes]
    killed = gevent.spawn(outcome)
    gevent.idle()
    assert len(asked) == 2
    killed.kill()
    go_on.set()
    gevent.joinall(tries)
    assert [type(each.value) for each in tries] == outcomes
    assert not tried._under_way


@pytest.mark.parametrize("again", [False, True], ids=["a connection", "over HTTP"])
@pytest.mark.parametrize("is_replacing", [False, True], ids=["from the start", "in place of tokens"])
def test_an_authenticator_without_an_answer_has_failed_and_so_have_the_logins_that_wait_for_it(
    is_replacing: bool, again: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two of an address are under way, and the third waits. Each is answered and counted, and none counts as a guess."""
    monkeypatch.setattr(module, "LOGIN_S", 0.01)
    late = REGISTRY.get_sample_value("headgate_logins_late_total") or 0
    answers = gevent.event.Event()

    def authenticator(handshake: Handshake) -> Identity:
        answers.wait()
        return Identity("ana")

    tried = logins(None if is_replacing else authenticator, settings=replace(SETTINGS, token_secret=SECRET.decode()))
    tried.authenticator = authenticator

    def outcome() -> str:
        with pytest.raises(Unauthorized) as caught:
            tried.identify(shown(), again=again)
        return caught.value.reason

    tries = [gevent.spawn(outcome) for _ in range(3)]
    gevent.joinall(tries)
    assert [each.value for each in tries] == ["authenticator_failed"] * 3
    assert REGISTRY.get_sample_value("headgate_logins_late_total") == late + 3
    answers.set()
    assert tried.identify(shown()).user == "ana"
    assert not tried._under_way


def test_a_refusal_that_only_takes_a_while_is_no_failed_login() -> None:
    """While Redis is unreachable, no address is closed."""

    def away(identity: Identity) -> None:
        raise BusUnavailable("not read yet")

    tried = logins(lambda _: Identity("ana"), check_revoked=away)
    assert all(isinstance(refusal(tried, shown()), BusUnavailable) for _ in range(5))


def test_development_closes_no_address() -> None:
    """There an address does not identify a user."""
    tried = logins(lambda _: None, settings=Settings(dev=True, failed_logins_burst=1))
    assert all(isinstance(refusal(tried, shown()), Unauthorized) for _ in range(5))


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (lambda: Identity("ana", expires_at=datetime.now()), "expected seconds since 1970, got datetime"),  # type: ignore[arg-type]
        (lambda: Identity("ana", expires_at="1999999999"), "expected seconds since 1970, got str"),  # type: ignore[arg-type]
        (lambda: Identity("ana", expires_at=float("nan")), "expected seconds since 1970, got float nan"),
        (lambda: Identity("ana", subscribe="ab"), "expected a list or tuple of patterns, got str 'ab'"),  # type: ignore[arg-type]
        (lambda: Identity("ana", token_id=12), "Identity(token_id=…): expected text, got int"),  # type: ignore[arg-type]
        (lambda: {"user": "ana"}, "the authenticator returned dict; expected an Identity or None"),
        (lambda: True, "the authenticator returned bool; expected an Identity or None"),
    ],
)
def test_an_authenticator_that_returns_no_identity_lets_nobody_in_and_the_log_says_why(answer: Any, told: str) -> None:
    """Its client had no answer, and an invalid end left a client that counted for ever."""
    with capture_logs() as lines:
        error = refusal(logins(lambda _: answer()), shown())
    assert error.parts["reason"] == "authenticator_failed"
    (line,) = [line for line in lines if line["event"] == "authenticator failed"]
    assert told in line["error"]


# Namespaces ----------------------------------------------------------------------------------------------------------------

# The namespaces that an identity names → those that it may enter, where `notifications` is the first.
ENTERED = [
    (None, ["notifications"]),
    (["notifications"], ["notifications"]),
    (["other"], ["other"]),
    (["notifications", "/other"], ["notifications", "other"]),
    (["elsewhere"], []),
    ([], []),
]


def entered(tried: Logins, token: str | None = "shown") -> list[str]:
    """The namespaces that let a token in; the others have the reason that they should."""
    found = {name: answer(tried, token, name) for name in ("notifications", "other")}
    assert set(found.values()) <= {"ana", ANONYMOUS, "wrong_namespace"}
    return [name for name, told in found.items() if told != "wrong_namespace"]


def with_tokens(**settings: Any) -> Logins:
    """Logins without an application's authenticator: tokens decide."""
    read = Settings.read({"HEADGATE_NAMESPACES": "notifications,other", "HEADGATE_TOKEN_SECRET": SECRET.decode(), **settings})
    return logins(None, settings=read)


def minted(key_id: str | None = None, secret: bytes = SECRET, **claims: Any) -> str:
    """A token that lives as long as this code."""
    body = {"sub": "ana", "aud": "headgate", "exp": 4_000_000_000, **claims}
    return jwt.encode(body, secret, "HS256", headers={"kid": key_id} if key_id else None)


@pytest.mark.parametrize(("names", "opens"), ENTERED)
def test_an_identity_opens_the_namespaces_that_it_names(names: list[str] | None, opens: list[str]) -> None:
    """Whether an authenticator made it or a token did."""
    identity = Identity("ana", namespaces=tuple(names) if names is not None else None)
    assert entered(logins(lambda _: identity)) == opens
    assert entered(with_tokens(), minted(namespaces=names)) == opens


def test_the_anonymous_enter_the_first_namespace_or_those_that_are_configured() -> None:
    """With the configured patterns, and no topics of a user."""
    anonymous = {"HEADGATE_ANONYMOUS_SUBSCRIBE": "news.#"}
    assert entered(with_tokens(**anonymous), None) == ["notifications"]
    assert entered(with_tokens(**anonymous, HEADGATE_ANONYMOUS_NAMESPACES="other"), None) == ["other"]
    identity = with_tokens(**anonymous).identify(Handshake("notifications", {}, {}))
    assert (identity.user, identity.subscribe, identity.publish) == (ANONYMOUS, ("news.#",), ())


@pytest.mark.parametrize("spelt", ["/other", "//other", "other/", "OTHER", "other\0", ""])
def test_another_spelling_of_a_namespace_opens_nothing(spelt: str) -> None:
    """The authorized name is the one that is read and written."""
    error = refusal(logins(lambda _: Identity("ana")), shown(namespace=spelt))
    if spelt == "/other":
        assert isinstance(error, Unauthorized)
    else:
        assert isinstance(error, UnknownNamespace)


# A file of keys ------------------------------------------------------------------------------------------------------------


def test_keys_are_read_anew_and_a_fault_in_the_file_changes_nothing(tmp_path: Path) -> None:
    """New tokens follow, old ones are refused; the fault is reported without any part of a key."""
    file = tmp_path / "keys.json"

    def write(**secrets: str) -> None:
        file.write_text(json.dumps({name: {"alg": "HS256", "key": secret} for name, secret in secrets.items()}))

    def answers() -> list[str]:
        return [answer(tried, token) for token in (old, new)]

    old, new = minted("old"), minted("new", OTHER_SECRET)
    write(old=SECRET.decode())
    tried = logins(None, settings=Settings.read({"HEADGATE_TOKEN_KEYS": str(file)}))
    assert answers() == ["ana", "unknown_key"]
    write(new=OTHER_SECRET.decode())
    with capture_logs() as lines:
        tried.apply(tried._settings)
        assert answers() == ["unknown_key", "ana"]
        write(new="short and secret")
        tried.apply(tried._settings)
    assert answers() == ["unknown_key", "ana"]
    told = [line for line in lines if line["event"].startswith("token keys")]
    assert [line["event"] for line in told] == ["token keys reloaded", "token keys not reloaded"]
    assert "at least 32 bytes" in str(told[1])
    assert "short and secret" not in str(told)


def answer(tried: Logins, token: str | None, namespace: str = "notifications") -> str:
    """The user of a token, or the reason of its refusal."""
    try:
        return tried.identify(Handshake(namespace, {"token": token}, {})).user
    except Unauthorized as error:
        return error.reason.value


def test_without_tokens_there_are_no_keys_to_read() -> None:
    """An application's authenticator has its own."""
    with capture_logs() as lines:
        logins(lambda _: Identity("ana")).apply(Settings())
    assert lines == []


def test_an_unknown_key_may_be_on_its_way_where_an_issuer_is_configured() -> None:
    """The client is asked to try again; reading the keys again asks the issuer, too."""
    settings = Settings.read({"HEADGATE_TOKEN_JWKS_URL": "https://login.example.com/jwks.json"})
    tried = logins(None, settings=settings)
    error = refusal(tried, Handshake("notifications", {"token": minted()}, {}))
    assert (error.parts["reason"], error.retry) == ("keys_pending", True)
    assert tried._jwks is not None
    assert tried._jwks._wanted.is_set()
    tried._jwks._wanted.clear()
    tried.apply(tried._settings)
    assert tried._jwks._wanted.is_set()
    tried.close()


class FetchedKeys:
    """An issuer's keys, which are never fetched; the calls are written down."""

    def __init__(self, url: str, on_keys: object) -> None:
        self.calls: list[str] = []

    def may_bring(self, key_id: str) -> bool:
        return False

    def start(self) -> None:
        self.calls.append("start")

    def refresh(self) -> None:
        self.calls.append("refresh")

    def close(self) -> None:
        self.calls.append("close")


@pytest.mark.parametrize(("own", "calls"), [(False, ["start", "refresh", "close"]), (True, ["refresh", "close"])])
def test_an_issuers_keys_are_fetched_where_tokens_decide(monkeypatch: pytest.MonkeyPatch, own: bool, calls: list[str]) -> None:
    """An application may set its own authenticator in between; then the issuer is not asked."""
    monkeypatch.setattr(module, "Jwks", FetchedKeys)
    tried = Logins(Settings(token_jwks_url="https://login.example.com/keys"), None, lambda identity: None)
    if own:
        tried.authenticator = lambda handshake: Identity("ana")
    tried.start()
    tried.apply(tried._settings)
    tried.close()
    assert isinstance(tried._jwks, FetchedKeys)
    assert tried._jwks.calls == calls


@pytest.mark.parametrize("has_set", [False, True])
def test_made_up_key_ids_are_failed_logins_once_a_set_of_keys_is_there(has_set: bool) -> None:
    """Each could be a new key of the issuer's; before there is any set, every key is."""
    settings = Settings(token_jwks_url="https://login.example.com/keys", failed_logins_burst=5)
    tried = Logins(settings, None, nobody_is_revoked, lambda: 0.0, lambda: NOW_S)
    assert tried._jwks is not None
    tried._jwks.has_set = has_set
    claims = {"sub": "ana", "aud": "headgate", "exp": NOW_S + 60}
    errors = [refusal(tried, shown(jwt.encode(claims, SECRET, headers={"kid": f"made-up-{number}"}))) for number in range(7)]
    pending = [isinstance(each, Unauthorized) and each.reason is UnauthorizedReason.KEYS_PENDING for each in errors]
    assert pending == [True] * 5 + [not has_set] * 2
    assert isinstance(errors[-1], LimitReached) is has_set
    tried.close()


# A caller that comes again with its token --------------------------------------------------------------------------------


def signed(**claims: Any) -> str:
    """Return a token of the configured secret."""
    return jwt.encode({"sub": "ana", "aud": "headgate", "exp": NOW_S + 60, **claims}, SECRET)


def test_a_token_that_comes_again_is_verified_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """In each request that says so; a CONNECT verifies it as ever."""
    monkeypatch.setattr("headgate.auth.tokens.time.time", lambda: NOW_S)
    of_tokens = logins(None, settings=replace(SETTINGS, token_secret=SECRET.decode()))
    verified = 0
    assert of_tokens._tokens is not None
    verify = of_tokens._tokens.verify

    def counted(token: object) -> Identity:
        nonlocal verified
        verified += 1
        return verify(token)

    monkeypatch.setattr(of_tokens._tokens, "verify", counted)
    first, again = (of_tokens.identify(shown(signed()), again=True) for _ in range(2))
    assert (first, first.user, verified) == (again, "ana", 1)
    assert of_tokens.identify(shown(signed())) == first
    assert verified == 2
    for _ in range(2):
        with pytest.raises(Unauthorized):
            of_tokens.identify(shown(signed()[:-2]), again=True)
    assert verified == 4


@pytest.mark.parametrize("is_kept", [False, True], ids=["another handshake each time", "one handshake"])
def test_all_that_can_change_about_a_token_is_looked_at_each_time(monkeypatch: pytest.MonkeyPatch, is_kept: bool) -> None:
    """Revocation, expiry, the namespace, and whether its key is still one of ours. A connection shows one handshake with each
    request, and its token is looked up once.
    """
    now_s = NOW_S
    revoked: list[str] = []

    def check(identity: Identity) -> None:
        if identity.user in revoked:
            raise Unauthorized(UnauthorizedReason.REVOKED)

    monkeypatch.setattr("headgate.auth.tokens.time.time", lambda: now_s)
    settings = replace(SETTINGS, token_secret=SECRET.decode(), failed_logins_burst=100)
    of_tokens = Logins(settings, None, check, HeldClock(100.0), lambda: now_s)
    looked_up: list[str] = []
    known = of_tokens._proven.get

    def look_up(token: str, keys: object) -> Identity | None:
        looked_up.append(token)
        return known(token, keys)

    monkeypatch.setattr(of_tokens._proven, "get", look_up)
    handshake = shown(signed())

    def refusal(again: Handshake | None = None) -> str | None:
        tried = again or (handshake if is_kept else shown(signed()))
        at_once = of_tokens.identified_at_once(tried)
        try:
            assert of_tokens.identify(tried, again=True) == (at_once or of_tokens.identified_at_once(tried))
        except Unauthorized as error:
            assert at_once is None
            return error.reason.value
        return None

    assert handshake.kept() is None
    assert (refusal(), refusal(), len(looked_up)) == (None, None, 1 if is_kept else 2)
    assert handshake.kept() == (of_tokens.identify(shown(signed())) if is_kept else None)
    assert "secret" not in repr(handshake)
    assert refusal(shown(signed(), "other")) == "wrong_namespace"
    revoked.append("ana")
    assert refusal() == "revoked"
    revoked.clear()
    assert refusal() is None
    assert of_tokens._tokens is not None
    of_tokens._tokens.configure(configured_keys(replace(SETTINGS, token_secret=OTHER_SECRET.decode())))
    assert refusal() == "bad_signature"
    of_tokens._tokens.configure(configured_keys(settings))
    assert refusal() is None
    now_s += 60 + settings.token_leeway_s
    assert refusal() == "expired"


def test_a_handshake_that_has_proved_its_token_is_no_login_until_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Failures at its address do not stop it. Once it is revoked, its own requests are failed logins, which count."""
    monkeypatch.setattr("headgate.auth.tokens.time.time", lambda: NOW_S)
    revoked: list[str] = []

    def check(identity: Identity) -> None:
        if identity.user in revoked:
            raise Unauthorized(UnauthorizedReason.REVOKED)

    clock = HeldClock(100.0)
    settings = replace(SETTINGS, token_secret=SECRET.decode(), failed_logins_burst=2)
    of_tokens = Logins(settings, None, check, clock, lambda: NOW_S)
    handshake = shown(signed())

    def outcome(of: Handshake) -> type:
        try:
            return type(of_tokens.identify(of, again=True))
        except (Unauthorized, LimitReached) as error:
            return type(error)

    assert outcome(handshake) is Identity
    assert [outcome(shown("bad")) for _ in range(3)] == [Unauthorized, Unauthorized, LimitReached]
    assert (outcome(handshake), outcome(shown(signed()))) == (Identity, LimitReached)
    clock.now_s += 1000
    revoked.append("ana")
    assert [outcome(handshake) for _ in range(3)] == [Unauthorized, Unauthorized, LimitReached]


def test_an_application_is_asked_each_time() -> None:
    """No other part can know whether the application still knows the caller."""
    answers = iter([Identity("ana"), None])
    of_application = logins(lambda handshake: next(answers))
    handshake = shown()
    assert of_application.identify(handshake, again=True).user == "ana"
    assert handshake.kept() is None
    with pytest.raises(Unauthorized):
        of_application.identify(handshake, again=True)


def test_a_page_of_the_console_is_whom_the_console_says() -> None:
    """The application is not asked; one that the console does not know is refused, and so is it where there is no console."""
    asked: list[Handshake] = []

    def application(handshake: Handshake) -> Identity | None:
        asked.append(handshake)
        return None

    tried = logins(application)
    page = Handshake("notifications", {"console": True, "token": "ticket"}, {})
    assert refusal(tried, page).code == "unauthorized"
    assert len(asked) == 1
    tried.console = lambda handshake: Identity("ann", ("#",), admin="read") if handshake.token == "ticket" else None
    assert tried.identify(page).admin == "read"
    assert refusal(tried, Handshake("notifications", {"console": True, "token": "another"}, {})).code == "unauthorized"
    assert len(asked) == 1


def test_a_ticket_of_the_console_is_looked_at_each_time() -> None:
    """It ends before the identity that it proves, and proves nothing outside the console."""
    tried = with_tokens()
    page = Handshake("notifications", {"console": True, "token": "ticket"}, {})
    tried.console = lambda _: Identity("ann", ("#",), admin="act")
    assert tried.identify(page, again=True).admin == "act"
    with pytest.raises(Unauthorized):
        tried.identify(shown("ticket"), again=True)
    tried.console = lambda _: None
    with pytest.raises(Unauthorized):
        tried.identify(page, again=True)


@pytest.mark.parametrize("mark", [1, "true", "1", None, {}, [True]])
def test_a_page_that_is_not_clearly_of_the_console_is_not(mark: object) -> None:
    """The application decides."""
    tried = logins(lambda handshake: Identity("ben"))
    tried.console = lambda handshake: Identity("ann", admin="act")
    assert tried.identify(Handshake("notifications", {"console": mark}, {})).user == "ben"


# API keys ------------------------------------------------------------------------------------------------------------------


def with_keys(*keys: NewKey, admin_key: str | None = None, settings: Settings = SETTINGS) -> Logins:
    """Logins of an application with an authenticator that takes any token."""
    stored = {key.stored.id: key.stored for key in keys}
    clock = HeldClock(100.0)
    found = ApiKeys(stored.get, admin_key, clock, lambda: NOW_S)
    return Logins(settings, lambda _: Identity("ana"), nobody_is_revoked, clock, lambda: NOW_S, found)


def test_an_api_key_counts_over_http_and_on_no_connection() -> None:
    """An application's authenticator is not shown one over HTTP; a socket has users only."""
    key = new_key("billing", ["clients"])
    tried = with_keys(key)
    assert tried.identify(shown(key.text), again=True).scopes == ("clients",)
    assert tried.identify(shown("some-token"), again=True).user == "ana"
    assert tried.identify(shown(key.text)).scopes is None
    of_user, of_key = shown("some-token"), shown(key.text)
    assert [tried.identified_at_once(each) for each in (of_user, of_key)] == [None, None]
    assert tried.identify(of_user, again=True) != tried.identify(of_key, again=True) == tried.identified_at_once(of_key)
    assert tried.identified_at_once(of_user) is None  # the application is asked each time, and may wait


def test_a_key_counts_only_while_it_is_known_what_is_revoked_and_the_admin_key_needs_no_redis() -> None:
    """A failover may have brought a revoked key back."""
    key, admin_key = new_key("billing", ["clients"]), "an-admin-key-of-forty-characters-3141592"

    def check(identity: Identity) -> None:
        raise BusUnavailable("the gateway has not read the revocations yet")

    keys = ApiKeys({key.stored.id: key.stored}.get, admin_key, lambda: 0.0, lambda: NOW_S)
    tried, handshake = Logins(SETTINGS, lambda _: None, check, lambda: 0.0, lambda: NOW_S, keys), shown(key.text)
    with pytest.raises(BusUnavailable):
        tried.identify(handshake, again=True)
    assert keys.known(handshake) is not None
    assert tried.identified_at_once(handshake) is None
    assert tried.identify(shown(admin_key), again=True).scopes == ("admin",)


@pytest.mark.parametrize("admin_key", [None, "an-admin-key-of-forty-characters-3141592"])
def test_wrong_keys_are_throttled_by_address_and_are_in_no_log(admin_key: str | None) -> None:
    """As failed logins are; other addresses are not. The log says that one was refused, and nothing of the key."""
    key = new_key("billing", ["clients"]).text
    tried = with_keys(admin_key=admin_key)
    near = "203.0.113.1" if admin_key else "203.0.113.2"  # the audit log limits the lines of each address
    with capture_logs() as lines:
        for _ in range(2):
            with pytest.raises(Unauthorized):
                tried.identify(shown(key, address=f"{near}1"), again=True)
        with pytest.raises(LimitReached):
            tried.identify(shown(key, address=f"{near}1"), again=True)
        with pytest.raises(Unauthorized):
            tried.identify(shown(key, address=f"{near}2"), again=True)
    assert [line["event"] for line in lines] == ["login refused"] * 3
    secret = key.rpartition("_")[2]
    assert not any(secret[at : at + 8] in repr(lines) for at in range(len(secret) - 7))


def test_a_wrong_admin_key_is_throttled_by_address() -> None:
    """Where tokens decide, it is an invalid token."""
    settings = replace(SETTINGS, admin_key="an-admin-key-of-forty-characters-3141592", token_secret=SECRET.decode())
    keys = ApiKeys(lambda key_id: None, settings.admin_key, lambda: 0.0, lambda: NOW_S)
    tried = Logins(settings, None, nobody_is_revoked, HeldClock(100.0), lambda: NOW_S, keys)
    for _ in range(2):
        with pytest.raises(Unauthorized):
            tried.identify(shown("an-admin-key-of-forty-characters-3141593"), again=True)
    with pytest.raises(LimitReached):
        tried.identify(shown("an-admin-key-of-forty-characters-3141592"), again=True)
    here = shown("an-admin-key-of-forty-characters-3141592", address="192.0.2.10")
    assert tried.identify(here, again=True).scopes == ("admin",)


def test_a_key_in_another_namespace_is_refused_and_is_no_failed_login() -> None:
    """Its owner is known."""
    key = new_key("billing", ["clients"], namespaces=["other"])
    tried = with_keys(key)
    for _ in range(5):
        with pytest.raises(Unauthorized) as caught:
            tried.identify(shown(key.text), again=True)
        assert caught.value.reason is UnauthorizedReason.WRONG_NAMESPACE
    assert tried.identify(shown(key.text, "other"), again=True).scopes == ("clients",)


@pytest.mark.parametrize("is_connected", [True, False])
def test_an_authenticator_that_regrants_its_own_user_fails_at_once_and_the_log_says_why(is_connected: bool) -> None:
    """Each answer would be followed by another question, for 10 s, and for ever where the user is connected."""
    asked = []

    def authenticator(handshake: Handshake) -> Identity:
        asked.append(handshake)
        note_regrant("bob")  # as Clients.regrant does; others may be regranted
        note_regrant("ana")
        tried.rights_changed("ana")
        return Identity("ana")

    tried = logins(authenticator)
    with capture_logs() as lines, pytest.raises(Unauthorized) as caught:
        _ = tried.identified(shown(), user="ana") if is_connected else tried.identify(shown())
    assert (caught.value.reason, len(asked)) == (UnauthorizedReason.AUTHENTICATOR_FAILED, 1)
    assert "may not regrant its own user" in lines[0]["error"]


def test_a_greenlet_that_an_authenticator_starts_may_regrant_its_user_later() -> None:
    """It inherits the context of the authenticator, which is over then."""
    started = []

    def authenticator(handshake: Handshake) -> Identity:
        started.append(gevent.spawn(note_regrant, "ana"))
        return Identity("ana")

    logins(authenticator).identified(shown(), user="ana")
    started[0].get()


def test_however_many_users_rights_change_the_memory_is_bounded_and_no_change_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the change of a user is forgotten, any login from before it counts as changed."""
    monkeypatch.setattr(module, "MAX_CHANGED", 3)
    tried = Logins(Settings(), lambda _: Identity("ana"), lambda identity: None)
    for number in range(20):
        before = tried.changes
        tried.rights_changed(f"user{number}")
        assert len(tried._changed) <= 3
        assert all(tried.has_changed(f"user{each}", each) for each in range(number + 1))
        assert not tried.has_changed("user0", tried.changes)
        assert tried.has_changed(f"user{number}", before)
    assert not tried.has_changed("somebody else", 19)
