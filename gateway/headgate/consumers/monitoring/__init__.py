"""The monitoring consumer."""
