"""Validation of ``spec.autoscale`` of AIGCJobs."""

from __future__ import annotations

from typing import Any

from windlass.api.validation.collector import Collector
from windlass.api.validation.jobs.aigc import aigc_job
from windlass.api.validation.jobs.aigc_scaling import check_autoscale


def errors(**scale: Any) -> list[tuple[str, str]]:
    out = Collector()
    check_autoscale({"autoscale": scale}, out)
    return [(error.field.removeprefix("spec.autoscale."), error.message) for error in out.errors]


def test_all_forms_of_a_plugin_are_valid() -> None:
    inline = {"inline": "from kurator_sdk import AutoScaler"}
    config = {"configMap": {"name": "scaler", "key": "a.py"}, "class": "A"}
    for plugin in ("/srv/a.py", "/srv/a.py:Mine", "package.module", "module:Mine", inline, config):
        assert errors(plugin=plugin) == []
    queries = {"serverAddress": "http://prometheus:9090", "queries": {"load": "avg(x)"}}
    assert errors(metric="gpuUtil", prometheus=queries, spot={"allowed": True, "maxFraction": 0.5}) == []


def test_wrong_values_are_named_with_their_field() -> None:
    cases: list[tuple[dict[str, Any], str, str]] = [
        ({"metric": "custom"}, "plugin", "needs a class derived from AutoScaler"),
        ({"metric": "cpu"}, "metric", "pendingItems"),
        ({"plugin": "scaler.py"}, "plugin", "/absolute/file.py"),
        ({"plugin": 7}, "plugin", "module:Class"),
        ({"plugin": {}}, "plugin", "set one of inline and configMap.name"),
        ({"plugin": {"inline": "x = ("}}, "plugin.inline", "it is not Python"),
        ({"scaleUpUtil": 80}, "scaleUpUtil", "a ratio from 0 to 1"),
        ({"scaleUpUtil": 0.2}, "scaleDownUtil", "must not be above scaleUpUtil (0.2)"),
        ({"cooldownSeconds": -1}, "cooldownSeconds", "must not be negative"),
        ({"spot": {"maxFraction": 2}}, "spot.maxFraction", "a ratio from 0 to 1"),
        ({"prometheus": {"queries": {"a": "b"}}}, "prometheus.serverAddress", "http://"),
        ({"prometheus": {"serverAddress": "http://p"}}, "prometheus.queries", "avg(DCGM_FI_DEV_GPU_UTIL)"),
    ]
    for scale, field, words in cases:
        found = dict(errors(**scale))
        assert words in found.get(field, ""), (scale, found)


def test_more_pods_than_a_controller_can_create_are_refused() -> None:
    for spec, field in (
        ({"replicas": 5_000_000, "autoscale": {"min": 1, "max": 4}}, "spec.replicas"),
        ({"autoscale": {"min": 1, "max": 5_000_000}}, "spec.autoscale.max"),
        ({"parallelism": {"max": 5_001}, "shards": 2}, "spec.parallelism.max"),
    ):
        out = Collector()
        aigc_job({"metadata": {"name": "job"}, "spec": {"runtimeRef": {"name": "noop"}, **spec}}, None, out)
        assert [error.field for error in out.errors] == [field]
        assert "a job has at most 10000 pods of workers" in out.errors[0].message
