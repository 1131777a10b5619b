"""The transport: Engine.IO sessions on event-driven WebSockets, with long-polling as the fallback.

An outgoing event comes from the fan-out (delivery/), framed once for everybody:

    outbox         the sending half of a session: a direct write if nothing is in its way, else the queue
    send_queue       waiting frames: a data lane that may refuse, a control lane that goes first
    websocket      one socket and its watchers; it asks for the next frames whenever it has room
    long_poll      the polls of a session that has no WebSocket, and the last words of one that ended between two

An incoming message begins as an HTTP request:

    http_server    the server; http_listener accepts its connections (peer_socket: one's socket)
    http_admission   the room for them: descriptors, peer_address
    http_connection  one HTTP connection; a WebSocket's first request is answered without a greenlet
    http_parser      bytes to requests: the one reader of HTTP
    http_channel     bytes in and out, each part within its deadline (http_limits)
    http_incoming    requests and their bodies: the parser, fed from the channel
    http_routes      requests answered below WSGI, with http_answers
    http_wsgi        one request as the application answers it
    engine         Engine.IO: handshakes, polls, bodies (engineio_http), and the pages that may connect (cors)
    detach           takes the socket of a WebSocket away from the HTTP server
    session        one browser: session_state is the table of its life, heartbeat its pings, upgrade its way to a WebSocket
    websocket      bytes to messages, with frame_parser
    inbox          the receiving half of a session: rate limit (limits), types of packets, waiting messages
    socketio_face  Socket.IO for the gateway: namespaces and their clients, with socketio_packet

`timers` calls back for every deadline.
`headgate.socketio` makes `http_server.HTTPServer` public; its own `Server` has the same sessions.
"""
