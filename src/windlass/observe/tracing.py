"""Traces: what is told to a collector, and whether anybody asked for it.

A :class:`Span` is a plain record; who makes spans needs no tracing library. :func:`exporter` gives what sends them,
or ``None`` where nobody asked: then nothing is imported, and who holds ``None`` does nothing. The library
(OpenTelemetry's SDK, extra ``otel``) is imported by :mod:`windlass.observe.otlp` only.

A trace is named by the uid of what it is about, so that every process that tells of it tells of the same trace:
:func:`trace_id`; the root span's identity follows from it: :func:`root_id`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from windlass.api.errors import WindlassError

MISSING = "WL-TRACE-424"
ADDRESS = "WL-TRACE-400"
INSTALL = "pip install 'windlass[otel]'"
Value = str | int | float | bool | Sequence[str]


@dataclass(frozen=True, slots=True)
class SpanEvent:
    """Something that happened within a span, at ``at`` (Unix seconds)."""

    name: str
    at: float
    attributes: Mapping[str, Value] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Link:
    """The root span of another trace, with what it has to do with this one."""

    trace: int
    attributes: Mapping[str, Value] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Span:
    """``begun`` and ``ended`` in Unix seconds. ``trace`` 0: a trace of its own. ``identity`` 0: any.
    ``parent`` 0: it is a root. ``fault``: why what it tells of failed; empty if it did not."""

    name: str
    begun: float
    ended: float
    trace: int = 0
    identity: int = 0
    parent: int = 0
    attributes: Mapping[str, Value] = field(default_factory=dict)
    moments: Sequence[SpanEvent] = ()
    links: Sequence[Link] = ()
    fault: str = ""


class Exporter(Protocol):
    """Takes spans and sends them in a thread of its own. Never raises and never waits, except in ``close``."""

    def tell(self, span: Span) -> None: ...

    def close(self) -> None:
        """Send what is left, for a few seconds at most."""
        ...


def trace_id(uid: str) -> int:
    """128 bits: those of a UUID as they are, of any other text a digest of it. Never 0."""
    digits = uid.replace("-", "")
    if len(digits) != 32 or set(digits.lower()) - set("0123456789abcdef"):
        digits = hashlib.sha256(uid.encode()).hexdigest()[:32]
    return int(digits, 16) or 1


def root_id(trace: int) -> int:
    """The identity of a trace's root span, 64 bits. Never 0."""
    return int.from_bytes(hashlib.sha256(trace.to_bytes(16, "big")).digest()[:8], "big") or 1


def asked(endpoint: str, environment: Mapping[str, str]) -> str | None:
    """Where spans go: URL of the traces; ``""`` as the library reads it from the environment; ``None``: nowhere.

    As OpenTelemetry's specification has it: ``OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`` is taken as it is, to
    ``OTEL_EXPORTER_OTLP_ENDPOINT`` (and to ``endpoint``, which wins) ``/v1/traces`` is added;
    ``OTEL_SDK_DISABLED=true`` and ``OTEL_TRACES_EXPORTER=none`` silence the environment.
    Raises :class:`WindlassError` on an ``endpoint`` that is no URL.
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
    """What sends spans of ``service`` (``windlass-scheduler``); ``None`` where nobody asked.

    Raises :class:`WindlassError` where it was asked for and the library is not installed.
    """
    where = asked(endpoint, environment)
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
            remedies=(INSTALL, "leave --otlp-endpoint and OTEL_EXPORTER_OTLP_ENDPOINT away"),
        ) from error
    return OtlpExporter(where, service, instance)
