"""OpenTelemetry spans of single events: publish → route → deliver → consume. No cost while they are off.

In: the current context of a process that uses OpenTelemetry, and the traceparents of events. Out: spans, through the API of
`opentelemetry` (the extra `otel`). The application, or `headgate serve` (HEADGATE_OTEL), chooses the SDK and the destination.
This module never imports OpenTelemetry itself, because a process that has not loaded it has no context.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from headgate.events.traceparent import ids_of, is_sampled
from headgate.installation import needing

Attributes = Mapping[str, str | int]
INSTRUMENTATION = "headgate"
FLUSH_MS = 2000
_NONE: AbstractContextManager[str | None] = nullcontext()


def start() -> None:
    """Send the spans of this process to the destination in the OTEL_ variables (OTLP over HTTP), unless the application does so.

    Raises MissingExtra without the extra `otel`.
    """
    with needing("otel", "HEADGATE_OTEL"):
        from opentelemetry import trace
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import SERVICE_NAME, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    if isinstance(trace.get_tracer_provider(), TracerProvider):
        return
    resource = Resource.create()
    if str(resource.attributes.get(SERVICE_NAME, "")).startswith("unknown_service"):
        resource = resource.merge(Resource({SERVICE_NAME: INSTRUMENTATION}))
    provider = TracerProvider(resource=resource)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)


def stop() -> None:
    """Send the remaining spans. Idempotent. Waits at most for the exporter's time-out."""
    api = sys.modules.get("opentelemetry.trace")
    if api is not None and hasattr(provider := api.get_tracer_provider(), "force_flush"):
        provider.force_flush(FLUSH_MS)


def current_traceparent() -> str | None:
    """Return the traceparent of the current span of this thread or greenlet, or None without one."""
    api = sys.modules.get("opentelemetry.trace")
    if api is None or (span := api.get_current_span()) is api.INVALID_SPAN:
        return None
    return _traceparent_of(span)


def _traceparent_of(span: Any) -> str | None:
    context = span.get_span_context()
    if not context.is_valid:
        return None
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{int(context.trace_flags) & 3:02x}"


def publishing(namespace: str, topic: str, events: int = 1) -> AbstractContextManager[str | None]:
    """Create a span of a publish if a span is current; its traceparent is the one for the events."""
    api = sys.modules.get("opentelemetry.trace")
    if api is None or not api.get_current_span().get_span_context().is_valid:
        return _NONE
    return _publishing(api, namespace, topic, events)


@contextmanager
def _publishing(api: Any, namespace: str, topic: str, events: int) -> Iterator[str | None]:
    attributes: dict[str, str | int] = {**_attributes(namespace, topic), "messaging.batch.message_count": events}
    tracer = api.get_tracer(INSTRUMENTATION)
    with tracer.start_as_current_span(f"publish {namespace}", kind=api.SpanKind.PRODUCER, attributes=attributes) as span:
        yield _traceparent_of(span)


def consuming(traceparent: str | None, namespace: str, topic: str, attributes: Attributes) -> AbstractContextManager[object]:
    """Create a span of the work on an event with a recorded trace. It is current during the work."""
    api = sys.modules.get("opentelemetry.trace")
    if api is None or traceparent is None or not is_sampled(traceparent):
        return nullcontext()
    span: AbstractContextManager[object] = api.get_tracer(INSTRUMENTATION).start_as_current_span(
        f"consume {namespace}",
        context=_context_of(api, traceparent),
        kind=api.SpanKind.CONSUMER,
        attributes={**_attributes(namespace, topic), **attributes},
    )
    return span


def record(
    traceparent: str, name: str, namespace: str, topic: str, began_ms: float, ended_ms: float, attributes: Attributes
) -> str | None:
    """Create a span after the fact; return the traceparent for later spans. Times are in ms since 1970."""
    api = sys.modules.get("opentelemetry.trace")
    if api is None:
        return None
    span = api.get_tracer(INSTRUMENTATION).start_span(
        f"{name} {namespace}",
        context=_context_of(api, traceparent),
        kind=api.SpanKind.CONSUMER,
        attributes={**_attributes(namespace, topic), **attributes},
        start_time=round(began_ms * 1_000_000),
    )
    span.end(end_time=round(max(began_ms, ended_ms) * 1_000_000))
    return _traceparent_of(span)


def _attributes(namespace: str, topic: str) -> dict[str, str | int]:
    return {"messaging.system": "headgate", "messaging.destination.name": namespace, "headgate.topic": topic}


def _context_of(api: Any, traceparent: str) -> Any:
    trace_id, span_id, flags = ids_of(traceparent)
    parent = api.SpanContext(trace_id, span_id, is_remote=True, trace_flags=api.TraceFlags(flags))
    return api.set_span_in_context(api.NonRecordingSpan(parent))
