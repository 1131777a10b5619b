"""Schema files as JSON texts by file name, with a version. The only I/O is reading a folder.

In: a folder, or the contents of the registry in Redis. Out: `Documents`, bounded in number and bytes. catalogue.py interprets
them.
"""

from __future__ import annotations

import hashlib
import re
from codecs import BOM_UTF8
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from headgate.errors import InvalidSchema

MAX_DOCUMENTS = 256
MAX_DOCUMENT_BYTES = 64 * 1024
# In total. One read of the registry returns all of them.
MAX_BYTES = 1024 * 1024
SUFFIX = ".json"
# The fault of a folder without schemas of topics.
NO_TOPIC = "has no schema of a topic; expected files such as orders.*.shipped.json"
# Hexadecimal digits of a version of 64 bits.
_VERSION_DIGITS = 16

_NAME = re.compile(r"[A-Za-z0-9_*#][A-Za-z0-9_.*#-]{0,255}\.json", re.ASCII)
_NAMES = f"a name of letters, digits, _, -, *, # and dots that ends with {SUFFIX}"
# Refused with a message, so that no topic stays unchecked by mistake.
_NOT_READ = (".yaml", ".yml", ".json5", ".jsonc", ".avsc")


@dataclass(frozen=True, slots=True)
class Documents:
    """JSON texts by file name, in order. Made by `documents`."""

    texts: Mapping[str, bytes]

    def __hash__(self) -> int:
        return hash(self.version)

    @property
    def version(self) -> str:
        """A hash of all names and texts, so equal documents have the same version everywhere."""
        digest = hashlib.sha256()
        for name, text in self.texts.items():
            digest.update(b"%b\0%d\0%b" % (name.encode(), len(text), text))
        return digest.hexdigest()[:_VERSION_DIGITS]


def documents(texts: Mapping[str, bytes]) -> Documents:
    """Return texts by file name as documents. Raises InvalidSchema for an invalid name or for too much text."""
    by_name = {name: texts[name].removeprefix(BOM_UTF8).strip() for name in sorted(texts)}
    for name, text in by_name.items():
        if not _NAME.fullmatch(name):
            raise InvalidSchema(name, f"expected {_NAMES}")
        if len(text) > MAX_DOCUMENT_BYTES:
            raise InvalidSchema(name, f"{len(text)} bytes, at most {MAX_DOCUMENT_BYTES} are allowed")
    if len(by_name) > MAX_DOCUMENTS:
        raise InvalidSchema(max(by_name), f"{len(by_name)} files, at most {MAX_DOCUMENTS} are allowed")
    if (size := sum(map(len, by_name.values()))) > MAX_BYTES:
        raise InvalidSchema(max(by_name), f"{size} bytes in all files, at most {MAX_BYTES} are allowed")
    return Documents(by_name)


def read_folder(folder: str) -> Documents:
    """Return the `*.json` files of a folder. Other and hidden files are ignored.

    Raises InvalidSchema as `documents`, and if the folder cannot be read or holds folders or schemas of another format.
    """
    texts: dict[str, bytes] = {}
    try:
        for path in sorted(Path(folder).iterdir()):
            if path.name.startswith("."):
                continue
            if path.is_dir():
                raise InvalidSchema(f"{path}/", f"a folder in the folder of schemas; expected files {SUFFIX} side by side")
            if path.suffix.lower() in _NOT_READ:
                raise InvalidSchema(str(path), f"expected JSON Schema in a file {SUFFIX}")
            if path.suffix == SUFFIX:
                with path.open("rb") as file:
                    texts[path.name] = file.read(MAX_DOCUMENT_BYTES + 1)
    except OSError as error:
        raise InvalidSchema(str(error.filename or folder), f"cannot be read: {error.strerror}") from error
    except ValueError as error:  # a path with a zero byte or a lone surrogate
        raise InvalidSchema(str(folder), f"cannot be read: {error}") from error
    return documents(texts)
