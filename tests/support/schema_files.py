"""Schemas of topics as tests write them: values by file name, and the golden folder."""

import json
from collections.abc import Mapping
from pathlib import Path

from headgate.services.schemas.catalogue import Catalogue, read_catalogue
from headgate.services.schemas.documents import Documents, documents

GOLDEN = Path(__file__).resolve().parents[1] / "golden"


def texts(schemas: Mapping[str, object]) -> Documents:
    """Return schemas as documents; bytes are the text itself."""
    return documents(
        {name: schema if isinstance(schema, bytes) else json.dumps(schema).encode() for name, schema in schemas.items()}
    )


def catalogue(schemas: Mapping[str, object]) -> Catalogue:
    return read_catalogue(texts(schemas))


def write(folder: Path, schemas: Mapping[str, object]) -> Path:
    """Write schemas into a folder, and return it."""
    folder.mkdir(exist_ok=True)
    for name, text in texts(schemas).texts.items():
        (folder / name).write_bytes(text)
    return folder
