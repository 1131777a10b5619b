"""How pywsgi reads and writes a message, so that ours can bound how long it takes."""

from __future__ import annotations

import errno
import inspect
import io
from io import BytesIO
from typing import Any

from gevent import baseserver, pywsgi


def source(thing: Any) -> str:
    return inspect.getsource(thing)


def test_pywsgi_reads_through_the_reader_that_it_is_given() -> None:
    """Request line, headers and body, and nothing from the socket itself."""
    assert list(inspect.signature(pywsgi.WSGIHandler.__init__).parameters) == ["self", "sock", "address", "server", "rfile"]
    assert ".recv" not in source(pywsgi.WSGIHandler.handle_one_request) + source(pywsgi.Input)
    assert "self.rfile.readline(MAX_REQUEST_LINE)" in source(pywsgi.WSGIHandler.read_requestline)


def test_pywsgi_writes_answers_through_one_method() -> None:
    """All but 100 Continue, whose method is ours, and the answer to a bad request, which is short."""
    assert "self._sendall(" in source(pywsgi.WSGIHandler._write)
    for method in ("_write", "_write_with_headers", "process_result", "write"):
        assert "socket.send" not in source(getattr(pywsgi.WSGIHandler, method))
    assert "self.finalize_headers()" in source(pywsgi.WSGIHandler._write_with_headers)


def test_the_answer_to_a_bad_request_can_be_chosen() -> None:
    """A status and the bytes, which are written and end the connection; the body's faults have another way."""
    assert "return self._handle_client_error(ex)" in source(pywsgi.WSGIHandler.handle_one_request)
    assert "self.socket.sendall(response_body)" in source(pywsgi.WSGIHandler.handle)
    assert "self._send_error_response_if_possible(400)" in source(pywsgi.WSGIHandler.handle_one_response)
    assert "self._send_error_response_if_possible(500)" in source(pywsgi.WSGIHandler.handle_error)


def test_a_body_tells_how_far_it_was_read() -> None:
    """Position of its declared length; 0 as the length of the last chunk; the socket until 100 Continue was sent."""
    plain = pywsgi.Input(io.BufferedReader(BytesIO(b"hello")), 5)
    assert (plain.read(2), plain.position, plain.content_length) == (b"he", 2, 5)
    chunked = pywsgi.Input(io.BufferedReader(BytesIO(b"2\r\nhe\r\n0\r\n\r\n")), None, None, True)
    assert (chunked.read(2), chunked.chunked_input, chunked.chunk_length) == (b"he", True, 2)
    assert (chunked.read(), chunked.chunk_length) == (b"", 0)
    assert "self.socket = None" in source(pywsgi.Input._send_100_continue)


def test_a_connection_that_is_reset_is_no_news() -> None:
    """No traceback for an error of this number that an application lets through."""

    assert errno.ECONNRESET in pywsgi.WSGIHandler.ignored_socket_errors
    assert "ex.args[0] in self.ignored_socket_errors" in source(pywsgi.WSGIHandler.handle_one_response)


def test_every_connection_is_closed_by_a_method_that_can_be_overridden() -> None:
    """gevent calls it however the handler ended."""
    assert "self.do_close" in source(baseserver.BaseServer.do_handle)
    assert "finally:" in source(baseserver._handle_and_close_when_done)
