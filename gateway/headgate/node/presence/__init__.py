"""Presence: the users in a topic now, over all gateways. docs/decisions/0039-presence.md explains the design."""
