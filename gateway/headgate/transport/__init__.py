"""The transport: Engine.IO sessions on event-driven WebSockets, with long-polling as the fallback.

The fan-out (delivery/) frames an outgoing event once for all clients:

    outbox         the sending half of a session, by direct write or through the queue
    send_queue       waiting frames in two lanes, of which control goes before data
    websocket      one socket and its watchers; takes the next frames whenever it has room
    long_poll      the polls of a session without a WebSocket, and the final frames for a poll after its end

An incoming message starts as an HTTP request:

    http_server    the server, which accepts connections (their sockets are in peer_socket)
    http_admission   admits them while there is room (descriptors, peer_address)
    http_connection  one HTTP connection; waits for its requests without a greenlet
    http_parser      turns bytes into requests; nothing else parses HTTP
    http_exchange    answers a request, without a greenlet if its route needs no wait
    http_channel     bodies in and answers out, each within its deadline (http_limits)
    http_routes      requests answered below WSGI, with http_answers
    http_wsgi        answers one request by the WSGI application
    engine         Engine.IO handshakes, polls and bodies (engineio_http), for the pages that may connect (cors)
    detach           takes the socket of a WebSocket away from the HTTP server
    session        one browser, with its states (session_state), pings (heartbeat) and move to a WebSocket (upgrade)
    websocket      turns bytes into messages, with frame_parser
    inbox          the receiving half of a session, with its rate limit (limits) and waiting messages
    socketio_face  Socket.IO namespaces of the gateway and their clients, with socketio_packet

`timers` calls back for every deadline.
`headgate.socketio` makes `http_server.HTTPServer` public; its own `Server` has the same sessions.
"""
