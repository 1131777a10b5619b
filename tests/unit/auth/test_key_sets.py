"""Sets of keys: files and issuers' sets that are read, and the faults of those that are not."""

import json
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from headgate.auth.keys import MAX_KEYS, SECRET_KEY_ID, configured_keys, read_jwks, read_keys
from headgate.errors import SettingsError
from headgate.settings.settings import Settings
from tests.support.token_keys import EC_KEY, ED_KEY, RSA_KEY, SECRET, SMALL_RSA_KEY, jwk, pem, segment

PRIVATE_PEM = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
PLACEHOLDERS = [
    "replace-this-by-at-least-32-random-bytes",
    "only-for-the-example-and-long-enough",
    "CHANGE_ME_to_something_long_and_random_1",
    "please change this to thirty-two random bytes",
    "your-256-bit-secret-0123456789-abcdef",
    "a-string-secret-at-least-256-bits-long",
]
WEAK = [
    *PLACEHOLDERS,
    *("", "0123456789abcdef" * 2 + "\n", " " + "0123456789abcdef" * 2),
    *("x" * 31, "x" * 32, "x" * 1000, "ab" * 40, "abcdefg" * 10, "password" * 8, "0123456789abcde" * 4, "ß" * 40),
]
STRONG = [
    "0123456789abcdef" * 2,
    "a secret of thirty-two bytes or more",
    "d41d8cd98f00b204e9800998ecf8427e",
    "1357924680" * 3 + "42",
]


@pytest.mark.parametrize("secret", WEAK, ids=lambda secret: secret[:12])
def test_a_secret_that_can_be_guessed_is_refused(tmp_path: Path, secret: str) -> None:
    """One letter again and again, a word that fills up the length: reported at start with the expected form, and not shown."""
    if secret:
        with pytest.raises(SettingsError, match="expected a secret of at least 32 bytes, 8 of them different") as caught:
            Settings.read({"HEADGATE_TOKEN_SECRET": secret})
        assert secret not in str(caught.value)
    (tmp_path / "keys.json").write_text(json.dumps({"k": {"alg": "HS256", "key": secret}}))
    with pytest.raises(SettingsError, match="expected a secret of at least 32 bytes, 8 of them different"):
        read_keys(str(tmp_path / "keys.json"))


@pytest.mark.parametrize("secret", STRONG)
def test_a_secret_that_looks_random_or_is_a_sentence_is_accepted(secret: str) -> None:
    """The check is for certainly weak secrets."""
    assert Settings.read({"HEADGATE_TOKEN_SECRET": secret}).token_secret == secret


def test_keys_are_read_from_json_and_from_toml(tmp_path: Path) -> None:
    """One key per id, each with its algorithm. A byte order mark of a Windows editor does not count."""
    entries = {"a": {"alg": "HS256", "key": SECRET.decode()}, "b": {"alg": "EdDSA", "key": pem(ED_KEY)}}
    (tmp_path / "keys.json").write_text(json.dumps(entries), "utf-8-sig")
    toml = f'[a]\nalg = "HS256"\nkey = "{SECRET.decode()}"\n[b]\nalg = "EdDSA"\nkey = """{pem(ED_KEY)}"""\n'
    (tmp_path / "keys.toml").write_text(toml, "utf-8-sig")
    for name in ("keys.json", "keys.toml"):
        assert [(key.key_id, key.algorithm) for key in read_keys(str(tmp_path / name))] == [("a", "HS256"), ("b", "EdDSA")]


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("", "expected JSON"),
        ("[]", "expected 1 to 64 keys"),
        ("{}", "expected 1 to 64 keys"),
        ('{"a": "x"}', r"key 'a': expected \{alg, key\}"),
        ('{"a": {"alg": "none", "key": ""}}', "alg: expected one of"),
        ('{"a": {"alg": "HS256", "key": "short-secret"}}', "at least 32 bytes"),
        ('{"a": {"alg": "RS256", "key": "canary-not-a-pem"}}', "does not fit RS256"),
        (json.dumps({"a": {"alg": "HS256", "key": pem(RSA_KEY)}}), "no key of another kind"),
        (json.dumps({"a": {"alg": "RS256", "key": pem(EC_KEY)}}), "does not fit RS256|expected an RSA"),
        (json.dumps({"a": {"alg": "ES256", "key": pem(ec.generate_private_key(ec.SECP384R1()))}}), "ES256|P-256"),
        (json.dumps({"a": {"alg": "RS256", "key": pem(SMALL_RSA_KEY)}}), "at least 2048 bits"),
        (json.dumps({"a": {"alg": "EdDSA", "key": ED_KEY.private_bytes(*PRIVATE_PEM).decode()}}), "Ed25519 public key"),
    ],
)
def test_a_file_of_keys_that_is_wrong_is_told_by_key_id_and_never_shown(tmp_path: Path, content: str, told: str) -> None:
    """Wrong kinds, short secrets, small keys, private keys where public ones belong."""
    (tmp_path / "keys.json").write_text(content)
    with pytest.raises(SettingsError, match=told) as caught:
        read_keys(str(tmp_path / "keys.json"))
    text = str(caught.value)
    assert not any(secret in text for secret in ("short-secret", "canary", "BEGIN"))


def test_a_file_of_keys_that_is_missing_or_huge_is_told(tmp_path: Path) -> None:
    """With its path, which the operator needs."""
    with pytest.raises(SettingsError, match="No such file"):
        read_keys(str(tmp_path / "none.json"))
    (tmp_path / "huge.json").write_text(" " * 300_000)
    with pytest.raises(SettingsError, match="at most 262144 bytes"):
        read_keys(str(tmp_path / "huge.json"))


# An issuer's set ------------------------------------------------------------------------------------------------------------


# Entries of a set of keys → whether each is taken.
JWKS = [
    ("RSA", jwk("k", RSA_KEY), True),
    ("RSA with its algorithm", jwk("k", RSA_KEY, alg="RS256"), True),
    ("EC", jwk("k", EC_KEY), True),
    ("Ed25519", jwk("k", ED_KEY), True),
    ("for verifying", jwk("k", RSA_KEY, key_ops=["verify"]), True),
    ("without use", jwk("k", RSA_KEY, use=None), True),
    ("for encryption", jwk("k", RSA_KEY, use="enc"), False),
    ("for signing only", jwk("k", RSA_KEY, key_ops=["sign"]), False),
    ("another algorithm", jwk("k", RSA_KEY, alg="HS256"), False),
    ("an algorithm that we do not have", jwk("k", RSA_KEY, alg="PS256"), False),
    ("another curve", jwk("k", EC_KEY, crv="P-384"), False),
    ("no name", jwk(None, RSA_KEY), False),
    ("a name that is none", jwk(7, RSA_KEY), False),
    ("a huge name", jwk("k" * 256, RSA_KEY), False),
    ("a weak key", jwk("k", SMALL_RSA_KEY), False),
    ("a private key", {**jwt.get_algorithm_by_name("RS256").to_jwk(RSA_KEY, as_dict=True), "kid": "k", "use": "sig"}, False),
    ("a secret", {"kty": "oct", "kid": "k", "k": segment(SECRET)}, False),
    ("damaged", jwk("k", EC_KEY, x="AAAA"), False),
    ("no type", {"kid": "k"}, False),
    ("a list", ["k"], False),
]


@pytest.mark.parametrize(("name", "entry", "taken"), JWKS, ids=[row[0] for row in JWKS])
def test_only_named_public_signature_keys_are_taken_from_an_issuer(name: str, entry: Any, taken: bool) -> None:
    """Others are passed over; a set of nothing else is refused."""
    sound = jwk("sound", RSA_KEY)
    assert [key.key_id for key in read_jwks(json.dumps({"keys": [entry, sound]}).encode())] == (["k"] if taken else []) + [
        "sound"
    ]
    if not taken:
        with pytest.raises(ValueError, match="no public key"):
            read_jwks(json.dumps({"keys": [entry]}).encode())


@pytest.mark.parametrize("text", [b"", b"[]", b"{}", b"nonsense", b"\xff", b'{"keys": 7}', b'{"keys": []}', b"[" * 100_000])
def test_an_answer_that_is_no_set_of_keys_is_refused(text: bytes) -> None:
    """With a ValueError and no other, so that the fetch goes on."""
    with pytest.raises(ValueError, match="the answer"):
        read_jwks(text)


def test_a_key_that_takes_the_name_of_the_secret_is_told(tmp_path: Path) -> None:
    """Which of the two signed a token could not be known."""
    (tmp_path / "keys.json").write_text(json.dumps({SECRET_KEY_ID: {"alg": "EdDSA", "key": pem(ED_KEY)}}))
    read = Settings.read({"HEADGATE_TOKEN_SECRET": SECRET.decode(), "HEADGATE_TOKEN_KEYS": str(tmp_path / "keys.json")})
    with pytest.raises(SettingsError, match=r"key 'default' is HEADGATE_TOKEN_SECRET's name"):
        configured_keys(read)


def test_an_issuers_set_has_a_bound_and_each_name_counts_once() -> None:
    """The first key of a name is taken."""
    entries = [jwk("k", ED_KEY), jwk("k", RSA_KEY)]
    assert [(key.key_id, key.algorithm) for key in read_jwks(json.dumps({"keys": entries}).encode())] == [("k", "EdDSA")]
    with pytest.raises(ValueError, match="at most 64 keys"):
        read_jwks(json.dumps({"keys": [jwk(f"k{number}", ED_KEY) for number in range(MAX_KEYS + 1)]}).encode())
