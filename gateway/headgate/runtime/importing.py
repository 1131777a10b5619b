"""Imports an application, a consumer or a function by a string such as `package.module:attribute`. No state."""

from __future__ import annotations

import importlib
import os
import re
import sys
from contextlib import suppress
from importlib.abc import SourceLoader
from typing import Any

from headgate.errors import InvalidRequest

# The form of an application's name.
APPLICATION = "MODULE:APPLICATION or MODULE:FACTORY"
# Code that may define a name not spelled in the source.
_BROUGHT = re.compile(r"import\s*\*|\b(globals|vars|exec|setattr|__dict__|__getattr__)\b")


def check_string(name: str, expected: str, default: str) -> None:
    """Raise the errors of `import_string` that can be detected without an import, before anything starts."""
    module_name, attribute = _split(name, expected, default)
    path, spec = None, None
    whole = module_name.split(".")
    for length in range(1, len(whole) + 1):
        part = ".".join(whole[:length])
        if part in sys.modules and length < len(whole):
            path = getattr(sys.modules[part], "__path__", None)
            continue
        try:
            spec = next(filter(None, (finder.find_spec(part, path) for finder in sys.meta_path)), None)
        except (KeyError, ModuleNotFoundError):
            # A nested namespace package (no __init__.py), which Python finds only after its parent: a KeyError before 3.15.
            return
        if spec is None:
            raise _no_module(part)
        if spec.submodule_search_locations is None and length < len(whole):  # `shop.app` of a file shop.py, and `shop.py` itself
            after = attribute if whole[length] == "py" else whole[length]
            raise _no_module(module_name, f"; did you mean '{part}:{after}'?")
        path = spec.submodule_search_locations
    if spec is not None and path is None and isinstance(spec.loader, SourceLoader) and spec.origin is not None:
        source = spec.loader.get_data(spec.origin).decode(errors="replace")
        if not re.search(rf"\b{re.escape(attribute)}\b", source) and not _BROUGHT.search(source):
            raise InvalidRequest(f"module {module_name!r} has no {attribute!r}; expected {expected}")


def import_string(name: str, expected: str, default: str | None = None) -> Any:
    """Import a module and return one of its attributes. The current folder comes first on the path.

    Args:
        name: `package.module:attribute`, or `package.module` when there is a `default`.
        expected: the form to name in errors, such as `MODULE:CLASS`.
        default: the attribute when `name` has none.

    Raises:
        InvalidRequest: `name` has another form, or there is no such module or attribute.
        Exception: any error of the module's own import, including a module that it needs.
    """
    module_name, attribute = _split(name, expected, default)
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        # The module itself or its package is missing, not a module that it imports.
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise
        raise _no_module(error.name) from error
    value = getattr(module, attribute, None)
    if value is None:
        raise InvalidRequest(f"module {module_name!r} has no {attribute!r}; expected {expected}")
    return value


def _split(name: str, expected: str, default: str | None) -> tuple[str, str]:
    """Return module and attribute, and put the current folder first on the path."""
    module_name, _, attribute = name.partition(":")
    attribute = (attribute or default or "").removesuffix("()")  # which gunicorn and Flask want after a factory
    if not attribute or not _is_module(module_name):
        module = module_name.removeprefix("./").removesuffix(".py").replace("/", ".")  # of the path of a file
        hint = f"; did you mean '{module}:{attribute}'?" if attribute and _is_module(module) else ""
        raise InvalidRequest(f"{name!r} is not of the form {expected}{hint}")
    with suppress(FileNotFoundError):  # it was deleted
        here = os.getcwd()
        if here not in sys.path:
            sys.path.insert(0, here)
    return module_name, attribute


def _is_module(name: str) -> bool:
    return all(part.isidentifier() for part in name.split("."))


def _no_module(name: str, hint: str = "") -> InvalidRequest:
    return InvalidRequest(f"no module named {name!r} (looked in {os.getcwd()} first){hint}")
