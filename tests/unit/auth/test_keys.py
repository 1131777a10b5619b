"""Keys: each verifies signatures of its one algorithm, and no invalid key is made. Sets of them: test_key_sets.py."""

import json
import subprocess
import sys
from typing import Any

import jwt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.auth.keys import MAX_KEY_ID_CHARACTERS, TokenKey
from headgate.errors import SettingsError
from headgate.settings.settings import Settings
from tests.support.token_keys import EC_KEY, ED_KEY, RSA_KEY, SECRET, algorithm_of, jwk, pem

SIGNED = b"header.payload"


def signature(private: Any, algorithm: str) -> bytes:
    made = jwt.get_algorithm_by_name(algorithm)
    return bytes(made.sign(SIGNED, made.prepare_key(private)))


@pytest.mark.parametrize("private", [RSA_KEY, EC_KEY, ED_KEY, SECRET], ids=["RSA", "EC", "Ed25519", "secret"])
def test_a_key_proves_its_own_signatures_and_no_others(private: Any) -> None:
    """Neither of another text nor damaged ones, nor none."""
    algorithm = "HS256" if private is SECRET else algorithm_of(private)
    text = SECRET.decode() if private is SECRET else pem(private)
    key, made = TokenKey.from_text("k", algorithm, text), signature(private, algorithm)
    assert key.proves(SIGNED, made)
    assert not key.proves(b"header.another", made)
    assert not any(key.proves(SIGNED, bad) for bad in (b"", made[:-1], made + b"x", bytes(len(made))))


@given(st.binary(min_size=1, max_size=200), st.binary(max_size=300), st.binary(max_size=40))
def test_a_secret_proves_what_pyjwt_proves(secret: bytes, signed: bytes, guess: bytes) -> None:
    """Whatever the length of the secret, which HMAC hashes above its block, and of the text."""
    theirs, key = jwt.get_algorithm_by_name("HS256"), TokenKey("k", "HS256", b"-" + secret)
    prepared = theirs.prepare_key(b"-" + secret)
    made = theirs.sign(signed, prepared)
    assert [key.proves(signed, each) for each in (made, guess)] == [
        theirs.verify(signed, prepared, each) for each in (made, guess)
    ]


@pytest.mark.parametrize("text", [pem(RSA_KEY).strip(), "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ8", json.dumps(jwk("k", RSA_KEY))])
def test_a_public_key_is_no_secret(text: str) -> None:
    """With it every reader could sign: the classic confusion of algorithms (RFC 8725, section 2.1)."""
    with pytest.raises(ValueError, match=r"no key of another kind \(PEM, SSH, JWK\)"):
        TokenKey.from_text("k", "HS256", text)
    with pytest.raises(SettingsError, match=r"HEADGATE_TOKEN_SECRET=.*no key of another kind"):
        Settings.read({"HEADGATE_TOKEN_SECRET": text})


@pytest.mark.parametrize(("settings", "is_loaded"), [("", False), ("token_jwks_url='https://login.test/keys'", True)])
def test_a_process_without_public_keys_does_not_load_their_libraries(settings: str, is_loaded: bool) -> None:
    """They take 10 MB. An issuer's keys come while clients are connected, so with these it loads them at the start."""
    program = (
        "import sys; from headgate.auth.tokens import Tokens; from headgate.settings.settings import Settings; "
        f"Tokens.configured(Settings(token_secret='{SECRET.decode()}', {settings})); print('cryptography' in sys.modules)"
    )
    shown = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert shown.stdout.strip() == str(is_loaded)


def test_a_secret_signs_and_names_itself_where_there_are_others() -> None:
    """The key id in the header chooses it among them."""
    key = TokenKey.from_text("k", "HS256", SECRET.decode())
    assert jwt.get_unverified_header(key.sign(b"{}", name_key=True)) == {"alg": "HS256", "kid": "k", "typ": "JWT"}
    assert "kid" not in jwt.get_unverified_header(key.sign(b"{}", name_key=False))


def test_a_published_key_has_a_name_of_bounded_length() -> None:
    """The name is remembered, and is in the log."""
    longest = "k" * MAX_KEY_ID_CHARACTERS
    found = TokenKey.from_jwk(jwk(longest, RSA_KEY))
    assert found is not None
    assert (found.key_id, found.algorithm) == (longest, "RS256")
    assert [TokenKey.from_jwk(jwk(name, RSA_KEY)) for name in ("", longest + "k")] == [None, None]
