"""The part of PyJWT that verifies our tokens: its algorithms, called as its own `decode` calls them."""

import inspect

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519


def test_an_algorithm_prepares_a_key_and_says_whether_it_made_a_signature() -> None:
    """`verify(message, prepared key, signature)`: those three, in this order, and a bool."""
    hs256 = jwt.PyJWS().get_algorithm_by_name("HS256")
    key = hs256.prepare_key(b"0123456789abcdef0123456789abcdef")
    signature = hs256.sign(b"a.b", key)

    assert hs256.verify(b"a.b", key, signature) is True
    assert hs256.verify(b"a.c", key, signature) is False
    assert hs256.verify(b"a.b", key, b"") is False


def test_hmacs_are_compared_in_constant_time() -> None:
    assert "compare_digest" in inspect.getsource(jwt.algorithms.HMACAlgorithm.verify)


def test_a_key_that_is_prepared_already_stays_what_it_is() -> None:
    """Keys from a file are prepared when they are read."""
    key = ed25519.Ed25519PrivateKey.generate().public_key()

    assert jwt.PyJWS().get_algorithm_by_name("EdDSA").prepare_key(key) is key


def test_an_algorithm_refuses_a_key_of_another_kind_when_it_prepares_it() -> None:
    """A public key is no secret. This is the classic confusion of algorithms."""
    text = b"-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n"
    with pytest.raises(jwt.InvalidKeyError):
        jwt.PyJWS().get_algorithm_by_name("HS256").prepare_key(text)
