"""The console has pages for operators of a gateway. `add_console(app, gate, settings)` adds it to an application."""

from .pages import add_console as add_console
