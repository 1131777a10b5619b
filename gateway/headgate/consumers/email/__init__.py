"""The email consumer."""

from .consumer import Email

__all__ = ["Email"]
