"""How pywsgi accepts connections, so that ours can stop for a while when there is nothing left to have one with."""

from __future__ import annotations

import inspect

from gevent import baseserver, pywsgi


def test_pywsgi_accepts_with_a_method_that_can_be_overridden() -> None:
    """`do_read()` in the watcher of the listener; nothing returned means nothing accepted, and no harm."""
    source = inspect.getsource(baseserver.BaseServer._do_read)
    assert "args = self.do_read()" in source
    assert "if not args:\n                    return" in source


def test_accepting_can_be_stopped_and_started_without_closing() -> None:
    """The listener stays; `started` says whether the server was stopped meanwhile."""
    server = pywsgi.WSGIServer(("127.0.0.1", 0), lambda environ, start_response: [])
    server.start()
    try:
        server.stop_accepting()
        assert server._watcher is None
        assert server.started
        server.start_accepting()
        assert server._watcher is not None
    finally:
        server.stop(timeout=0)
    assert not server.started
