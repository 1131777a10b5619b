"""One fetch of an issuer's keys from a real HTTP server, in the test's own process. tests/unit/auth has the plan of fetches."""

import ssl
from pathlib import Path

import pytest

from headgate.auth.jwks import fetch
from tests.support.certificates import Authority
from tests.support.http_receiver import Receiver, status
from tests.support.token_keys import RSA_KEY, jwks

GOOD = jwks(rsa=RSA_KEY)


# A certificate of an issuer → whether its keys are taken.
CERTIFICATES = [
    ("of a trusted authority", "127.0.0.1", False, True),
    ("for another name", "login.example.com", False, False),
    ("expired", "127.0.0.1", True, False),
]


@pytest.mark.parametrize(("name", "host", "expired", "taken"), CERTIFICATES, ids=[row[0] for row in CERTIFICATES])
def test_keys_over_tls_are_taken_from_a_trusted_issuer_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, host: str, expired: bool, taken: bool
) -> None:
    """A server that can answer in its place could sign any token."""
    authority = Authority(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", authority.ca_file)
    with Receiver(authority.server_context(host, expired=expired)) as issuer:
        issuer.answer = status(200, body=GOOD)
        if taken:
            assert fetch(issuer.url()) == GOOD
        else:
            with pytest.raises(ssl.SSLCertVerificationError):
                fetch(issuer.url())
            assert issuer.requests == []
