"""Functions and certificate files that options name."""

import os
import ssl
from pathlib import Path

import pytest

from headgate.consumers.values import FUNCTION, trust_again
from headgate.settings.options import WrongValue
from tests.support.certificates import Authority


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("os:sep", "expected a function"),
        ("asyncio:sleep", "expected a function, not a coroutine (async def)"),
        ("os:missing", "module 'os' has no 'missing'; expected package.module:function"),
    ],
)
def test_a_function_of_the_operator_is_checked_before_anything_runs(value: str, expected: str) -> None:
    """It is imported when the option is read, or the fault names the expected form."""
    assert FUNCTION.read("os:getcwd") is os.getcwd
    with pytest.raises(WrongValue) as refused:
        FUNCTION.read(value)
    assert (str(refused.value), refused.value.says_expected) == (expected, True)


def test_certificates_are_read_again_after_a_refused_one_only(tmp_path: Path) -> None:
    """Not after another fault, and not while the file is being replaced."""
    context, refused = ssl.create_default_context(), ssl.SSLCertVerificationError()
    trusted = Authority(tmp_path).ca_file
    assert trust_again(context, trusted, OSError()) is context
    assert trust_again(context, str(tmp_path / "missing.pem"), refused) is context
    renewed = trust_again(context, trusted, refused)
    assert renewed is not None
    assert len(renewed.get_ca_certs()) == 1
