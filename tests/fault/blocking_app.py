"""An application whose pages block the event loop, each in its way: what the watchdog is tried on."""

import time

from flask import Flask
from gevent import monkey

from headgate import Headgate

app = Flask(__name__)
gate = Headgate(app)
SECONDS = 3.0


@app.get("/waits")
def waits() -> str:
    """As a driver in C does that knows no gevent."""
    monkey.get_original("time", "sleep")(SECONDS)
    return "done"


@app.get("/computes")
def computes() -> str:
    """As a loop over too much does."""
    end_s = time.monotonic() + SECONDS
    while time.monotonic() < end_s:
        pass
    return "done"
