"""The wire: Socket.IO packets, requests from clients, WebSocket frames. No I/O."""
