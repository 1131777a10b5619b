"""The servers that carry no WebSocket of ours."""

import pytest

from headgate.runtime.wsgi_servers import advice, server_of, transport_advice


@pytest.mark.parametrize(
    ("environ", "name"),
    [
        ({"SERVER_SOFTWARE": "gunicorn/27.0.1"}, "gunicorn with another worker class"),
        ({"SERVER_SOFTWARE": "Werkzeug/3.1.3"}, "Werkzeug's development server"),
        ({"SERVER_SOFTWARE": "waitress"}, "waitress"),
        ({"uwsgi.version": b"2.0"}, "uWSGI"),
        ({"eventlet.posthooks": []}, "eventlet"),
        ({"mod_wsgi.version": (4, 9)}, "mod_wsgi"),
        ({"SERVER_SOFTWARE": "WSGIServer/0.2 CPython/3.11"}, "Python's wsgiref"),
        ({"SERVER_SOFTWARE": "something/1"}, "this WSGI server"),
        ({}, "this WSGI server"),
    ],
)
def test_a_server_is_named_with_what_to_use_instead(environ: dict[str, object], name: str) -> None:
    """The operator reads it in the log, and the developer in the answer."""
    assert server_of(environ) == name
    assert advice(environ).startswith(f"{name} cannot serve Headgate's clients: use `")
    assert "gunicorn -k headgate.gunicorn.Worker" in advice(environ)
    assert transport_advice(environ).startswith(f"{name} carries no WebSocket of headgate.socketio: use `gunicorn -k gevent")
