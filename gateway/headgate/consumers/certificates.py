"""Files of certificates among a consumer's options (`ca_file`): what is wrong with one, before anything runs."""

from __future__ import annotations

import ssl


def ca_file_faults(path: str | None) -> list[str]:
    """Return why a PEM file cannot be trusted instead of the system's, in one line at most. None: the system's are trusted."""
    try:
        if path is not None:
            ssl.create_default_context(cafile=path)
    except ssl.SSLError:
        return [f"ca_file={path!r}: no certificates in it"]
    except OSError as error:
        return [f"ca_file={path!r}: {(error.strerror or 'cannot be read').lower()}"]
    return []
