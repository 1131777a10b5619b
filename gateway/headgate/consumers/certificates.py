"""Check the certificate files in a consumer's options (`ca_file`) before anything runs."""

from __future__ import annotations

import ssl


def ca_file_faults(path: str | None) -> list[str]:
    """Return why a PEM file cannot replace the system's certificates, in at most one line. None means the system's."""
    try:
        if path is not None:
            ssl.create_default_context(cafile=path)
    except ssl.SSLError:
        return [f"ca_file={path!r}: no certificates in it"]
    except OSError as error:
        return [f"ca_file={path!r}: {(error.strerror or 'cannot be read').lower()}"]
    return []
