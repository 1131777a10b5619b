"""The public name of `add_console`, for applications that attach the console themselves."""

from .api.console import add_console

__all__ = ["add_console"]
