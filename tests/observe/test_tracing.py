"""Traces: who asked for them, what they are called, and what reaches a collector."""

from __future__ import annotations

import subprocess
import sys

import pytest
from otlp_collector import OtlpSink

from windlass.api.errors import WindlassError
from windlass.observe import tracing
from windlass.observe.tracing import Link, Span, SpanEvent, root_id, trace_id

UID = "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0"


@pytest.mark.parametrize(
    ("endpoint", "environment", "where"),
    [
        ("", {}, None),
        ("http://c:4318", {}, "http://c:4318/v1/traces"),
        ("http://c:4318/", {"OTEL_SDK_DISABLED": "true"}, "http://c:4318/v1/traces"),
        ("https://c/otlp/v1/traces", {}, "https://c/otlp/v1/traces"),
        ("", {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}, ""),
        ("", {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c:4318/x"}, ""),
        ("", {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c", "OTEL_SDK_DISABLED": "True"}, None),
        ("", {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c", "OTEL_TRACES_EXPORTER": "none"}, None),
        ("", {"OTEL_EXPORTER_OTLP_ENDPOINT": ""}, None),
    ],
)
def test_who_asks(endpoint: str, environment: dict[str, str], where: str | None) -> None:
    assert tracing.traces_url(endpoint, environment) == where


@pytest.mark.parametrize("endpoint", ["collector:4318", "grpc://c:4317", "http://"])
def test_an_endpoint_that_is_no_url_is_refused(endpoint: str) -> None:
    with pytest.raises(WindlassError) as caught:
        tracing.traces_url(endpoint, {})
    assert caught.value.code == "WL-TRACE-400"
    assert "http://collector:4318" in caught.value.remedies[0]


def test_a_trace_is_named_by_the_uid() -> None:
    assert f"{trace_id(UID):032x}" == UID.replace("-", "")
    assert trace_id("not-a-uuid") != trace_id("not-a-uuid2")
    assert 0 < trace_id("not-a-uuid") < 1 << 128
    assert trace_id("0" * 32) == 1
    assert 0 < root_id(trace_id(UID)) < 1 << 64


def test_without_being_asked_nothing_is_imported() -> None:
    program = (
        "import sys; from windlass.observe import tracing; import windlass.scheduler.main;"
        "assert tracing.exporter('', {}, 's', 'i') is None;"
        "print([m for m in sys.modules if m.startswith(('opentelemetry', 'requests', 'google'))])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_missing_library_is_told_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "windlass.observe.otlp", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(WindlassError) as caught:
        tracing.exporter("http://c:4318", {}, "s", "i")
    assert caught.value.code == "WL-TRACE-424"
    assert caught.value.remedies[0].startswith("pip install 'opentelemetry-")


def test_spans_reach_the_collector_as_they_were_told() -> None:
    trace, other = trace_id(UID), trace_id("other")
    with OtlpSink() as sink:
        sent = tracing.exporter(sink.url, {}, "windlass-scheduler", "me_1")
        assert sent is not None
        sent.export(
            Span("queued", 10.0, 12.5, trace, parent=root_id(trace), events=[SpanEvent("waits", 11.0)])
        )
        sent.export(Span("job", 10.0, 20.0, trace, root_id(trace), attributes={"a": 1}, fault="a pod failed"))
        sent.export(
            Span("cycle", 12.0, 12.1, links=[Link(trace, {"windlass.decision": "bind"}), Link(other)])
        )
        sent.close()
    assert sink.paths == ["/v1/traces"]
    assert sink.resources[0]["service.name"] == "windlass-scheduler"
    assert sink.resources[0]["service.instance.id"] == "me_1"
    queued, job, cycle = (sink.named(name)[0] for name in ("queued", "job", "cycle"))
    assert queued["trace"] == job["trace"] == UID.replace("-", "")
    assert queued["parent"] == job["id"] == f"{root_id(trace):016x}"
    assert job["parent"] == ""
    assert (queued["begun"], queued["ended"]) == (10.0, 12.5)
    assert queued["events"] == [("waits", {})]
    assert (job["attributes"], job["fault"]) == ({"a": 1}, "a pod failed")
    assert cycle["trace"] not in (queued["trace"], "0" * 32)
    assert cycle["links"][0] == (UID.replace("-", ""), {"windlass.decision": "bind"})


def test_a_trace_is_sampled_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "traceidratio")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", "0.5")
    with OtlpSink() as sink:
        sent = tracing.exporter(sink.url, {}, "windlass-scheduler", "me_1")
        assert sent is not None
        for number in range(200):
            trace = trace_id(f"job {number}")
            sent.export(Span("queued", 1.0, 2.0, trace, parent=root_id(trace)))
            sent.export(Span("job", 1.0, 3.0, trace, root_id(trace)))
        sent.close()
    roots, stages = ({s["trace"] for s in sink.named(name)} for name in ("job", "queued"))
    assert roots == stages
    assert 50 < len(roots) < 150


def test_a_collector_that_refuses_costs_spans_and_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    with OtlpSink() as sink:
        sink.refuse = 400
        sent = tracing.exporter(sink.url, {}, "windlass-scheduler", "me_1")
        assert sent is not None
        sent.export(Span("cycle", 1.0, 2.0))
        sent.close()
    assert sink.paths == ["/v1/traces"]
    assert sink.spans == []
