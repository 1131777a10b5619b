"""`headgate.socketio.Server`: python-socketio's server on Headgate's transport, for any application.

    from gevent import monkey; monkey.patch_all()
    from headgate.socketio import Server, WSGIApp
    sio = Server()

Nearly everything else is as in python-socketio; docs/socketio.md says what differs. The gateway is this module's first user.
"""

from __future__ import annotations

from .extras import needing

with needing("server", "headgate.socketio"):
    from socketio import WSGIApp

    from .transport.http_server import HTTPServer
    from .transport.limits import TransportLimits
    from .transport.server import Server

__all__ = ["HTTPServer", "Server", "TransportLimits", "WSGIApp"]
