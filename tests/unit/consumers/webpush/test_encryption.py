"""Encryption and signatures of Web Push, held to the example of RFC 8291 and to a reader that shares no code with them."""

import base64

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given
from hypothesis import strategies as st

from headgate.consumers.webpush.encryption import (
    MAX_PAYLOAD_BYTES,
    ApplicationKey,
    decode,
    encode,
    encrypt,
    new_keys,
    read_subscription,
)
from tests.support.push_service import PushBrowser

# RFC 8291, section 5.
RFC_PRIVATE = "yfWPiYE-n46HLnH0KqZOF1fJJU3MYrct3AELtAQ-oRw"
RFC_SALT = "DGv6ra1nlYgDCS1FRnbzlw"
RFC_SUBSCRIPTION = {
    "endpoint": "https://push.example.net/push/JzLQ3raZJfFBR0aqvOMsLrt54w4rJUsV",
    "keys": {
        "p256dh": "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4",
        "auth": "BTBZMqHH6r4Tts7J_aSIgg",
    },
}
RFC_MESSAGE = (
    "DGv6ra1nlYgDCS1FRnbzlwAAEABBBP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8wEqKK6PBru3jl7A_yl95bQpu6"
    "cVPTpK4Mqgkf1CXztLVBSt2Ks3oZwbuwXPXLWyouBWLVWGNWQexSgSxsj_Qulcy4a-fN"
)


def test_the_example_of_the_rfc_is_encrypted_byte_by_byte() -> None:
    """With its keys and its salt the message is the one of RFC 8291, section 5."""
    key = ec.derive_private_key(int.from_bytes(decode(RFC_PRIVATE)), ec.SECP256R1())

    body = encrypt(
        b"When I grow up, I want to be a watermelon",
        read_subscription(RFC_SUBSCRIPTION),
        key=key,
        random=lambda _: decode(RFC_SALT),
    )

    assert encode(body) == RFC_MESSAGE


@given(payload=st.binary(max_size=MAX_PAYLOAD_BYTES))
def test_any_payload_up_to_the_bound_can_be_read_by_its_browser(payload: bytes) -> None:
    """The body fits into the 4096 bytes that every push service takes, and a browser's own derivation decrypts it."""
    browser = PushBrowser("https://push.example/1")
    largest = payload.ljust(MAX_PAYLOAD_BYTES, b".")

    assert browser.read(encrypt(payload, read_subscription(browser.subscription))) == payload
    assert browser.read(encrypt(largest, read_subscription(browser.subscription))) == largest


def test_no_two_messages_share_a_key_or_a_salt() -> None:
    """The same payload has another body each time."""
    to = read_subscription(PushBrowser("https://push.example/1").subscription)
    assert len({encrypt(b"same", to)[:86] for _ in range(20)}) == 20


def test_a_token_names_the_service_the_sender_and_its_end() -> None:
    """It is signed with the private key, and ends within the 24 hours of RFC 8292."""
    private, public = new_keys()
    key = ApplicationKey(private)
    header = key.authorization("https://push.example", "mailto:ops@example.com", 1_700_000_000)

    token = header.removeprefix("vapid t=").partition(",")[0]
    signer = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), decode(public))
    claims = jwt.decode(token, signer, algorithms=["ES256"], audience="https://push.example", options={"verify_exp": False})
    assert header.endswith(f", k={public}")
    assert claims == {"aud": "https://push.example", "exp": 1_700_000_000 + 12 * 3600, "sub": "mailto:ops@example.com"}


@pytest.mark.parametrize("text", ["", "abc", "A" * 42, "A" * 43, "A" * 44, "not base64!", "é" * 43])
def test_what_is_no_private_key_is_refused(text: str) -> None:
    """Wrong length, wrong letters, and the number zero, which is no key."""
    with pytest.raises(ValueError, match=r"^expected a private key as `headgate vapid-keys` makes it$"):
        ApplicationKey(text)


GOOD = PushBrowser("https://push.example/1").subscription


@pytest.mark.parametrize(
    "raw",
    [
        None,
        "",
        "{",
        "[" * 100_000,
        [],
        {},
        {"endpoint": "https://push.example/1"},
        {"endpoint": 1, "keys": GOOD["keys"]},
        {"endpoint": "https://push.example/1", "keys": {"p256dh": GOOD["keys"]["p256dh"]}},
        {"endpoint": "https://push.example/1", "keys": {**GOOD["keys"], "auth": "AAAA"}},
        {"endpoint": "https://push.example/1", "keys": {**GOOD["keys"], "auth": "!"}},
        {"endpoint": "https://push.example/1", "keys": {**GOOD["keys"], "p256dh": "AAAA"}},
        {
            "endpoint": "https://push.example/1",
            "keys": {**GOOD["keys"], "p256dh": base64.urlsafe_b64encode(b"\x04" * 65).decode()},
        },
    ],
)
def test_what_is_no_subscription_is_refused(raw: object) -> None:
    """One sentence with the expected form, and nothing of the endpoint."""
    with pytest.raises(ValueError, match=r'^expected \{"endpoint", "keys"'):
        read_subscription(raw)
