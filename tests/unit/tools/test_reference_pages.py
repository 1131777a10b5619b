"""The page of the Python package, which says what is public."""

from __future__ import annotations

import re

import headgate
from tools.reference_pages import python_page

# Of the Flask extension: for the servers that serve its application, and for decorators that return their function.
INTERNAL = {"AnswererT", "Authenticator", "Authorizer", "Health", "Routes"}
# Python's own. MissingExtra is caught as an ImportError.
PYTHON = {"Any", "Callable", "MissingExtra", "None", "RuntimeError", "TypeError", "ValueError"}


def test_a_caller_can_import_what_a_public_function_returns_or_raises() -> None:
    """Otherwise it could not annotate a variable, compare a fate or catch an error, as what is not on the page may change."""
    page = python_page()
    returned = re.findall(r"\) -> (.+)$", page, re.MULTILINE)
    raises = re.findall(r"\*\*Raises\*\*\n\n(.+?)\n\n", page, re.DOTALL)
    raised = re.findall(r"^- ((?:`\w+`(?:, )?)+): ", "\n".join(raises), re.MULTILINE)

    named = set(re.findall(r"[A-Z]\w+", " ".join(returned + raised)))

    assert named - set(headgate.__all__) == INTERNAL | PYTHON
