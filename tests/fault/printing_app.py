"""An application that writes much to its standard output and error."""

import logging
import sys

from flask import Flask

app = Flask(__name__)


@app.get("/print")
def write() -> str:
    """Write 100 KB, more than a pipe holds, to both, in each of the usual ways."""
    for stream in (sys.stdout, sys.stderr):
        print("x" * 100_000, file=stream, flush=True)
    app.logger.error("y" * 1000)
    logging.getLogger("headgate.publisher").warning("z" * 1000)
    return "written"
