"""Signatures: accepted by the specification's own library, and secrets that it would refuse."""

import base64

import pytest

from headgate.consumers.webhook.consumer import EXPECTED_SECRET, read_secrets, sign

SECRET = "whsec_" + base64.b64encode(bytes(range(32))).decode()
OLDER = "whsec_" + base64.b64encode(bytes(range(100, 124))).decode()


def test_it_signs_as_the_specification_shows() -> None:
    """The worked example of the reference libraries, to the letter."""
    keys = read_secrets("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")

    signature = sign(keys, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}')

    assert signature == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


@pytest.mark.parametrize(
    "text",
    [
        "whsec_" + base64.b64encode(b"only for the example, not yours").decode(),
        "",
        "   ",
        "plain",
        "whsec_",
        "whsec_not base64!",
        "whsec_" + base64.b64encode(bytes(23)).decode(),
        "whsec_" + base64.b64encode(bytes(65)).decode(),
        SECRET.removeprefix("whsec_"),
        f"{SECRET} plain",
        " ".join([SECRET] * 4),
        "whsec_" + "é" * 40,
    ],
)
def test_a_text_that_is_no_secret_is_refused_and_not_quoted(text: str) -> None:
    """Too short, too long, no base64, no prefix, too many."""
    with pytest.raises(ValueError, match="expected 1 to 3 secrets") as refused:
        read_secrets(text)

    assert str(refused.value) == f"expected {EXPECTED_SECRET}"
    assert refused.value.__context__ is None
