"""Sends spans to a collector by OTLP over HTTP, with OpenTelemetry's SDK. Imported only where that was asked for.

Spans are handed to the SDK's own thread and sent in batches; where the collector is away or too slow, they are
dropped, and the SDK says so in the log. Everything else about sending (headers, certificates, time-outs, batch
sizes, sampling, attributes of the resource) is read from OpenTelemetry's own environment variables.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from opentelemetry import trace as api
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.id_generator import IdGenerator, RandomIdGenerator
from opentelemetry.sdk.trace.sampling import Decision

from windlass import __version__
from windlass.observe import logs
from windlass.observe.tracing import Span, root_id

_SAMPLED = api.TraceFlags(api.TraceFlags.SAMPLED)
_CLOSE_MILLIS = 3000
MOST_LINKS = 512


def _nanos(seconds: float) -> int:
    return int(seconds * 1_000_000) * 1000


class _Ids(IdGenerator):
    """Random ones, or those that were named for the span made next."""

    def __init__(self) -> None:
        self._random = RandomIdGenerator()
        self.trace = 0
        self.span = 0

    def generate_trace_id(self) -> int:
        return self.trace or self._random.generate_trace_id()

    def generate_span_id(self) -> int:
        return self.span or self._random.generate_span_id()


class _Telling(SpanExporter):
    """Says in the log when the collector cannot be reached, and when it can again: once each."""

    def __init__(self, inner: SpanExporter) -> None:
        self._inner = inner
        self._failing = False

    def export(self, spans: Sequence[object]) -> SpanExportResult:
        result = self._inner.export(spans)  # type: ignore[arg-type]
        failed = result is not SpanExportResult.SUCCESS
        if failed != self._failing:
            self._failing = failed
            log = logs.get("traces")
            if failed:
                log.warning("the collector does not take spans; they are dropped", spans=len(spans))
            else:
                log.info("the collector takes spans again")
        return result

    def shutdown(self) -> None:
        self._inner.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return self._inner.force_flush(timeout_millis)


class OtlpExporter:
    """An :class:`~windlass.observe.tracing.Exporter`. ``url`` of the traces; ``""``: as the environment has it.

    Used from one thread. What is sampled is decided by a trace's identity, so that whoever tells of a trace
    decides alike (``OTEL_TRACES_SAMPLER=traceidratio``).
    """

    def __init__(self, url: str, service: str, instance: str) -> None:
        logging.getLogger("opentelemetry").setLevel(
            logging.CRITICAL
        )  # it says the same thing again and again
        attributes = {"service.instance.id": instance, "service.version": __version__}
        resource = Resource.create({"service.name": service, **attributes})
        self._ids = _Ids()
        self._provider = TracerProvider(
            resource=resource,
            id_generator=self._ids,
            shutdown_on_exit=False,
            span_limits=SpanLimits(max_links=MOST_LINKS),
        )
        sender = _Telling(OTLPSpanExporter(endpoint=url) if url else OTLPSpanExporter())
        self._provider.add_span_processor(BatchSpanProcessor(sender))
        self._tracer = self._provider.get_tracer("windlass", __version__)

    def tell(self, span: Span) -> None:
        if span.trace and not self._wanted(span):
            return
        context = None
        if span.parent:
            context = _context(span.trace, span.parent)
        self._ids.trace, self._ids.span = span.trace, span.identity
        made = self._tracer.start_span(
            span.name,
            context=context if context is not None else api.set_span_in_context(api.INVALID_SPAN),
            attributes=dict(span.attributes),
            links=[
                api.Link(_identity(link.trace, root_id(link.trace)), dict(link.attributes))
                for link in span.links
            ],
            start_time=_nanos(span.begun),
        )
        self._ids.trace = self._ids.span = 0
        for moment in span.moments:
            made.add_event(moment.name, dict(moment.attributes), _nanos(moment.at))
        if span.fault:
            made.set_status(api.Status(api.StatusCode.ERROR, span.fault))
        made.end(_nanos(max(span.ended, span.begun)))

    def _wanted(self, span: Span) -> bool:
        """A parent counts as sampled: so its children are asked for as their root is."""
        verdict = self._provider.sampler.should_sample(None, span.trace, span.name)
        return verdict.decision is Decision.RECORD_AND_SAMPLE

    def close(self) -> None:
        self._provider.force_flush(_CLOSE_MILLIS)
        self._provider.shutdown()


def _identity(trace: int, span: int) -> api.SpanContext:
    return api.SpanContext(trace, span, is_remote=True, trace_flags=_SAMPLED)


def _context(trace: int, span: int) -> Context:
    return api.set_span_in_context(api.NonRecordingSpan(_identity(trace, span)))
