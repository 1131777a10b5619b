"""Workers that share a port in other ways than headgate.gunicorn.Worker does: for bench/scale/spread.py only."""

from __future__ import annotations

from typing import Any

from headgate.gunicorn import Worker


class FirstComesFirst(Worker):
    """The inherited listener, and nobody leaves a connection to another."""

    def _server(self, *arguments: Any) -> Any:
        server = super()._server(*arguments)
        server.listener.leave_s = None
        return server


class OwnListener(FirstComesFirst):
    """A listener of its own with SO_REUSEPORT: the kernel chooses by a hash of the addresses."""

    @classmethod
    def check_config(cls, cfg: Any, log: Any) -> None:
        """Allow reuse_port."""
