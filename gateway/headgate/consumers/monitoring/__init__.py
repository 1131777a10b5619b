"""The monitoring consumer."""

from .consumer import Monitoring

__all__ = ["Monitoring"]
