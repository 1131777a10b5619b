"""Tokens: those that give an identity, and the table of those that do not, each with its word. Every claim: test_claims.py."""

import base64
import hashlib
import hmac
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519, rsa
from hypothesis import given
from hypothesis import strategies as st

from headgate.auth.identity import ANONYMOUS, Handshake, Identity
from headgate.auth.keys import SECRET_KEY_ID, TokenKey, read_jwks
from headgate.auth.tokens import MAX_TOKEN_BYTES, Tokens, _decode_part, token_authenticator
from headgate.errors import SettingsError, Unauthorized, UnauthorizedReason
from headgate.settings.settings import Settings
from tests.support.token_keys import EC_KEY, ED_KEY, OTHER_SECRET, RSA_KEY, SECRET, jwks, pem, segment

NOW_S = 1_800_000_000
LEEWAY_S = 5.0
# Those that a token itself is refused for.
OF_TOKENS = set(UnauthorizedReason) - {
    UnauthorizedReason.KEYS_PENDING,
    UnauthorizedReason.NOT_ACCEPTED,
    UnauthorizedReason.WRONG_NAMESPACE,
    UnauthorizedReason.REVOKED,
    UnauthorizedReason.ANOTHER_USER,
    UnauthorizedReason.NO_AUTHENTICATOR,
    UnauthorizedReason.AUTHENTICATOR_FAILED,
    UnauthorizedReason.LEFT,
}
PRIVATE: dict[str, Any] = {"RS256": RSA_KEY, "ES256": EC_KEY, "EdDSA": ED_KEY, "HS256": SECRET}


def claims(**changes: Any) -> dict[str, Any]:
    """Good claims, changed; None takes one out."""
    good = {"sub": "ana", "aud": "headgate", "exp": NOW_S + 60, "iat": NOW_S, "subscribe": ["orders.#"], **changes}
    return {name: value for name, value in good.items() if value is not None}


def signed(header: Any, payload: Any, secret: bytes = SECRET) -> str:
    """A token made by hand, as no library would make it: any header, any payload, a valid HMAC."""
    body = f"{segment(header)}.{segment(payload)}"
    return f"{body}.{segment(hmac.new(secret, body.encode(), hashlib.sha256).digest())}"


def token(headers: dict[str, Any] | None = None, **changes: Any) -> str:
    return jwt.encode(claims(**changes), SECRET, "HS256", headers=headers)


def tampered(text: str) -> str:
    """The same token with other claims and the old signature."""
    head, _, signature = text.split(".")
    return f"{head}.{segment(claims(sub='admin'))}.{signature}"


def flipped(text: str) -> str:
    """The same token with one bit of its signature changed."""
    head, body, signature = text.split(".")
    raw = bytearray(base64.urlsafe_b64decode(signature + "=" * (-len(signature) % 4)))
    raw[0] ^= 1
    return f"{head}.{body}.{segment(bytes(raw))}"


def one_secret() -> Tokens:
    """The keys of a gateway with only HEADGATE_TOKEN_SECRET."""
    return Tokens([TokenKey(SECRET_KEY_ID, "HS256", SECRET)], "headgate", LEEWAY_S, lambda: NOW_S)


def many_keys() -> Tokens:
    """One key for each algorithm, named after it in lower case."""
    keys = [TokenKey(name.lower(), name, key if name == "HS256" else key.public_key()) for name, key in PRIVATE.items()]
    return Tokens(keys, "headgate", LEEWAY_S, lambda: NOW_S)


def refused(tokens: Tokens, shown: object) -> Unauthorized:
    with pytest.raises(Unauthorized) as caught:
        tokens.verify(shown)
    return caught.value


# accepted ------------------------------------------------------------------------------------------------------------------


def test_a_token_gives_its_user_grants_and_expiry() -> None:
    """`subscribe` and `publish` are the token's, with the user's own topics."""
    found = one_secret().verify(token(publish=["chat.{sub}"], jti="t1"))
    assert found == Identity("ana", ("orders.#", "users.ana.#"), ("chat.ana",), NOW_S + 60 + LEEWAY_S, "t1")


@pytest.mark.parametrize("algorithm", list(PRIVATE))
def test_every_algorithm_is_accepted_under_its_own_key(algorithm: str) -> None:
    """HS256, RS256, ES256, EdDSA."""
    shown = jwt.encode(claims(), PRIVATE[algorithm], algorithm, headers={"kid": algorithm.lower()})
    assert many_keys().verify(shown).user == "ana"


def test_a_key_id_may_name_the_only_key() -> None:
    """It is needed only beside other keys."""
    assert one_secret().verify(token({"kid": SECRET_KEY_ID})).user == "ana"


# refused -------------------------------------------------------------------------------------------------------------------

HS = {"alg": "HS256", "typ": "JWT"}

BAD: list[tuple[str, str, Callable[[], object]]] = [
    ("no_token", "none at all", lambda: None),
    ("no_token", "an empty one", lambda: ""),
    ("malformed", "a number", lambda: 7),
    ("malformed", "an object", lambda: {"token": token()}),
    ("malformed", "bytes", lambda: token().encode()),
    ("malformed", "a word", lambda: "secret"),
    ("malformed", "two dots", lambda: ".."),
    ("malformed", "two parts", lambda: token().rsplit(".", 1)[0]),
    ("malformed", "four parts", lambda: token() + ".x"),
    ("malformed", "white space around it", lambda: f" {token()}\n"),
    ("malformed", "not ASCII", lambda: token() + "é"),
    ("malformed", "a header that is not base64", lambda: "!!." + token().split(".", 1)[1]),
    ("malformed", "a header that is not JSON", lambda: signed(b"{alg:HS256}", claims())),
    ("malformed", "a header that is a list", lambda: signed(["HS256"], claims())),
    ("malformed", "a header nested too deep", lambda: signed(b"[" * 5000, claims())),
    ("malformed", "a key id that is a number", lambda: signed({**HS, "kid": 1}, claims())),
    ("malformed", "claims that are not JSON", lambda: signed(HS, b"{sub:ana}")),
    ("too_large", "one byte above the limit", lambda: "a" * (MAX_TOKEN_BYTES + 1)),
    ("too_large", "a megabyte, otherwise good", lambda: token(padding="x" * 1_000_000)),
    ("algorithm_mismatch", "alg none, unsigned", lambda: f"{segment({'alg': 'none'})}.{segment(claims())}."),
    ("algorithm_mismatch", "alg nOnE, unsigned", lambda: f"{segment({'alg': 'nOnE'})}.{segment(claims())}."),
    ("algorithm_mismatch", "no alg", lambda: signed({"typ": "JWT"}, claims())),
    ("algorithm_mismatch", "alg a list", lambda: signed({"alg": ["HS256"]}, claims())),
    ("algorithm_mismatch", "HS512 with the right secret", lambda: jwt.encode(claims(), SECRET * 2, "HS512")),
    ("algorithm_mismatch", "RS256 for a key of HS256", lambda: jwt.encode(claims(), RSA_KEY, "RS256")),
    ("unsupported_header", "a key of its own", lambda: signed({**HS, "jwk": {"kty": "oct", "k": "AA"}}, claims())),
    ("unsupported_header", "an address of keys", lambda: signed({**HS, "jku": "http://127.0.0.1/keys"}, claims())),
    ("unsupported_header", "an address of a certificate", lambda: signed({**HS, "x5u": "http://127.0.0.1/"}, claims())),
    ("unsupported_header", "a certificate", lambda: signed({**HS, "x5c": ["AA"]}, claims())),
    ("unsupported_header", "a rule that we must know", lambda: signed({**HS, "crit": ["b64"], "b64": True}, claims())),
    ("unknown_key", "a key id of nobody", lambda: token({"kid": "nobody"})),
    ("unknown_key", "a key id that is a path", lambda: token({"kid": "../../dev/null"})),
    ("bad_signature", "another secret", lambda: jwt.encode(claims(), OTHER_SECRET, "HS256")),
    ("bad_signature", "an empty secret", lambda: signed(HS, claims(), b"")),
    ("bad_signature", "no signature", lambda: token().rsplit(".", 1)[0] + "."),
    ("bad_signature", "half a signature", lambda: token()[:-23]),
    ("bad_signature", "one bit of it flipped", lambda: flipped(token())),
    ("bad_signature", "claims exchanged", lambda: tampered(token())),
    ("missing_claim", "no exp", lambda: token(exp=None)),
    ("invalid_claim", "sub a number", lambda: signed(HS, claims(sub=42))),
    ("invalid_grant", "a pattern that is none", lambda: token(subscribe=["orders..#"])),
    ("wrong_audience", "another audience", lambda: token(aud="shop")),
    ("expired", "a minute ago", lambda: token(exp=NOW_S - 60)),
    ("not_yet_valid", "nbf in a minute", lambda: token(nbf=NOW_S + 60)),
]


@pytest.mark.parametrize(("reason", "make"), [pytest.param(r, make, id=f"{r}: {what}") for r, what, make in BAD])
def test_a_bad_token_is_refused_with_its_word_and_never_shown(reason: str, make: Callable[[], object]) -> None:
    """Each fault has one word, and neither token nor secret is in anything that leaves."""
    shown = make()
    error = refused(one_secret(), shown)
    assert (error.code, error.reason, error.to_wire()["reason"]) == ("unauthorized", reason, reason)
    told = f"{error!r} {error} {error.to_wire()}"
    assert SECRET.decode() not in told
    if isinstance(shown, str):
        assert not any(part in told for part in shown.split(".") if len(part) > 10)


def test_the_table_of_bad_tokens_knows_every_reason() -> None:
    """A new reason comes with an example."""
    assert {reason for reason, _, _ in BAD} == OF_TOKENS - {"wrong_issuer"}  # below


MANY_BAD: list[tuple[str, str, Callable[[], str]]] = [
    ("unknown_key", "no key id beside several keys", token),
    ("algorithm_mismatch", "a public key as an HMAC secret",
        lambda: signed({**HS, "kid": "rs256"}, claims(), pem(RSA_KEY).encode())),
    ("algorithm_mismatch", "HS256 under a key of EdDSA", lambda: signed({**HS, "kid": "eddsa"}, claims())),
    ("algorithm_mismatch", "ES256 under a key of RS256", lambda: jwt.encode(claims(), EC_KEY, "ES256", headers={"kid": "rs256"})),
    ("bad_signature", "another RSA key", lambda: jwt.encode(
        claims(), rsa.generate_private_key(public_exponent=65537, key_size=2048), "RS256", headers={"kid": "rs256"})),
    ("bad_signature", "another Ed25519 key", lambda: jwt.encode(
        claims(), ed25519.Ed25519PrivateKey.generate(), "EdDSA", headers={"kid": "eddsa"})),
    ("bad_signature", "an ES256 signature of zeros", lambda: ".".join(
        [segment({"alg": "ES256", "kid": "es256"}), segment(claims()), segment(bytes(64))])),
]  # fmt: skip


@pytest.mark.parametrize(("reason", "make"), [pytest.param(r, make, id=f"{r}: {what}") for r, what, make in MANY_BAD])
def test_each_key_has_one_algorithm(reason: str, make: Callable[[], str]) -> None:
    """No other key or algorithm vouches for a signature."""
    assert refused(many_keys(), make()).reason == reason


@given(st.text(max_size=300) | st.binary(max_size=200).map(lambda raw: signed(HS, raw)) | st.dictionaries(
    st.sampled_from(["sub", "aud", "exp", "nbf", "iat", "jti", "subscribe", "publish"]),
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.lists(st.text(max_size=9), max_size=3),
).map(lambda changes: signed(HS, {**claims(), **changes})))  # fmt: skip
def test_for_every_text_the_answer_is_an_identity_or_unauthorized(shown: str) -> None:
    """No token, however odd, escapes as another kind of exception."""
    try:
        user, reason = one_secret().verify(shown).user, None
    except Unauthorized as error:
        user, reason = None, error.reason
    assert user or reason in OF_TOKENS


# the asked part --------------------------------------------------------------------------------------------------------------


def authenticate(auth: dict[str, Any], **settings: str) -> Identity:
    read = Settings.read({f"HEADGATE_{name.upper()}": value for name, value in settings.items()})
    return token_authenticator(Tokens.configured(read), read)(Handshake("n", auth, {}))


def test_without_keys_and_without_anonymous_grants_nobody_comes_in() -> None:
    """And the message names the setting."""
    with pytest.raises(Unauthorized, match=r"HEADGATE_TOKEN_SECRET.*--dev") as caught:
        authenticate({})
    assert caught.value.reason == "no_authenticator"


@pytest.mark.parametrize("lets_in", [{"dev": "1"}, {"anonymous_subscribe": "news.#"}])
def test_a_token_that_nothing_can_check_is_refused_where_clients_without_one_come_in(lets_in: dict[str, str]) -> None:
    """The message does not advise what is done already."""
    with pytest.raises(Unauthorized, match=r"connect without a token, or .*HEADGATE_TOKEN_SECRET") as caught:
        authenticate({"token": "of the application"}, **lets_in)
    assert "--dev" not in str(caught.value)


def test_anonymous_clients_come_in_where_configured_with_those_grants_only() -> None:
    """They subscribe to the named topics, and publish nothing."""
    found = authenticate({}, anonymous_subscribe="news.#,status")
    assert found == Identity(ANONYMOUS, subscribe=("news.#", "status"))


@pytest.mark.parametrize("bad", ["", "x", 7, ["a"]])
def test_a_bad_token_never_makes_anyone_anonymous(bad: object) -> None:
    """A client that shows something is the user that it proves, or is refused; in development too."""
    for extra in ({"anonymous_subscribe": "#"}, {"dev": "1"}):
        with pytest.raises(Unauthorized):
            authenticate({"token": bad}, token_secret=SECRET.decode(), **extra)


def test_development_lets_anyone_do_everything() -> None:
    """Only without a token."""
    assert authenticate({}, dev="1") == Identity(ANONYMOUS, ("#",), ("#",), namespaces=("notifications",))
    assert authenticate({}, dev="1", namespaces="a,b").namespaces == ("a", "b")


# configuration -------------------------------------------------------------------------------------------------------------


def test_a_secret_stands_beside_a_file_of_keys_under_its_own_id(tmp_path: Path) -> None:
    """So that a key can be exchanged without a gap in service."""
    (tmp_path / "keys.json").write_text(json.dumps({"new": {"alg": "HS256", "key": OTHER_SECRET.decode()}}))
    settings = Settings.read({"HEADGATE_TOKEN_SECRET": SECRET.decode(), "HEADGATE_TOKEN_KEYS": str(tmp_path / "keys.json")})
    tokens = Tokens.configured(settings)
    assert tokens is not None
    for key_id in (SECRET_KEY_ID, "new"):
        assert tokens.verify(tokens.mint("ana", [], [], 60, key_id=key_id)).user == "ana"
    with pytest.raises(SettingsError, match="name one of new, default"):
        tokens.mint("ana", [], [], 60)


def test_a_public_key_cannot_mint() -> None:
    """Only the owner of the private key makes tokens."""
    tokens = Tokens([TokenKey("k", "EdDSA", ED_KEY.public_key())], "headgate", LEEWAY_S, lambda: NOW_S)
    for key_id in (None, "k"):
        with pytest.raises(SettingsError, match="public, and cannot sign"):
            tokens.mint("ana", [], [], 60, key_id=key_id)
    with pytest.raises(SettingsError, match="no key 'other'"):
        tokens.mint("ana", [], [], 60, key_id="other")


_PARTS = st.text("ABCDEFGHQgwxyz0189-_=+/.! \n\0", max_size=12)


@given(_PARTS)
def test_a_part_of_a_token_is_read_as_pyjwt_reads_it(part: str) -> None:
    """Also padded; and nothing that stands for the same bytes in another way."""
    try:
        expected = jwt.PyJWS._decode_base64url_segment(part.encode(), "part")
    except jwt.DecodeError:
        with pytest.raises(Unauthorized) as refusal:
            _decode_part(part)
        assert refusal.value.reason == "malformed"
    else:
        assert _decode_part(part) == expected


@given(st.integers(0, 400), st.sampled_from("AB-_=. \0") | st.just(""), st.booleans())
def test_a_changed_token_is_accepted_only_if_pyjwt_accepts_it(position: int, letter: str, inserted: bool) -> None:
    """One letter taken out, put in or replaced: PyJWT is the oracle of signed tokens."""
    good = token()
    changed = good[:position] + letter + good[position + (not inserted) :]
    try:
        jwt.PyJWS(algorithms=["HS256"]).decode(changed, SECRET, algorithms=["HS256"])
    except jwt.PyJWTError:
        with pytest.raises(Unauthorized):
            one_secret().verify(changed)
    else:
        assert one_secret().verify(changed) == one_secret().verify(good)


# keys that change ----------------------------------------------------------------------------------------------------------


def test_where_an_issuer_is_set_a_minted_token_is_from_it() -> None:
    """The rule and the mint read the same setting."""
    key = TokenKey(SECRET_KEY_ID, "HS256", SECRET)
    strict = Tokens([key], "headgate", LEEWAY_S, lambda: NOW_S, issuer="https://login.example.com")
    assert strict.verify(strict.mint("ana", [], [], 60)).user == "ana"
    assert refused(strict, token(iss="https://evil.example")).reason == "wrong_issuer"


def test_fetched_keys_replace_those_before_and_never_a_configured_one() -> None:
    """An issuer's key of the name of ours would otherwise take its place."""
    tokens = Tokens([TokenKey("ours", "HS256", SECRET)], "headgate", LEEWAY_S, lambda: NOW_S)

    def by_issuer(key_id: str) -> str:
        return jwt.encode(claims(), RSA_KEY, "RS256", headers={"kid": key_id})

    tokens.use_fetched(read_jwks(jwks(a=RSA_KEY, ours=RSA_KEY)))
    assert tokens.verify(by_issuer("a")).user == "ana"
    assert tokens.verify(token({"kid": "ours"})).user == "ana"
    assert refused(tokens, by_issuer("ours")).reason == "algorithm_mismatch"
    tokens.use_fetched(read_jwks(jwks(b=RSA_KEY)))
    assert refused(tokens, by_issuer("a")).reason == "unknown_key"
    assert tokens.verify(by_issuer("b")).user == "ana"
    tokens.configure([TokenKey("newer", "HS256", OTHER_SECRET)])
    assert refused(tokens, token({"kid": "ours"})).reason == "unknown_key"
    assert tokens.verify(by_issuer("b")).user == "ana"


def test_a_token_of_a_key_that_may_be_on_its_way_may_be_tried_again() -> None:
    """It is not known to be bad."""
    tokens = one_secret()
    asked: list[str] = []
    tokens.may_come = lambda key_id: not asked.append(key_id)  # type: ignore[func-returns-value]
    error = refused(tokens, token({"kid": "new"}))
    assert error.reason is UnauthorizedReason.KEYS_PENDING
    assert (error.to_wire()["code"], error.to_wire()["reason"], error.to_wire()["retry"]) == (
        "unauthorized",
        "keys_pending",
        True,
    )
    assert asked == ["new"]
