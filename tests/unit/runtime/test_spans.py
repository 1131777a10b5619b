"""Spans of events with the real API and SDK of OpenTelemetry, exported into memory; and that nothing happens without them."""

import subprocess
import sys
from collections.abc import Iterator

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from headgate.events.traceparent import is_sampled
from headgate.runtime import spans

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
SAMPLED, UNSAMPLED = f"00-{TRACE}-{SPAN}-01", f"00-{TRACE}-{SPAN}-00"


@pytest.fixture
def exported(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)  # the global one can be set once in a process
    yield exporter
    provider.shutdown()


def parent_of(span: ReadableSpan) -> str:
    assert span.parent is not None
    return f"{span.parent.span_id:016x}"


def id_of(span: ReadableSpan) -> str:
    return f"{span.context.span_id:016x}"


def test_a_publish_within_a_trace_is_a_span_of_it(exported: InMemorySpanExporter) -> None:
    """Its event carries that span; outside of a trace there is neither."""
    assert spans.current_traceparent() is None
    with spans.publishing("n", "orders.1") as parent:
        assert parent is None
    with trace.get_tracer("test").start_as_current_span("request") as request:
        with spans.publishing("n", "orders.1") as parent:
            assert parent == spans.current_traceparent()
        assert spans.current_traceparent() != parent
    publish, outer = exported.get_finished_spans()
    assert (publish.name, publish.kind, outer.name) == ("publish n", trace.SpanKind.PRODUCER, "request")
    flags = int(request.get_span_context().trace_flags)
    assert parent == f"00-{request.get_span_context().trace_id:032x}-{id_of(publish)}-{flags:02x}"
    assert is_sampled(parent)
    assert publish.attributes is not None
    assert publish.attributes["headgate.topic"] == "orders.1"


def test_a_publish_that_fails_says_so(exported: InMemorySpanExporter) -> None:
    with (
        trace.get_tracer("test").start_as_current_span("request"),
        pytest.raises(ValueError, match="no"),
        spans.publishing("n", "a"),
    ):
        raise ValueError("no")
    publish, _ = exported.get_finished_spans()
    assert publish.status.status_code is trace.StatusCode.ERROR


def test_the_way_of_an_event_is_one_line_of_spans(exported: InMemorySpanExporter) -> None:
    """publish → route → deliver, with the times that they are given; and the work of a consumer."""
    routed = spans.record(SAMPLED, "route", "n", "a", 1000, 1002.5, {"headgate.offset": 7})
    assert routed is not None
    delivered = spans.record(routed, "deliver", "n", "a", 1002.5, 1001, {})
    assert delivered is not None
    with spans.consuming(SAMPLED, "n", "a", {"messaging.consumer.group.name": "mail"}):
        assert spans.current_traceparent() is not None
    route, deliver, consume = exported.get_finished_spans()
    assert [span.name for span in (route, deliver, consume)] == ["route n", "deliver n", "consume n"]
    assert [parent_of(span) for span in (route, deliver, consume)] == [SPAN, id_of(route), SPAN]
    assert {f"{span.context.trace_id:032x}" for span in (route, deliver, consume)} == {TRACE}
    assert (route.start_time, route.end_time) == (1_000_000_000, 1_002_500_000)
    assert deliver.end_time == deliver.start_time  # the clocks of two machines differ


def test_what_is_not_sampled_has_no_span(exported: InMemorySpanExporter) -> None:
    for parent in (UNSAMPLED, None):
        with spans.consuming(parent, "n", "a", {}):
            pass
    assert exported.get_finished_spans() == ()


def test_a_process_without_opentelemetry_pays_nothing() -> None:
    """It is not needed, and not loaded."""
    script = (
        "import sys; sys.modules['opentelemetry'] = None\n"
        "import headgate.services.publisher, headgate.runtime.spans as s, headgate.delivery.fanout\n"
        "assert s.current_traceparent() is None\n"
        "with s.publishing('n', 'a') as parent: assert parent is None\n"
        f"with s.consuming({SAMPLED!r}, 'n', 'a', {{}}): pass\n"
        f"assert s.record({SAMPLED!r}, 'route', 'n', 'a', 1, 2, {{}}) is None\n"
        "s.stop()\n"
        "assert not [name for name in sys.modules if name.startswith('opentelemetry.')]"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
