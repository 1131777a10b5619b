"""Recognizes servers that cannot carry our WebSocket by a request's environment, and names the alternatives. No I/O."""

from __future__ import annotations

from collections.abc import Mapping

_GUNICORN = "`gunicorn -k headgate.gunicorn.Worker -w 4 yourmodule:app`"
_SERVE = "`headgate serve --workers auto yourmodule:app`"


def server_of(environ: Mapping[str, object]) -> str:
    """Return the display name of the WSGI server that created an environment."""
    software = str(environ.get("SERVER_SOFTWARE", ""))
    name = software.partition("/")[0].lower()
    if "uwsgi.version" in environ:
        return "uWSGI"
    if "mod_wsgi.version" in environ:
        return "mod_wsgi"
    if "eventlet.posthooks" in environ:
        return "eventlet"
    if "gunicorn" in name:
        return "gunicorn with another worker class"
    if name == "werkzeug":
        return "Werkzeug's development server"
    return {"waitress": "waitress", "wsgiserver": "Python's wsgiref", "cheroot": "cheroot"}.get(name, "this WSGI server")


def transport_advice(environ: Mapping[str, object]) -> str:
    """Return one sentence for an application that uses only the transport."""
    server = server_of(environ)
    return f"{server} carries no WebSocket of headgate.socketio: use `gunicorn -k gevent -w 1 yourmodule:app` or its HTTPServer"


def advice(environ: Mapping[str, object]) -> str:
    """Return a sentence about a server without WebSocket, with the alternative."""
    server = server_of(environ)
    command = _GUNICORN if server.startswith("gunicorn") else f"{_SERVE} or {_GUNICORN}"
    return f"{server} cannot serve Headgate's clients: use {command}"
