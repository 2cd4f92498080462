"""Traces: span records, and the decision whether to export them.

A :class:`Span` is a plain record, so creating spans needs no tracing library.
:func:`exporter` returns the exporter, or ``None`` if none is configured. Then nothing
is imported, and callers with ``None`` do nothing. Only :mod:`windlass.observe.otlp`
imports the library (OpenTelemetry's SDK, extra ``otel``).

The uid of a trace's subject determines its id, so every process adds to the same trace
(:func:`trace_id`). The id of the root span follows from it (:func:`root_id`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from windlass.api.errors import WindlassError
from windlass.kits.installation import extra_command

MISSING = "WL-TRACE-424"
ADDRESS = "WL-TRACE-400"
Value = str | int | float | bool | Sequence[str]


@dataclass(frozen=True, slots=True)
class SpanEvent:
    """Something that happened within a span, at ``at`` (Unix seconds)."""

    name: str
    at: float
    attributes: Mapping[str, Value] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Link:
    """Link to the root span of another trace."""

    trace: int
    attributes: Mapping[str, Value] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Span:
    """Span. ``started`` and ``finished`` are Unix seconds.

    ``trace`` 0: a trace of its own. ``identity`` 0: a random id. ``parent`` 0: a root
    span.
    ``fault``: reason of the failure; empty without one.
    """

    name: str
    started: float
    finished: float
    trace: int = 0
    identity: int = 0
    parent: int = 0
    attributes: Mapping[str, Value] = field(default_factory=dict)
    events: Sequence[SpanEvent] = ()
    links: Sequence[Link] = ()
    fault: str = ""


class Exporter(Protocol):
    """Exporter of spans, which sends them in its own thread.

    It never raises, and only ``close`` blocks.
    """

    def export(self, span: Span) -> None: ...

    def close(self) -> None:
        """Send remaining spans, for a few seconds at most."""
        ...


def trace_id(uid: str) -> int:
    """Return a 128-bit id: the bits of a UUID, or a digest of any other text. Never 0."""
    digits = uid.replace("-", "")
    if len(digits) != 32 or set(digits.lower()) - set("0123456789abcdef"):
        digits = hashlib.sha256(uid.encode()).hexdigest()[:32]
    return int(digits, 16) or 1


def root_id(trace: int) -> int:
    """The identity of a trace's root span, 64 bits. Never 0."""
    return int.from_bytes(hashlib.sha256(trace.to_bytes(16, "big")).digest()[:8], "big") or 1


def traces_url(endpoint: str, environment: Mapping[str, str]) -> str | None:
    """Return the URL for traces; ``""``: from the environment; ``None``: no export.

    As OpenTelemetry specifies, ``OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`` is used
    unchanged, and ``/v1/traces`` is appended to ``OTEL_EXPORTER_OTLP_ENDPOINT`` (and to
    ``endpoint``, which takes precedence). ``OTEL_SDK_DISABLED=true`` and
    ``OTEL_TRACES_EXPORTER=none`` disable the environment. Raises :class:`WindlassError`
    if ``endpoint`` is not a URL.
    """
    if endpoint:
        if not endpoint.startswith(("http://", "https://")) or endpoint.endswith("://"):
            raise WindlassError(
                ADDRESS,
                f"--otlp-endpoint {endpoint!r} is not the URL of a collector",
                remedies=("write the collector's OTLP/HTTP address, for instance http://collector:4318",),
            )
        base = endpoint.rstrip("/")
        return base if base.endswith("/v1/traces") else f"{base}/v1/traces"
    if environment.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return None
    if environment.get("OTEL_TRACES_EXPORTER", "otlp") != "otlp":
        return None
    named = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
    return "" if any(environment.get(name) for name in named) else None


def exporter(endpoint: str, environment: Mapping[str, str], service: str, instance: str) -> Exporter | None:
    """Return the exporter for ``service`` (``windlass-scheduler``); ``None`` if not configured.

    Raises :class:`WindlassError` if it is configured and the library is not installed.
    """
    where = traces_url(endpoint, environment)
    if where is None:
        return None
    try:
        from windlass.observe.otlp import OtlpExporter
    except ImportError as error:
        if not (error.name or "").startswith("opentelemetry"):
            raise
        raise WindlassError(
            MISSING,
            "traces were asked for, but OpenTelemetry's SDK is not installed",
            evidence=f"no module {error.name}",
            remedies=(extra_command("otel"), "leave --otlp-endpoint and OTEL_EXPORTER_OTLP_ENDPOINT away"),
        ) from error
    return OtlpExporter(where, service, instance)
