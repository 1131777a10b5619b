"""Fixtures of the drop-in's tests, with real server processes."""

from tests.integration.transport.server_process import start_server, start_shared_server

__all__ = ["start_server", "start_shared_server"]
