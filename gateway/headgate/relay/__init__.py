"""The relay: a request of another gateway's session goes to that gateway, so no proxy needs sticky sessions.

A session id begins with the name of its owner (owners.py). The directory says at which internal address each owner listens
(directory.py). A link between two processes carries many connections of clients (frames.py, link.py); both have proven that they
know one key (handshake.py). `Relay` puts them together.
"""
