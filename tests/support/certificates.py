"""Certificates for tests: an authority made on the spot, and the certificates of servers. Nothing is trusted but by the test."""

import ipaddress
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

DAY = timedelta(days=1)
_NOT_SIGNED = ("digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement")
_SIGNS = x509.KeyUsage(
    key_cert_sign=True, crl_sign=True, encipher_only=False, decipher_only=False, **dict.fromkeys(_NOT_SIGNED, False)
)


class Authority:
    """A certificate authority with the PEM file `ca_file` as its certificate, in `folder`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name("Authority of a test")
        self._issued = 0
        own = _builder(self._name, self._name, self._key, datetime.now(UTC) + DAY)
        own = own.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        # Python 3.13 and newer verify strictly by RFC 5280, which wants these, and the authority's key named in what it issues.
        own = own.add_extension(_SIGNS, critical=True)
        own = own.add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False)
        self.ca_file = str(folder / "authority.pem")
        Path(self.ca_file).write_bytes(own.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))

    def issue(self, host: str, *, expired: bool = False) -> tuple[str, str]:
        """Return the paths of a certificate for this name or address, and of its key."""
        self._issued += 1
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(_name(host), self._name, key, datetime.now(UTC) + (-DAY if expired else DAY))
        builder = builder.add_extension(x509.SubjectAlternativeName([_subject(host)]), critical=False)
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        signed = builder.add_extension(issuer, critical=False).sign(self._key, hashes.SHA256())
        certificate, private = self._folder / f"{self._issued}.pem", self._folder / f"{self._issued}.key"
        certificate.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
        private.write_bytes(
            key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        )
        return str(certificate), str(private)

    def server_context(self, host: str, *, expired: bool = False) -> ssl.SSLContext:
        """Return a context for the sockets of a server with this name or address."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*self.issue(host, expired=expired))
        return context


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, until: datetime) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(until - 3 * DAY)
        .not_valid_after(until)
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _subject(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
