"""The part of PyJWT that verifies tokens with public keys: its algorithms, called as its own `decode` calls them."""

import jwt
from cryptography.hazmat.primitives.asymmetric import ed25519


def test_an_algorithm_prepares_a_key_and_says_whether_it_made_a_signature() -> None:
    """`verify(message, prepared key, signature)`: those three, in this order, and a bool. A prepared key stays what it is."""
    algorithm, private = jwt.PyJWS().get_algorithm_by_name("EdDSA"), ed25519.Ed25519PrivateKey.generate()
    key = algorithm.prepare_key(private.public_key())
    signature = algorithm.sign(b"a.b", private)

    assert algorithm.prepare_key(key) is key
    assert algorithm.verify(b"a.b", key, signature) is True
    assert algorithm.verify(b"a.c", key, signature) is False
    assert algorithm.verify(b"a.b", key, b"") is False
