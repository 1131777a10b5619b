"""The webhook consumer."""
