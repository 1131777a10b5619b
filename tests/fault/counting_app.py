"""An application around a gateway that counts the objects of its process: the soak watches them beside memory and descriptors."""

import gc

import gevent
from flask import Flask
from prometheus_client import generate_latest

from headgate import Headgate

app = Flask(__name__)
gate = Headgate(app)


@app.get("/counts")
def counts() -> dict[str, int]:
    """Return the number of living greenlets and of metrics' series, and the bytes of the page caches."""
    gc.collect()
    return {
        "greenlets": sum(isinstance(thing, gevent.Greenlet) and not thing.dead for thing in gc.get_objects()),
        "series": sum(not line.startswith(b"#") for line in generate_latest().splitlines()),
        "cached_bytes": sum(namespace._catch_up.pages._bytes for namespace in gate.gateway.namespaces.values()),
    }
