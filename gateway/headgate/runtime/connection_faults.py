"""Describes why a connection failed, for people and in any protocol, without addresses and the numbers that the system adds."""

from __future__ import annotations

import re
import socket
import ssl

# OpenSSL's names of alerts that refuse the client, mostly for its certificate (RFC 8446, section 6.2).
_CERTIFICATE_ALERT = re.compile("_ALERT_(BAD_CERTIFICATE|CERTIFICATE_|UNSUPPORTED_CERTIFICATE|UNKNOWN_CA|ACCESS_DENIED)")


def refuses_certificate(error: BaseException) -> bool:
    """Return whether it is an alert about the client's certificate, or its lack of one."""
    return isinstance(error, ssl.SSLError) and _CERTIFICATE_ALERT.search(getattr(error, "reason", None) or "") is not None


def reason_of(error: BaseException) -> str:
    """Return why a connection failed, in a phrase; "" for an error that does not come from the system."""
    match error:
        case ssl.SSLCertVerificationError():
            return f"its certificate is not accepted: {error.verify_message}"
        case ssl.SSLEOFError():
            return "it closed the connection during the TLS handshake or after it"
        case ssl.SSLError() if refuses_certificate(error):
            return "it accepts only clients with a certificate that it trusts"
        case ssl.SSLError():
            # An error of invalid ciphers has no `reason`.
            reason = getattr(error, "reason", None) or (error.args or ("handshake failed",))[-1]
            return f"no TLS ({str(reason).lower().replace('_', ' ')})"
        case TimeoutError():
            return "no answer in time"
        case socket.gaierror():
            return "no such host"
        case ConnectionResetError() | BrokenPipeError():
            return "it closed the connection"
        case OSError() if error.strerror:
            return error.strerror[0].lower() + error.strerror[1:]
    return ""
