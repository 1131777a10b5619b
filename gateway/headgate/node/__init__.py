"""One gateway process: Socket.IO handlers in front, namespaces after them."""
