"""The table of the transport is read from the sources."""

import ast

import pytest

from tools.transport_table import Size, corners, main, pins, readers, sizes


@pytest.mark.nightly
def test_the_table_of_this_checkout_has_one_reader_of_http(capsys: pytest.CaptureFixture[str]) -> None:
    """And it counts lines."""
    assert main() == 0
    rows = [line.split(" | ") for line in capsys.readouterr().out.splitlines()[2:]]
    now = {row[0].removeprefix("| "): row[1] for row in rows}
    assert now["ways an HTTP request can be read"] == "1: http_parser in http_channel, http_connection"
    assert int(now["product lines of transport and hand-over"]) > 1000


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import h11\nh11.Connection(h11.CLIENT)", set()),
        ("import h11\nh11.Connection(h11.SERVER)", {"h11"}),
        ("from gevent import pywsgi", {"gevent.pywsgi"}),
        ("import http.server, http.client", {"http.server"}),
        ("from .http_parser import BadRequest, RequestParser", {"http_parser"}),
        ("from .http_parser import BadRequest", set()),
    ],
)
def test_a_reader_of_requests_is_found_by_what_it_imports_or_calls(source: str, found: set[str]) -> None:
    """A reader of answers is none."""
    assert readers(ast.parse(source)) == found


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import gevent\ngevent.spawn(f)._links", []),
        ("import gevent\ngevent.hub._get()", [("gevent", "_get")]),
        ("from gevent import _socket3 as s", [("gevent", "_socket3")]),
        ("from .engineio import _private", []),
        (
            "import socketio\nclass A(socketio.Server):\n  def f(self): self._x = self._y",
            [("socketio", "class A"), ("socketio", "_y")],
        ),
        ("import socketio\nclass A(socketio.Server):\n  def _f(self): self._f(); self.__class__", [("socketio", "class A")]),
    ],
)
def test_a_private_name_is_found_where_it_is_imported_read_or_inherited(source: str, found: list[tuple[str, str]]) -> None:
    """Of the named packages."""
    assert list(corners(ast.parse(source))) == found


def test_a_class_has_methods_and_the_attributes_that_it_sets() -> None:
    tree = ast.parse("class A:\n  def f(self): self.a = self.b = 1\n  def g(self): self.a += self.c")
    assert list(sizes(tree)) == [Size("A", 2, 2)]


def test_a_pin_ends_a_range() -> None:
    project = '[project]\n[project.optional-dependencies]\nserver = ["a>=1", "b>=1,<2", "c==3"]'
    assert pins(project) == ["b>=1,<2", "c==3"]
