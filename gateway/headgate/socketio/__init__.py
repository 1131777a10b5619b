"""`headgate.socketio.Server`: python-socketio's server on Headgate's transport, for any application.

    from gevent import monkey; monkey.patch_all()
    from headgate.socketio import Server, WSGIApp
    sio = Server()

Nearly everything else is as in python-socketio; docs/socketio.md says what differs. Inside:

    server     the server: packets out, each by its way; handlers, logs, reasons
    rooms      a client manager's rooms, whose events go out by the gateway's own fan-out (delivery/fanout.py)
    json_text  the numbers that JSON does not have
    foreign    a look at an event of another process, before it is decoded: does anybody here care
    member     one session as its rooms and its emitters see it: its queue, and the wait for room in it
    limits     the limits of a session, and the policies of a full queue
    traffic    packets and bytes for the admin UI
    engine     our sessions in the place of python-engineio's; other_servers: their sockets under other WSGI servers
    flask      `SocketIO` of Flask-SocketIO, with this server in it (imported by its users only)
"""

from __future__ import annotations

from headgate.optional_dependencies import needing

with needing("server", "headgate.socketio"):
    from socketio import WSGIApp

    from headgate.transport.http_limits import HttpLimits
    from headgate.transport.http_server import HTTPServer

    from .limits import Overflow, TransportLimits
    from .server import Server

__all__ = ["HTTPServer", "HttpLimits", "Overflow", "Server", "TransportLimits", "WSGIApp"]
