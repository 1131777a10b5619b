"""Logins: what an authenticator, revocations and an address's failures make of a handshake. On a clock of the test's own."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from headgate.auth.admission import LoginsThrottled
from headgate.auth.identity import Handshake, Identity
from headgate.auth.tokens import Tokens
from headgate.errors import BusUnavailable, HeadgateError, Unauthorized, UnauthorizedReason
from headgate.node import logins as module
from headgate.node.logins import Logins
from headgate.settings import Settings

SETTINGS = Settings(namespaces=("notifications", "other"), failed_logins_burst=2, failed_logins_per_s=1)
NOW_S = 1_800_000_000.0


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def nobody_is_revoked(identity: Identity) -> None:
    """The revocations of a quiet day."""


def logins(
    authenticator: Callable[[Handshake], Identity | None],
    *,
    check_revoked: Callable[[Identity], None] = nobody_is_revoked,
    clock: Clock | None = None,
    settings: Settings = SETTINGS,
) -> Logins:
    return Logins(settings, authenticator, check_revoked, clock or Clock(), lambda: NOW_S)


def shown(token: str = "secret-token", namespace: str = "notifications", address: str = "192.0.2.9") -> Handshake:
    return Handshake(namespace, {"token": token}, {"REMOTE_ADDR": address})


def refusal(tried: Logins, handshake: Handshake) -> HeadgateError:
    with pytest.raises(HeadgateError) as caught:
        tried.identify(handshake)
    return caught.value


def test_an_identity_comes_with_the_users_own_topics() -> None:
    """Every user may subscribe to them, whatever the authenticator grants."""
    identity = logins(lambda _: Identity("ana", ("orders.#",))).identify(shown())
    assert identity.subscribe == ("orders.#", "users.ana.#")


@pytest.mark.parametrize(
    ("identity", "namespace", "reason"),
    [
        (None, "notifications", UnauthorizedReason.NOT_ACCEPTED),
        (Identity("ana"), "other", UnauthorizedReason.WRONG_NAMESPACE),
        (Identity("ana", namespaces=("other",)), "notifications", UnauthorizedReason.WRONG_NAMESPACE),
        (Identity("ana", expires_at=NOW_S), "notifications", UnauthorizedReason.EXPIRED),
    ],
)
def test_an_identity_that_may_not_enter_is_refused_with_its_reason(
    identity: Identity | None, namespace: str, reason: UnauthorizedReason
) -> None:
    """None is the authenticator's own refusal."""
    error = refusal(logins(lambda _: identity), shown(namespace=namespace))
    assert isinstance(error, Unauthorized)
    assert error.reason is reason


def test_a_revoked_identity_is_refused_after_the_authenticator_took_it() -> None:
    """The watch on revocations has the last word."""

    def check(identity: Identity) -> None:
        raise Unauthorized(UnauthorizedReason.REVOKED)

    assert refusal(logins(lambda _: Identity("ana"), check_revoked=check), shown()).parts["reason"] == "revoked"


def test_an_authenticator_that_fails_is_logged_without_the_token_and_is_no_failed_login() -> None:
    """It is a fault of the gateway's side: the address is not closed for it."""

    def broken(handshake: Handshake) -> Identity:
        raise RuntimeError(f"cannot read {handshake.token}")

    tried = logins(broken)
    with capture_logs() as lines:
        errors = [refusal(tried, shown()) for _ in range(5)]
    assert [error.parts["reason"] for error in errors] == ["authenticator_failed"] * 5
    assert any(line["event"] == "authenticator failed" for line in lines)
    assert "secret-token" not in str(lines)


def test_the_sentence_of_an_application_is_in_the_audit_log_without_the_token() -> None:
    """The reason is a word of the list; the sentence stands beside it."""

    def refuse(handshake: Handshake) -> Identity:
        raise Unauthorized(f"no trial for {handshake.token}")

    with capture_logs() as lines:
        refusal(logins(refuse), shown(address="192.0.2.77"))
    (line,) = [line for line in lines if line["event"] == "login refused"]
    assert (line["reason"], line["detail"]) == ("not_accepted", "no trial for (hidden)")


def test_an_address_of_which_too_many_logins_fail_is_refused_without_a_look() -> None:
    """A good token from there waits as well; another address, and the same one later, does not."""
    clock = Clock()
    asked: list[str | None] = []

    def authenticator(handshake: Handshake) -> Identity | None:
        asked.append(handshake.token)
        return Identity("ana") if handshake.token == "good" else None

    tried = logins(authenticator, clock=clock)
    for _ in range(2):
        refusal(tried, shown("bad"))
    assert isinstance(refusal(tried, shown("good")), LoginsThrottled)
    assert asked == ["bad", "bad"]
    assert tried.identify(shown("good", address="198.51.100.1")).user == "ana"
    clock.now_s += 2
    assert tried.identify(shown("good")).user == "ana"


def test_a_refusal_that_only_takes_a_while_is_no_failed_login() -> None:
    """While Redis is away, nobody's address is closed."""

    def away(identity: Identity) -> None:
        raise BusUnavailable("not read yet")

    tried = logins(lambda _: Identity("ana"), check_revoked=away)
    assert all(isinstance(refusal(tried, shown()), BusUnavailable) for _ in range(5))


def test_development_closes_no_address() -> None:
    """There an address says nothing about who it is."""
    tried = logins(lambda _: None, settings=Settings(dev=True, failed_logins_burst=1))
    assert all(isinstance(refusal(tried, shown()), Unauthorized) for _ in range(5))


# Keys --------------------------------------------------------------------------------------------------------------------

SECRETS = {"old": "secret old of thirty-two bytes or more, for tests", "new": "secret new of thirty-two bytes or more, for tests"}


def write_keys(path: Path, key_id: str) -> Settings:
    """Write a file with one key; return the settings that name it."""
    path.write_text(json.dumps({key_id: {"alg": "HS256", "key": SECRETS[key_id]}}))
    return Settings(token_keys=str(path))


def minted(settings: Settings) -> str:
    """Return a token by the key of these settings."""
    tokens = Tokens.configured(settings)
    assert tokens is not None
    return tokens.mint("ana", [], [], 600)


class FetchedKeys:
    """An issuer's keys, which are never fetched: the calls are written down."""

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


def test_keys_are_read_anew_and_a_fault_in_their_file_leaves_the_previous_ones_active(tmp_path: Path) -> None:
    """A typing error locks nobody out."""
    path = tmp_path / "keys.json"
    old, new = minted(write_keys(path, "old")), minted(write_keys(tmp_path / "new.json", "new"))
    tried = Logins(Settings(token_keys=str(path)), None, nobody_is_revoked)
    assert tried.identify(shown(old)).user == "ana"
    assert isinstance(refusal(tried, shown(new)), Unauthorized)
    with capture_logs() as lines:
        path.write_text("rubbish")
        tried.reload_keys()
        assert tried.identify(shown(old)).user == "ana"
        write_keys(path, "new")
        tried.reload_keys()
    assert [line["event"] for line in lines] == ["token keys not reloaded", "token keys reloaded"]
    assert tried.identify(shown(new)).user == "ana"
    assert isinstance(refusal(tried, shown(old)), Unauthorized)


@pytest.mark.parametrize(("own", "calls"), [(False, ["start", "refresh", "close"]), (True, ["refresh", "close"])])
def test_an_issuers_keys_are_fetched_where_tokens_decide(monkeypatch: pytest.MonkeyPatch, own: bool, calls: list[str]) -> None:
    """An application may set an authenticator of its own meanwhile; then nobody asks the issuer."""
    monkeypatch.setattr(module, "Jwks", FetchedKeys)
    tried = Logins(Settings(token_jwks_url="https://login.example.com/keys"), None, nobody_is_revoked)
    if own:
        tried.authenticator = lambda handshake: Identity("ana")
    tried.start()
    tried.reload_keys()
    tried.close()
    assert isinstance(tried._jwks, FetchedKeys)
    assert tried._jwks.calls == calls
