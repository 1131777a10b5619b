"""`headgate.socketio.Server`, python-socketio's server on Headgate's transport, for any application:

    from gevent import monkey; monkey.patch_all()
    from headgate.socketio import Server, WSGIApp
    sio = Server()

Nearly everything else is as in python-socketio; docs/socketio.md says what differs. Inside:

    server        the server: packets out, handlers, logs, reasons
    packet_check  the rules for packets
    rooms         a client manager's rooms, which send by the gateway's fan-out (delivery/fanout.py)
    foreign       the destination of an event of another process, before it is decoded
    member        one session for its rooms and its emitters: its queue, and the wait for room in it
    limits        the limits of a session, and the policies of a full queue
    engine        our sessions in the place of python-engineio's; other_servers: their sockets under other WSGI servers
    flask         `SocketIO` of Flask-SocketIO, with this server in it (imported by its users only)
"""

from __future__ import annotations

from headgate.installation import needing

with needing("server", "headgate.socketio"):
    from socketio import WSGIApp

    from headgate.transport.http_limits import HttpLimits
    from headgate.transport.http_server import HTTPServer

    from .limits import Overflow, TransportLimits
    from .server import Server

__all__ = ["HTTPServer", "HttpLimits", "Overflow", "Server", "TransportLimits", "WSGIApp"]
