"""Delivery takes each event to the clients that subscribe to it, live or from the log."""
