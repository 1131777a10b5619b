"""Access: authentication of clients, and their permissions."""
