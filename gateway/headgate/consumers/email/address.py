"""Validates mail addresses and returns their canonical spelling. No I/O.

Deliberately stricter than RFC 5321 and 5322, without comments, quoted local parts, address literals and routes. Ordinary
addresses pass, and none can carry a second address, a header or a command.
"""

from __future__ import annotations

import re
import unicodedata

from headgate.settings.addresses.origins import ascii_host

MAX_ADDRESS_CHARACTERS = 254  # RFC 5321, section 4.5.3.1.3, less the brackets
MAX_LOCAL_CHARACTERS = 64  # section 4.5.3.1.1
MAX_NAME_CHARACTERS = 100
_ATOM_MARKS = frozenset("!#$%&'*+-/=?^_`{|}~.")  # RFC 5322, section 3.2.3
_DOTS = ".\u3002\uff0e\uff61"  # IDNA treats all of them as dots
_MAILBOX = re.compile(r"(?P<name>[^<>]*)<(?P<address>[^<>]*)>")


# A display name ("" for none) and an address, as in email.utils.
Mailbox = tuple[str, str]


def check_address(raw: object) -> str:
    """Return an address in its canonical spelling, stripped, the domain in lower case and in ASCII (IDNA).

    The local part may have letters beyond ASCII, which need a server with SMTPUTF8. Raises ValueError, with the reason but
    without the address, if it is not an address.
    """
    if not isinstance(raw, str):
        raise ValueError(f"it is of type {type(raw).__name__}, not text")
    if not (address := raw.strip(" ")):
        raise ValueError("it is empty")
    if len(address) > MAX_ADDRESS_CHARACTERS:
        raise ValueError(f"it is longer than {MAX_ADDRESS_CHARACTERS} characters")
    local, at, domain = address.partition("@")
    if not at or "@" in domain:
        raise ValueError("expected exactly one @")
    spelt = f"{_check_local(local)}@{_check_domain(domain)}"
    if len(spelt) > MAX_ADDRESS_CHARACTERS:
        raise ValueError(f"it is longer than {MAX_ADDRESS_CHARACTERS} characters")
    return spelt


def read_mailbox(raw: object) -> Mailbox:
    """Parse `name <address>` or a bare address. Raises ValueError for anything else."""
    match = _MAILBOX.fullmatch(raw.strip(" ")) if isinstance(raw, str) else None
    if match is None:
        return "", check_address(raw)
    name = match["name"].strip(" ").strip('"')
    if len(name) > MAX_NAME_CHARACTERS or not name.isprintable() or "=?" in name or '"' in name:
        raise ValueError(f"the name before the address must be at most {MAX_NAME_CHARACTERS} printable characters")
    return name, check_address(match["address"])


def _check_local(local: str) -> str:
    if not 1 <= len(local) <= MAX_LOCAL_CHARACTERS:
        raise ValueError(f"expected 1 to {MAX_LOCAL_CHARACTERS} characters before the @")
    if local.startswith(".") or local.endswith(".") or ".." in local:
        raise ValueError("a dot at the start or end, or two in a row, before the @")
    # A compatibility form of a letter (full width, ligature) could pass for that letter.
    if unicodedata.normalize("NFKC", local) != local or not all(_may_stand(character) for character in local):
        raise ValueError("a character before the @ is not allowed there")
    return local


def _may_stand(character: str) -> bool:
    if character.isascii():
        return character.isalnum() or character in _ATOM_MARKS
    # Letters, their marks, and digits; nothing invisible, blank, or changing the writing direction.
    return unicodedata.category(character)[0] in "LMN"


def _check_domain(domain: str) -> str:
    try:
        name = ascii_host(domain)
    except ValueError as error:
        raise ValueError("the part after the @ is not a host name") from error
    # Literals, names of private networks, and a final dot, which no mail address has (RFC 5321, section 4.1.2).
    if ":" in name or "_" in name or name.rpartition(".")[2].isdigit() or domain[-1] in _DOTS:
        raise ValueError("the part after the @ is not a host name")
    return name
