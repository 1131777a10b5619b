"""Loads TLS files with errors that name the file.

OpenSSL's errors do not name the file, and it asks for passwords at the terminal.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from os.path import exists


def load_certificate(
    context: ssl.SSLContext, prefix: str, certfile: str, keyfile: str | None = None, password: str | None = None
) -> None:
    """Load a certificate and its key. `prefix` begins the names of the options. Raises ValueError for unusable files."""

    def given() -> str:
        if password is None:
            raise ValueError(f"the key of {prefix}certfile {str(certfile)!r} has a password, and none is given")
        return password

    named = f"{prefix}certfile {str(certfile)!r}" + (f" with {prefix}keyfile {str(keyfile)!r}" if keyfile else "")
    _load(lambda: context.load_cert_chain(certfile, keyfile, given), named, certfile, keyfile)


def load_authorities(context: ssl.SSLContext, prefix: str, ca_certs: str) -> None:
    """Load the certificates of authorities. Raises ValueError for an unusable file."""
    _load(lambda: context.load_verify_locations(ca_certs), f"{prefix}ca_certs {str(ca_certs)!r}", ca_certs)


def _load(load: Callable[[], object], named: str, *paths: str | None) -> None:
    try:
        load()
    except ssl.SSLError as error:
        reason = "no PEM text of a certificate and its key, or a wrong password"
        if error.reason == "KEY_VALUES_MISMATCH":
            reason = "the key is of another certificate"
        raise ValueError(f"{named}: {reason}") from error
    except OSError as error:
        missing = next((path for path in paths if path is not None and not exists(path)), None)
        reason = f"there is no {str(missing)!r}" if missing else (error.strerror or "cannot be read").lower()
        raise ValueError(f"{named}: {reason}") from error
