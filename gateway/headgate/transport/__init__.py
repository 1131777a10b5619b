"""The transport: Engine.IO sessions on event-driven WebSockets, with long-polling as the fallback.

In the order in which an outgoing event travels: `frames` (bytes on the wire), `queue`'s lanes (send_queue.py), `connection`
(one session), `wire` (one socket). In the order in which an incoming one does: `wsgi` (HTTP), `engine` (handshake, and the
private corners of python-engineio), `wire`, `inbound` (WebSocket frames to messages), `connection`.
"""
