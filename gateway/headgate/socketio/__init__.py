"""`headgate.socketio.Server`, python-socketio's server on Headgate's transport, for any application:

    from gevent import monkey; monkey.patch_all()
    from headgate.socketio import Server, WSGIApp
    sio = Server()

Nearly everything else is as in python-socketio; docs/socketio.md lists the differences. The modules:

    server        the server, with outgoing packets, handlers, logs and reasons
    packet_check  the rules for packets
    rooms         a client manager's rooms, which send by the gateway's fan-out (delivery/fanout.py)
    member        one session as a member of rooms, with its queue, the policies of a full one, and the wait for room in it
    engine        our sessions in place of python-engineio's, with their limits, for the pages that may connect, and their sockets
                  under other WSGI servers (other_servers)
    flask         `SocketIO` of Flask-SocketIO with this server; imported only by applications that use it
"""

from __future__ import annotations

from headgate.installation import needing

with needing("server", "headgate.socketio"):
    from socketio import WSGIApp

    from headgate.transport.http_limits import HttpLimits
    from headgate.transport.http_server import HTTPServer

    from .engine import TransportLimits
    from .member import Overflow
    from .server import Server

__all__ = ["HTTPServer", "HttpLimits", "Overflow", "Server", "TransportLimits", "WSGIApp"]
