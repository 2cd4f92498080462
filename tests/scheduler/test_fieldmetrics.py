"""``/metrics`` under the names of the field: what a scheduler at work tells."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from kubeobjects import group, node, pod, queue
from prometheus_client.parser import text_string_to_metric_families
from schedapi import Running, SchedulerApi

from windlass.kits.clock import FakeClock
from windlass.observe import metrics
from windlass.observe.metrics import exposition
from windlass.scheduler.fieldmetrics import FieldMetrics


@pytest.fixture
def api(fake_clock: FakeClock) -> SchedulerApi:
    made = SchedulerApi(fake_clock)
    made.add(queue("root"), queue("default"), queue("a", weight=3), node("n1", gpus=4))
    made.add(group("g", 3, queue="a"), *[pod(f"g-{i}", group="g") for i in range(3)])
    made.add(group("late", 3, queue="a"), *[pod(f"late-{i}", group="late") for i in range(3)])
    return made


async def test_the_names_of_the_field(api: SchedulerApi) -> None:
    registry = metrics.registry()
    async with Running(api, registry=registry) as running:
        FieldMetrics(registry, running.service.metrics, running.service.model)
        await running.settle(2.0)
        for name in ("g-0", "g-1", "g-2"):
            api.run(name)
        await running.settle(2.0)
        text = exposition(registry)[1].decode()
        families = {family.name for family in text_string_to_metric_families(text)}

        def value(name: str, **labels: str) -> float | None:
            return registry.get_sample_value(name, labels)

        ours = value("windlass_scheduler_pod_scheduling_duration_seconds_count")
        assert value("scheduler_pod_scheduling_sli_duration_seconds_count") == ours == 3
        seconds = value("windlass_scheduler_pod_scheduling_duration_seconds_sum")
        assert seconds is not None
        assert value("volcano_task_scheduling_latency_milliseconds_sum") == pytest.approx(1000 * seconds)
        assert value("scheduler_schedule_attempts_total", result="scheduled", profile="windlass") == 3
        assert value("volcano_schedule_attempts_total", result="error") == 0
        assert value("scheduler_pending_pods", queue="unschedulable") == 3
        assert value("volcano_unschedule_job_count") == 1
        assert (
            value("volcano_queue_allocated_scalar_resources", queue_name="a", resource="nvidia.com/gpu") == 3
        )
        assert value("volcano_queue_request_scalar_resources", queue_name="a", resource="nvidia.com/gpu") == 6
        assert value("volcano_queue_weight", queue_name="a") == 3
        assert value("volcano_queue_pod_group_running_count", queue_name="a") == 1
        assert value("volcano_queue_pod_group_inqueue_count", queue_name="a") == 1
        assert value("kueue_admitted_active_workloads", cluster_queue="a") == 2
        gpus = {"cluster_queue": "a", "flavor": "", "resource": "nvidia.com/gpu"}
        assert value("kueue_cluster_queue_resource_usage", **gpus) == 3
        assert value("kueue_cluster_queue_resource_pending", **gpus) == 3
        held = {"queue": "a", "resource": "nvidia.com/gpu"}
        assert value("yunikorn_queue_resource", state="allocated", **held) == 3
        assert value("yunikorn_queue_resource", state="pending", **held) == 3
        assert value("yunikorn_queue_app", queue="a", state="running") == 1
        assert value("kai_queue_allocated_gpus", queue_name="a") == 3
        bucket = "volcano_e2e_scheduling_latency_milliseconds_bucket"
        assert (value(bucket, le="500") or 0) > 0
        assert value(bucket, le="+Inf") == value("windlass_scheduler_cycle_duration_seconds_count")
        assert {"kueue_pending_workloads", "kai_queue_fair_share_gpu", "volcano_queue_share"} <= families
        assert text.count("# TYPE volcano_queue_share ") == 1
        shown = set(re.findall(r"^# TYPE (\S+) ", text, re.MULTILINE))
        assert [name for name in told() if name not in shown] == []
        assert value("volcano_total_preemption_attempts") == 0
        assert not [name for name in shown if name.endswith("_created")]


def told() -> list[str]:
    """The names that the page has, written out: ``a_{b,c}`` are two."""
    page = Path(__file__).resolve().parents[2] / "docs" / "operations" / "metrics.md"
    rows = re.findall(r"^\| (`[^|]+`) \|", page.read_text(), re.MULTILINE)
    names = [name for row in rows for name in re.findall(r"`([^`]+)`", row)]
    assert len(names) > 20
    return [written for name in names for written in _written_out(name)]


def _written_out(name: str) -> list[str]:
    head, brace, rest = name.partition("{")
    if not brace:
        return [name]
    choices, _, tail = rest.partition("}")
    return [f"{head}{choice}{after}" for choice in choices.split(",") for after in _written_out(tail)]
