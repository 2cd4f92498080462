"""Exporter of spans over OTLP/HTTP, with OpenTelemetry's SDK. Imported only if configured.

The SDK's thread sends spans in batches. If the collector is unavailable or too slow,
spans are dropped, and the SDK logs it. All other parameters (headers, certificates,
timeouts, batch sizes, sampling, resource attributes) come from OpenTelemetry's
environment variables.
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
MAX_LINKS = 512


def _nanos(seconds: float) -> int:
    return int(seconds * 1_000_000) * 1000


class _Ids(IdGenerator):
    """Random ids, or the ids set for the next span."""

    def __init__(self) -> None:
        self._random = RandomIdGenerator()
        self.trace = 0
        self.span = 0

    def generate_trace_id(self) -> int:
        return self.trace or self._random.generate_trace_id()

    def generate_span_id(self) -> int:
        return self.span or self._random.generate_span_id()


class _ReportingExporter(SpanExporter):
    """Logs when the collector becomes unreachable, and when it is reachable again."""

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
                log.warning("the collector does not accept spans: they are dropped", spans=len(spans))
            else:
                log.info("the collector accepts spans again")
        return result

    def shutdown(self) -> None:
        self._inner.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return self._inner.force_flush(timeout_millis)


class OtlpExporter:
    """:class:`~windlass.observe.tracing.Exporter` over OTLP, used from one thread.

    ``url``: endpoint of traces; ``""``: from the environment. Sampling depends on the
    id of a trace, so all processes that export parts of a trace decide alike
    (``OTEL_TRACES_SAMPLER=traceidratio``).
    """

    def __init__(self, url: str, service: str, instance: str) -> None:
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)  # it repeats the same message
        attributes = {"service.instance.id": instance, "service.version": __version__}
        resource = Resource.create({"service.name": service, **attributes})
        self._ids = _Ids()
        self._provider = TracerProvider(
            resource=resource,
            id_generator=self._ids,
            shutdown_on_exit=False,
            span_limits=SpanLimits(max_links=MAX_LINKS),
        )
        sender = _ReportingExporter(OTLPSpanExporter(endpoint=url) if url else OTLPSpanExporter())
        self._provider.add_span_processor(BatchSpanProcessor(sender))
        self._tracer = self._provider.get_tracer("windlass", __version__)

    def export(self, span: Span) -> None:
        if span.trace and not self._is_sampled(span):
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
            start_time=_nanos(span.started),
        )
        self._ids.trace = self._ids.span = 0
        for event in span.events:
            made.add_event(event.name, dict(event.attributes), _nanos(event.at))
        if span.fault:
            made.set_status(api.Status(api.StatusCode.ERROR, span.fault))
        made.end(_nanos(max(span.finished, span.started)))

    def _is_sampled(self, span: Span) -> bool:
        """Return whether the trace is sampled. Children are sampled as their root is."""
        verdict = self._provider.sampler.should_sample(None, span.trace, span.name)
        return verdict.decision is Decision.RECORD_AND_SAMPLE

    def close(self) -> None:
        self._provider.force_flush(_CLOSE_MILLIS)
        self._provider.shutdown()


def _identity(trace: int, span: int) -> api.SpanContext:
    return api.SpanContext(trace, span, is_remote=True, trace_flags=_SAMPLED)


def _context(trace: int, span: int) -> Context:
    return api.set_span_in_context(api.NonRecordingSpan(_identity(trace, span)))
