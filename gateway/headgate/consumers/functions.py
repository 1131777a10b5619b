"""Check the operator's own functions in a consumer's options (`to_function`) before anything runs."""

from __future__ import annotations

from headgate.errors import InvalidRequest
from headgate.runtime.importing import import_string

FUNCTION = "package.module:function"


def function_faults(name: str, value: str | None) -> list[str]:
    """Return why the option `name` is not a function, in at most one line. None means unset."""
    try:
        if value is not None and not callable(import_string(value, FUNCTION)):
            return [f"{name}={value!r}: expected a function"]
    except InvalidRequest as error:
        return [f"{name}={value!r}: {error.parts['reason']}"]
    except Exception as error:  # noqa: BLE001 - whatever the module raises while it is imported
        return [f"{name}={value!r}: cannot be imported: {type(error).__name__}"]
    return []
