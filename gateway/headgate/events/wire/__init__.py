"""Socket.IO packets, requests from clients, and WebSocket frames. No I/O."""
