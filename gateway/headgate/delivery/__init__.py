"""Delivery: from one event to the clients that subscribe to it, live or from the log."""
