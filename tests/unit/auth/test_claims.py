"""Claims: those that describe an identity, and the table of those that do not, each with its word."""

import json
import re
from contextlib import nullcontext
from typing import Any

import pytest

from headgate.auth.claims import MAX_GRANTS, identity_of
from headgate.auth.identity import ANONYMOUS, Identity
from headgate.errors import Unauthorized

NOW_S = 1_800_000_000
LEEWAY_S = 5.0


def claims(**changes: Any) -> dict[str, Any]:
    """Good claims, changed; None takes one out."""
    good = {"sub": "ana", "aud": "headgate", "exp": NOW_S + 60, "iat": NOW_S, "subscribe": ["orders.#"], **changes}
    return {name: value for name, value in good.items() if value is not None}


def identity(shown: Any, issuer: str | None = None) -> Identity:
    """The identity of a payload: bytes, or a value as JSON."""
    payload = shown if isinstance(shown, bytes) else json.dumps(shown).encode()
    return identity_of(payload, "headgate", issuer, LEEWAY_S, NOW_S)


# accepted ------------------------------------------------------------------------------------------------------------------


def test_a_payload_without_grants_gives_the_users_own_topics_only() -> None:
    """Nothing else is granted by default."""
    found = identity(claims(subscribe=None))
    assert (found.subscribe, found.publish) == (("users.ana.#",), ())
    assert found.with_own_topics() is found


@pytest.mark.parametrize(
    ("user", "word"),
    [
        ("ana@example.com", "ana__40example__2ecom"),
        ("a.b", "a__2eb"),
        ("#", "__23"),
        ("auth0|1", "auth0__7c1"),
        ("Ана", "__d0__90__d0__bd__d0__b0"),
        ("me", "__6de"),
        ("x" * 247, "x" * 247),
    ],
)
def test_any_name_is_one_word_in_the_users_topics_and_grants(user: str, word: str) -> None:
    """A dot or a wildcard in a name becomes no part of a pattern."""
    found = identity(claims(sub=user, subscribe=["t.{sub}"], publish=["{sub}.#"])).with_own_topics()
    assert (found.user, found.subscribe) == (user, (f"t.{word}"[:255], f"users.{word}.#"))
    assert found.publish == (f"{word}.#",)


@pytest.mark.parametrize(
    "changes",
    [
        {"aud": ["other", "headgate"]},
        {"exp": NOW_S - LEEWAY_S + 0.5},
        {"exp": NOW_S + 0.25},
        {"nbf": NOW_S + LEEWAY_S},
        {"iat": NOW_S + LEEWAY_S},
        {"iat": None},
        {"subscribe": []},
        {"subscribe": ["a"] * MAX_GRANTS},
    ],
)
def test_these_are_good_claims_too(changes: dict[str, Any]) -> None:
    """Several audiences, times within the leeway, fractions of seconds, the most grants."""
    assert identity(claims(**changes)).user == "ana"


# refused -------------------------------------------------------------------------------------------------------------------

BAD: list[tuple[str, str, Any]] = [
    ("malformed", "claims that are not JSON", b"{sub:ana}"),
    ("malformed", "claims that are a list", []),
    ("malformed", "claims that are not UTF-8", b'{"sub":"\xff"}'),
    ("malformed", "claims with NaN", b'{"exp":NaN}'),
    ("malformed", "claims nested too deep", b"[" * 4000),
    ("missing_claim", "no exp", claims(exp=None)),
    ("missing_claim", "no aud", claims(aud=None)),
    ("missing_claim", "no sub", claims(sub=None)),
    ("missing_claim", "exp null", {**claims(), "exp": None}),
    ("invalid_claim", "exp as text", claims(exp=str(NOW_S + 60))),
    ("invalid_claim", "exp true", claims(exp=True)),
    ("invalid_claim", "exp negative", claims(exp=-1)),
    ("invalid_claim", "exp in milliseconds, far off", claims(exp=NOW_S * 1000)),
    ("invalid_claim", "exp of 400 digits", b'{"exp":%b,"aud":"headgate","sub":"a"}' % (b"9" * 400)),
    ("invalid_claim", "nbf as text", claims(nbf="now")),
    ("invalid_claim", "aud a number", claims(aud=1)),
    ("invalid_claim", "aud an object", claims(aud={"headgate": 1})),
    ("invalid_claim", "sub a number", claims(sub=42)),
    ("invalid_claim", "sub empty", claims(sub="")),
    ("invalid_claim", "sub with a line break", claims(sub="ana\nadmin")),
    ("invalid_claim", "sub too long", claims(sub="x" * 256)),
    ("invalid_claim", "sub the name of nobody", claims(sub=ANONYMOUS)),
    ("invalid_claim", "jti a list", claims(jti=["a"])),
    ("invalid_claim", "subscribe a string", claims(subscribe="#")),
    ("invalid_claim", "subscribe with a number", claims(subscribe=[1])),
    ("invalid_claim", "too many grants", claims(subscribe=["a"] * (MAX_GRANTS + 1))),
    ("invalid_claim", "publish an object", claims(publish={"#": True})),
    ("invalid_claim", "namespaces a string", claims(namespaces="audit")),
    ("invalid_claim", "namespaces that none can be", claims(namespaces=["a b"])),
    ("invalid_claim", "namespaces with a number", claims(namespaces=[1])),
    ("invalid_claim", "too many namespaces", claims(namespaces=["a"] * (MAX_GRANTS + 1))),
    ("invalid_grant", "a pattern that is none", claims(subscribe=["orders..#"])),
    ("invalid_grant", "a publish pattern that is none", claims(publish=["a*"])),
    ("invalid_grant", "a wildcard that may be the user's name", claims(sub="#", subscribe=["orders.#"])),
    ("invalid_grant", "the user's name as a part of a pattern", claims(sub="ana.#", publish=["users.ana.#"])),
    ("wrong_audience", "another audience", claims(aud="shop")),
    ("wrong_audience", "other audiences", claims(aud=["shop", "mail"])),
    ("wrong_audience", "no audience in the list", claims(aud=[])),
    ("wrong_audience", "the audience in capitals", claims(aud="Headgate")),
    ("expired", "a minute ago", claims(exp=NOW_S - 60)),
    ("expired", "at the leeway's end", claims(exp=NOW_S - LEEWAY_S)),
    ("expired", "in 1970", claims(exp=0)),
    ("not_yet_valid", "nbf in a minute", claims(nbf=NOW_S + 60)),
    ("not_yet_valid", "iat in a minute", claims(iat=NOW_S + 60)),
]


@pytest.mark.parametrize(("word", "shown"), [pytest.param(word, shown, id=f"{word}: {name}") for word, name, shown in BAD])
def test_bad_claims_are_refused_with_their_word(word: str, shown: Any) -> None:
    """Each fault of a claim also names the claim, and what is expected there."""
    with pytest.raises(Unauthorized) as caught:
        identity(shown)
    assert caught.value.reason == word
    if word in ("missing_claim", "invalid_claim", "invalid_grant", "wrong_audience"):
        assert re.search(f": {caught.value.parts['claim']}, (.*expected |.* are allowed|words are )", caught.value.detail)


@pytest.mark.parametrize(
    ("issuer", "word"),
    [
        ("https://login.example.com", None),
        ("https://login.example.com/", "wrong_issuer"),
        ("https://evil.example", "wrong_issuer"),
        (["https://login.example.com"], "wrong_issuer"),
        ("", "wrong_issuer"),
        (None, "missing_claim"),
    ],
)
def test_where_an_issuer_is_set_the_claims_must_be_from_it(issuer: Any, word: str | None) -> None:
    """Letter by letter; without the setting the issuer is not checked."""
    shown = {**claims(), "iss": issuer}
    assert identity(shown).user == "ana"
    with nullcontext() if word is None else pytest.raises(Unauthorized, check=lambda error: error.reason == word):
        assert identity(shown, "https://login.example.com").user == "ana"
