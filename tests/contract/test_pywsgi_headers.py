"""The interface that pywsgi asks of a request's headers, so that ours can stand in for them."""

from __future__ import annotations

import ast
import inspect
import textwrap

from gevent import pywsgi

from headgate.transport.request_headers import RequestHeaders


def test_pywsgi_makes_headers_by_a_method_that_can_be_overridden() -> None:
    """`MessageClass(rfile, …)` is called on the handler, once per request."""
    assert "self.headers = self.MessageClass(self.rfile, 0)" in inspect.getsource(pywsgi.WSGIHandler.read_request)


def test_pywsgi_asks_for_nothing_that_ours_do_not_have() -> None:
    """Every attribute that its handler reads of `self.headers`."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(pywsgi.WSGIHandler)))
    asked = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Attribute) and node.value.attr == "headers"
    }
    assert asked == {"status", "get", "getheader", "headers", "typeheader"}
    assert all(hasattr(RequestHeaders, name) for name in (*asked, "__delitem__"))


def test_headers_that_are_refused_are_answered_400_without_a_traceback() -> None:
    """A status makes `read_request` raise pywsgi's own error, which it answers."""
    assert "if self.headers.status:" in inspect.getsource(pywsgi.WSGIHandler.read_request)
    assert issubclass(pywsgi._InvalidClientRequest, ValueError)
