"""The webhook consumer."""

from .consumer import Webhook

__all__ = ["Webhook"]
