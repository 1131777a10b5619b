"""Publishing over HTTP: kept connections, each with one request under way (load/http.c), one event to a request or a batch."""

from __future__ import annotations

import json
import subprocess
from contextlib import ExitStack

from .child import Child, Failed
from .generator import ANSWER_MARGIN_S, BINARIES, Answer
from .machine import cores
from .scenario import Row, Run, latency, shares
from .stage import Stage, stage
from .variants import Variant

CONNECTIONS = 64


def posting(size_bytes: int, events: int) -> Run:
    """Closed loop of `CONNECTIONS` requests under way, each with so many events: events per second, and per CPU second."""

    def run(variant: Variant, quick: bool) -> Row:
        warm_s, measure_s = (1, 3) if quick else (2, 8)
        with stage(variant, size_bytes=size_bytes, clients=1, joined=0) as on:
            answer = post(on, size_bytes, events, warm_s, measure_s)
            server_cpu_s = max(answer["server_cpu_s"], 1e-3)
            row = shares(answer) | latency(answer)
            row["outcome"] = answer["first_error"] if answer["errors"] else "ok"
            row["events_per_s"] = round(answer["answers"] * events / answer["seconds"])
            row["events_per_cpu_s"] = round(answer["answers"] * events / server_cpu_s)
            return row

    return run


def post(on: Stage, size_bytes: int, events: int, warm_s: float, measure_s: float) -> Answer:
    """Post to the stage's server and return what the load counted.

    Raises:
        Failed: the server has no such API, or the load ended early.
    """
    api = on.variant.http
    if api is None or (events > 1 and api.batch_path is None):
        raise Failed("no batches over HTTP" if api else "no publishing over HTTP")
    body = on.folder / "body"
    body.write_text(json.dumps(api.batch(events, size_bytes) if events > 1 else api.single(size_bytes), separators=(",", ":")))
    options = ["--port", str(on.port), "--path", (api.batch_path if events > 1 else api.path) or "", "--body", str(body)]
    options += ["--connections", str(CONNECTIONS), "--warm", f"{warm_s * 1000:.0f}", "--measure", f"{measure_s * 1000:.0f}"]
    options += ["--server-pid", str(on.server.pid), "--server-core", str(cores()[0])]
    if tokens := api.tokens(CONNECTIONS):
        tokens_file = on.folder / "tokens"
        tokens_file.write_text("".join(token + "\n" for token in tokens))
        options += ["--tokens", str(tokens_file)]
    with ExitStack() as stack:
        command = [str(BINARIES / "http"), *options]
        log = on.folder / "http.log"
        load = stack.enter_context(Child(command, core=cores()[1], log=log, stdout=subprocess.PIPE))
        try:
            said, _ = load.process.communicate(timeout=warm_s + measure_s + ANSWER_MARGIN_S)
        except subprocess.TimeoutExpired as error:
            raise Failed("the HTTP load did not end") from error
        if load.process.returncode:
            raise Failed(f"the HTTP load ended with {load.process.returncode}: {load.output()}")
        answer: Answer = json.loads(said)
        return answer
