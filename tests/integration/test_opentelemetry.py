"""A sampled event leaves the spans of its way in a collector: of publisher, gateway and consumer, each a separate process.

The test command receives OTLP over HTTP in its own process, with OpenTelemetry's own definitions (opentelemetry-proto). `make
tracing` runs the same with the real OpenTelemetry Collector.
"""

import gzip
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple, Protocol

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest, ExportTraceServiceResponse

from headgate.services.publisher import Publisher
from tests.support.gateway_process import StartGateway
from tests.support.held_port import HeldPort
from tests.support.raw_client import RawClient
from tests.support.redis_server import wait_until
from tools.collector import bring

WAIT_S = 60.0
TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
CONSUMER = """
from headgate.consumers import Consumer

class Nothing(Consumer):
    def handle(self, delivery):
        pass
"""
CONFIGURATION = '[consumers.mail]\ntype = "nothing_consumer:Nothing"\npatterns = ["orders.#"]\nstart = "oldest"\n'
# A separate service, like one that uses OpenTelemetry.
SERVICE = """
import sys
from opentelemetry import trace
from headgate import Publisher
from headgate.runtime import spans
spans.start()
with trace.get_tracer("shop").start_as_current_span("checkout"):
    Publisher(sys.argv[1]).publish("orders.1", {"n": 1})
"""


class Span(NamedTuple):
    """As the collector has it, in hexadecimal."""

    name: str
    trace: str
    id: str
    parent: str


class Sink(Protocol):
    """Takes OTLP over HTTP at `url`."""

    url: str

    def spans(self) -> list[Span]: ...


class Receiver:
    def __init__(self) -> None:
        self._spans: list[Span] = []
        spans = self._spans

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                    for scope in resource.scope_spans:
                        spans.extend(
                            Span(span.name, span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex())
                            for span in scope.spans
                        )
                answer = ExportTraceServiceResponse().SerializeToString()
                self.send_response(200)
                self.send_header("Content-Type", "application/x-protobuf")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: object) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def spans(self) -> list[Span]:
        return list(self._spans)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class Collector:
    """The OpenTelemetry Collector, which prints the spans that it gets."""

    def __init__(self, folder: Path) -> None:
        self._held = HeldPort()
        port = self._held.port
        self.url = f"http://127.0.0.1:{port}"
        configuration = folder / "otelcol.yaml"
        configuration.write_text(
            f"receivers: {{otlp: {{protocols: {{http: {{endpoint: 127.0.0.1:{port}}}}}}}}}\n"
            "exporters: {debug: {verbosity: detailed, sampling_initial: 100000}}\n"
            "service:\n"
            "  pipelines: {traces: {receivers: [otlp], exporters: [debug]}}\n"
        )
        self._path = folder / "otelcol.log"
        self._log = self._path.open("wb")
        self._process = subprocess.Popen([str(bring()), "--config", str(configuration)], stdout=self._log, stderr=self._log)
        wait_until(
            lambda: self._process.poll() is not None or "Everything is ready" in self._path.read_text(errors="replace"),
            "it starts",
        )
        assert self._process.poll() is None, self._path.read_text(errors="replace")

    def spans(self) -> list[Span]:
        found = re.findall(
            r"Trace ID\s*: (\w*)\s+Parent ID\s*: (\w*)\s+ID\s*: (\w*)\s+Name\s*: ([^\n]*)\n",
            self._path.read_text(errors="replace"),
        )
        return [Span(name.strip(), trace, span, parent) for trace, parent, span, name in found]

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(WAIT_S)
        self._log.close()
        self._held.close()


@pytest.fixture(params=["receiver", pytest.param("collector", marks=[pytest.mark.nightly, pytest.mark.timeout(2400)])])
def sink(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Sink]:
    with closing(Receiver() if request.param == "receiver" else Collector(tmp_path)) as sink:
        yield sink


def test_the_way_of_a_sampled_event_is_one_line_of_spans(
    sink: Sink, start_gateway: StartGateway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """checkout → publish → route → deliver, and publish → consume; the browser has the trace. An unsampled one has no span."""
    # The first folder hides OpenTelemetry.
    monkeypatch.setenv("PYTHONPATH", os.environ["PYTHONPATH"].partition(os.pathsep)[2])
    (tmp_path / "nothing_consumer.py").write_text(CONSUMER)
    (tmp_path / "headgate.toml").write_text(CONFIGURATION)
    exporting = {"OTEL_EXPORTER_OTLP_ENDPOINT": sink.url, "OTEL_BSP_SCHEDULE_DELAY": "100"}
    gateway = start_gateway(
        {"HEADGATE_OTEL": "on", "PYTHONPATH": str(tmp_path), **exporting},
        "--dev", "--with-consumers", "--config", str(tmp_path / "headgate.toml"),
    )  # fmt: skip
    url = f"unix://{tmp_path / 'gateway-0' / 'data' / 'redis.sock'}"
    clients = [RawClient(gateway.url, {"subscriptions": [{"pattern": "orders.#"}]}) for _ in range(2)]
    for client in clients:
        client.wait_for(partial(client.named, "welcome"), "welcome", WAIT_S)
    with Publisher(url) as publisher:
        publisher.publish("orders.1", 0, traceparent=f"00-{TRACE}-{SPAN}-00")
        publisher.publish("orders.1", 0, traceparent=f"00-{TRACE}-{SPAN}-01")
        publisher.publish("orders.1", 0)
    subprocess.run([sys.executable, "-c", SERVICE, url], env={**os.environ, **exporting}, check=True, timeout=WAIT_S)
    for client in clients:
        client.wait_for(lambda client=client: len(client.named("event")) == 4, "four events", WAIT_S)  # type: ignore[misc]
    wait_until(lambda: len(sink.spans()) >= 8, "eight spans")

    given = {span.name: span for span in sink.spans() if span.trace == TRACE}
    route, deliver, consume = (given[f"{name} notifications"] for name in ("route", "deliver", "consume"))
    assert [route.parent, deliver.parent, consume.parent] == [SPAN, route.id, SPAN]
    service = {span.name: span for span in sink.spans() if span.trace != TRACE}
    assert len({span.trace for span in service.values()}) == 1
    names = ("publish notifications", "route notifications", "deliver notifications", "consume notifications")
    publish, route, deliver, consume = (service[name] for name in names)
    assert [publish.parent, route.parent, deliver.parent] == [service["checkout"].id, publish.id, route.id]
    assert consume.parent == publish.id
    assert len(sink.spans()) == 8
    for client in clients:
        parents = [meta.get("traceparent") for _, _, meta in client.named("event")]
        assert parents[:3] == [f"00-{TRACE}-{SPAN}-00", f"00-{TRACE}-{SPAN}-01", None]
        assert parents[3][:53] == f"00-{publish.trace}-{publish.id}-"[:53]
        client.close()
