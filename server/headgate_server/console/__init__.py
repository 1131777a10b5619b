"""The console: pages for those who operate a gateway. `add_console(app, gate, settings)` puts it into an application."""

from .pages import add_console as add_console
