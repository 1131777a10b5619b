"""Imports from a string such as `package.module:attribute`: an application, a consumer, a function. No state."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

from headgate.errors import InvalidRequest


def import_string(name: str, expected: str, default: str | None = None) -> Any:
    """Import a module and return what it has under a name. Looks in the current folder first, then where Python looks.

    Args:
        name: `package.module:attribute`, or `package.module` when there is a `default`.
        expected: the form to name in errors, such as `MODULE:CLASS`.
        default: the attribute when `name` has none.

    Raises:
        InvalidRequest: `name` is not of that form, or there is no such module or attribute.
        Exception: whatever the module raises while it is imported, a module that it is missing included.
    """
    module_name, _, attribute = name.partition(":")
    attribute = attribute or default or ""
    if not attribute or not all(part.isidentifier() for part in module_name.split(".")):
        raise InvalidRequest(f"{name!r} is not of the form {expected}")
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        # The module itself, or a package around it, is missing; not one that it imports.
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise
        raise InvalidRequest(f"no module named {error.name!r} (looked in {here} first)") from error
    found = getattr(module, attribute, None)
    if found is None:
        raise InvalidRequest(f"module {module_name!r} has no {attribute!r}; expected {expected}")
    return found
