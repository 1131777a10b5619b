"""The handshake of a link: both ends prove that they know one key, which never travels. No I/O.

    dialer → listener   MAGIC, the owner that is wanted, the dialer's nonce
    listener → dialer   the listener's nonce, its proof
    dialer → listener   its proof

A proof is an HMAC over the role, the owner's name and both nonces. Each side brings a fresh nonce, so what was heard on another
connection proves nothing on this one. The listener proves itself first: a dialer sends no client's bytes to a stranger who has
taken the address of a gateway. Nothing is encrypted: the internal network is trusted not to read or change what it carries.
"""

from __future__ import annotations

import secrets
from enum import Enum, auto
from hashlib import sha256
from hmac import compare_digest, digest

MAGIC = b"headgate-relay-1"
NAME_BYTES = 8
NONCE_BYTES = 32
PROOF_BYTES = 32
_LABEL = b"headgate relay key 1"


class Refused(Exception):
    """The peer is no gateway of this site; `reason` is a word of ours."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Awaits(Enum):
    """The message for which an end waits."""

    HELLO = auto()
    CHALLENGE = auto()
    PROOF = auto()
    NOTHING = auto()


# State → bytes of the message for which it waits, and the state behind it.
TRANSITIONS: dict[Awaits, tuple[int, Awaits]] = {
    Awaits.HELLO: (len(MAGIC) + NAME_BYTES + NONCE_BYTES, Awaits.PROOF),
    Awaits.CHALLENGE: (NONCE_BYTES + PROOF_BYTES, Awaits.NOTHING),
    Awaits.PROOF: (PROOF_BYTES, Awaits.NOTHING),
}


def relay_key(token_secret: str | None, relay_key: str | None) -> bytes | None:
    """Return the key of the links of a site: derived from what is set for them, or from the secret of tokens; None without."""
    secret = relay_key or token_secret
    return None if secret is None else digest(secret.encode(errors="surrogateescape"), _LABEL, sha256)


class Handshake:
    """One end. `receive` takes bytes as they come; `left` is what came behind the handshake.

    Args:
        key: of the site.
        name: of the owner: the wanted one at the dialer, its own at the listener.
        dials: whether this end has opened the connection.
    """

    def __init__(self, key: bytes, name: str, *, dials: bool, nonce: bytes | None = None) -> None:
        self._key, self._name = key, name.encode()
        self._nonce = nonce or secrets.token_bytes(NONCE_BYTES)
        self._nonces = b""
        self._received = b""
        self.state = Awaits.CHALLENGE if dials else Awaits.HELLO
        self.first = MAGIC + self._name + self._nonce if dials else b""

    @property
    def is_over(self) -> bool:
        """Whether the peer has proven itself."""
        return self.state is Awaits.NOTHING

    @property
    def left(self) -> bytes:
        """The bytes that came behind the handshake."""
        return self._received

    def receive(self, data: bytes) -> bytes:
        """Take bytes; return what to send.

        Raises:
            Refused: the peer is none of ours; end the connection.
        """
        self._received += data
        answer = b""
        while self.state in TRANSITIONS and len(self._received) >= TRANSITIONS[self.state][0]:
            size, then = TRANSITIONS[self.state]
            message, self._received = self._received[:size], self._received[size:]
            if self.state is Awaits.HELLO:
                answer += self._hello(message)
            elif self.state is Awaits.CHALLENGE:
                answer += self._challenge(message)
            else:
                self._check(message, b"dialer")
            self.state = then
        if self.state is Awaits.HELLO and not MAGIC.startswith(self._received[: len(MAGIC)]):
            raise Refused("no gateway")
        return answer

    def _hello(self, message: bytes) -> bytes:
        magic, name = message[: len(MAGIC)], message[len(MAGIC) : -NONCE_BYTES]
        if magic != MAGIC:
            raise Refused("no gateway")
        if name != self._name:
            raise Refused("another owner")
        self._nonces = message[-NONCE_BYTES:] + self._nonce
        return self._nonce + self._prove(b"listener")

    def _challenge(self, message: bytes) -> bytes:
        self._nonces = self._nonce + message[:NONCE_BYTES]
        self._check(message[NONCE_BYTES:], b"listener")
        return self._prove(b"dialer")

    def _prove(self, role: bytes) -> bytes:
        return digest(self._key, b"%b %b " % (role, self._name) + self._nonces, sha256)

    def _check(self, proof: bytes, role: bytes) -> None:
        if not compare_digest(proof, self._prove(role)):
            raise Refused("another key")
