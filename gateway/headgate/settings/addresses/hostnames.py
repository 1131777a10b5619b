"""Host names: the single ASCII form for resolving, comparing and showing a host. No I/O.

Non-ASCII names follow IDNA 2008 (RFC 5891) after the mapping of UTS 46, non-transitional, like browsers. Python's own codec
`idna`, which `socket`, `ssl` and `http.client` apply to non-ASCII names, is IDNA 2003 and may reach another host (`straße.de` →
`strasse.de`). So only the result of `ascii_host` may reach them.
"""

from __future__ import annotations

import ipaddress
import re

from headgate.installation import advice

MAX_NAME_CHARACTERS = 253
_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?", re.ASCII)
# Read as an IPv4 address by every resolver except strict ones: `0x7f.1`, `1270.1`.
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*", re.ASCII)
_SCOPE = re.compile(r"[A-Za-z0-9._~-]{1,32}", re.ASCII)


def ascii_host(text: str) -> str:
    """Return a host in its single spelling: lower case, ASCII, without brackets and without a final dot.

    An IPv4 address has four decimal numbers. An IPv6 address, with or without brackets, is compressed (RFC 5952). The labels of
    a name have 1 to 63 letters, digits, `-` and `_` (not allowed by RFC 952, and usual on private networks). Raises ValueError:
    it is no host; one sentence gives the reason, in printable ASCII.
    """
    if len(text) > MAX_NAME_CHARACTERS + 1:
        raise ValueError(f"the host name is longer than {MAX_NAME_CHARACTERS} characters")
    if ":" in text or text.startswith("["):
        return _ipv6(text)
    name = (text if text.isascii() else _encode(text)).lower().removesuffix(".")
    if not name:
        raise ValueError("the host name is empty")
    if len(name) > MAX_NAME_CHARACTERS:
        raise ValueError(f"the host name is longer than {MAX_NAME_CHARACTERS} characters")
    labels = name.split(".")
    if _NUMBER.fullmatch(labels[-1]):
        try:
            return str(ipaddress.IPv4Address(name))
        except ValueError:
            raise ValueError("the last label of a host name is no number, and an IPv4 address has four from 0 to 255") from None
    if not all(map(_LABEL.fullmatch, labels)):
        raise ValueError(
            "each label of a host name has 1 to 63 letters, digits, - and _, without - at its ends, and a dot before the next one"
        )
    return name


def _encode(text: str) -> str:
    try:
        import idna  # imported here, as a publisher's installation lacks it
    except ModuleNotFoundError as error:
        raise ValueError(f"a host name with other letters than ASCII {advice(error, 'server')}") from error
    try:
        # A separate first step, so that a name that becomes ASCII (full-width letters) keeps an underscore.
        mapped = idna.uts46_remap(text, std3_rules=False, transitional=False)
        labels = (label if label.isascii() else idna.alabel(label).decode("ascii") for label in mapped.split("."))
        return mapped if mapped.isascii() else ".".join(labels)
    except idna.IDNAError:  # its text repeats the name, which in an unencoded URL may be part of a password
        raise ValueError("the host name is not valid under IDNA 2008") from None


def _ipv6(text: str) -> str:
    inner = text[1:-1] if text.startswith("[") and text.endswith("]") else text
    try:
        address = ipaddress.IPv6Address(inner)
    except ValueError:
        raise ValueError("a host with a colon or a bracket is an IPv6 address, such as ::1 or [2001:db8::1]") from None
    if address.scope_id is not None and not _SCOPE.fullmatch(address.scope_id):
        raise ValueError("the zone of an IPv6 address has 1 to 32 letters, digits and . _ ~ -")
    return str(address)
