"""The keeper's own process (keeper_process.py): the private Redis and the consumers, until its standard input ends.

In: the descriptor for the URL of the private Redis (an empty line if it has started none); the configuration file of the
consumers, if they run. It reports on standard output and error, like `headgate serve`.
"""

from __future__ import annotations

from gevent import monkey

from headgate.runtime.patching import plugins_loaded_once

with plugins_loaded_once():
    monkey.patch_all()

import os
import signal
import sys
from contextlib import ExitStack, suppress

from headgate.errors import HeadgateError
from headgate.redis.client import describe_server
from headgate.runtime import logging as logs
from headgate.runtime.loop import READ, Signal, io_watcher
from headgate.runtime.operator_lines import complain, say
from headgate.runtime.standard_streams import never_block
from headgate.settings.settings import Settings, environment

from .children import ConsumersProcess, private_redis


def main(ready_fd: int, config: str | None = None) -> int:
    """Run Redis and the consumers until standard input ends; return the exit code."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # these signals are for the process manager
    never_block()
    over = Signal()
    with ExitStack() as kept:
        try:
            url = ""
            settings = Settings.read(environment())
            logs.configure(settings.log_level, form=settings.log_format)
            keeps = settings.redis_url is None or config is not None
            consumers = None if config is None else ConsumersProcess(["--config", config])
            if consumers is not None and not consumers.check():
                return 1
            if settings.redis_url is None:
                url = kept.enter_context(private_redis(settings)).url
            say(f"using {describe_server(Settings.read(environment()).redis_url or '')}")
            if consumers is not None:
                kept.enter_context(consumers)
        except HeadgateError as error:
            for line in error.lines():
                complain(line)
            return 1
        with suppress(BrokenPipeError):  # the process manager was stopped, which has ended standard input too
            os.write(ready_fd, f"{url}\n".encode())
        os.close(ready_fd)
        if not keeps:
            return 0
        watcher = io_watcher(0, READ)
        watcher.start(over.set)
        over.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), *sys.argv[2:]))
