"""Packet classes of an application's own (`serializer=`), for server and client alike."""

import json
import zlib
from base64 import b64encode

from socketio.packet import Packet


class Zipped(Packet):  # type: ignore[misc]
    """Whole packets in binary messages. Leaves `uses_binary_events` as it is, as a class that never sees bytes may."""

    def encode(self) -> bytes:
        return zlib.compress(json.dumps(self._to_dict()).encode())

    def decode(self, encoded_packet: bytes) -> None:
        decoded = json.loads(zlib.decompress(encoded_packet))
        self.packet_type, self.data = decoded["type"], decoded["data"]
        self.namespace, self.id = decoded["nsp"], decoded.get("id")


class Terse(Packet):  # type: ignore[misc]
    """Whole packets in text messages, with first characters that mean something else than in the standard format."""

    uses_binary_events = False
    # Begins like a standard packet that announces attachments.
    PREFIX = "599-"

    def encode(self) -> str:
        return self.PREFIX + json.dumps(self._to_dict())

    def decode(self, encoded_packet: str) -> None:
        decoded = json.loads(encoded_packet.removeprefix(self.PREFIX))
        self.packet_type, self.data = decoded["type"], decoded["data"]
        self.namespace, self.id = decoded["nsp"], decoded.get("id")


class Counting(Packet):  # type: ignore[misc]
    """The standard format with attachments, by a class of the application's own."""

    encoded = 0

    def encode(self) -> str | list[str | bytes]:
        type(self).encoded += 1
        encoded: str | list[str | bytes] = super().encode()
        return encoded


class Broken(Packet):  # type: ignore[misc]
    """Makes a packet that no message can carry."""

    def encode(self) -> dict[str, str]:
        return {"packet": b64encode(b"?").decode()}
