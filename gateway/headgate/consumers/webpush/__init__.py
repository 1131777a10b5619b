"""The Web Push consumer."""
