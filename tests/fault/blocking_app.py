"""An application with pages that block the event loop, each in its way, until they are let go, to try the watchdog."""

import os
import time

from flask import Flask, request

from headgate import Headgate

app = Flask(__name__)
gate = Headgate(app)


@app.get("/waits")
def waits() -> str:
    """As a driver in C does that knows no gevent: `until` is a pipe, and opening one waits for the other end."""
    os.close(os.open(request.args["until"], os.O_RDONLY))
    return "done"


@app.get("/computes")
def computes() -> str:
    """As a loop over too much does, until there is a file `until`."""
    path = request.args["until"]
    while not os.path.exists(path):
        # Not asked for at every turn, because releasing the interpreter and taking it back at once keeps other threads out.
        look_s = time.monotonic() + 0.1
        while time.monotonic() < look_s:
            sum(range(1000))
    return "done"
