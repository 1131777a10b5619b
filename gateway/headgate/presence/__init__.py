"""Presence: who is in a topic now, counted by user, over all gateways. docs/decisions/0039-presence.md has the argument."""
