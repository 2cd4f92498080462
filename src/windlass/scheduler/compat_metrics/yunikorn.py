"""Metrics of YuniKorn's core."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from math import ceil

from prometheus_client.metrics_core import Metric

from windlass.scheduler.compat_metrics.families import LeftOut, MetricsExporter, Row, families, total
from windlass.scheduler.compat_metrics.scrape import Scrape

RESOURCES = {
    "allocated": "allocated",
    "guarantee": "guaranteed",
    "capability": "max",
}
APPS = {
    "new": ("Pending",),
    "accepted": ("Inqueue",),
    "running": ("Running", "Unknown"),
    "completed": ("Completed",),
}
RANGES = ("[0,10%]", *(f"({low}0%,{low + 1}0%]" for low in range(1, 10)))
FAMILIES = (
    *families(
        "gauge",
        "queue state resource",
        {
            "yunikorn_queue_resource": "Resources of a queue in base units: `guaranteed`, `max`, `allocated`,"
            " `pending`"
        },
    ),
    *families(
        "gauge",
        "queue state",
        {"yunikorn_queue_app": "Its PodGroups: `new`, `accepted` (admitted), `running`, `completed`"},
    ),
    *families(
        "gauge",
        "state",
        {"yunikorn_scheduler_application_total": "PodGroups of all queues: `running`, `completed`"},
    ),
    *families(
        "counter",
        "state",
        {
            "yunikorn_scheduler_container_allocation_attempt_total": "Binds that succeeded (`allocated`) or"
            " failed (`error`)"
        },
    ),
    *families(
        "histogram",
        "",
        {
            "yunikorn_scheduler_scheduling_latency_milliseconds": "The phase of a cycle that decides, in seconds, as"
            " there",
            "yunikorn_scheduler_scheduling_cycle_milliseconds": "One cycle, in seconds, as there",
        },
    ),
    *families(
        "gauge",
        "state",
        {"yunikorn_scheduler_node": "Nodes: `active`; `draining`, cordoned; `unhealthy`, not ready"},
    ),
    *families(
        "gauge",
        "range",
        {
            "yunikorn_scheduler_vcore_node_usage_total": "Nodes by the allocated fraction of their CPU: `[0,10%]` …"
            " `(90%,100%]`",
            "yunikorn_scheduler_memory_node_usage_total": "The same for memory",
            "yunikorn_scheduler_nvidia_com_gpu_node_usage_total": "The same for GPUs, on nodes that have some",
        },
    ),
)
_USAGE = {
    "cpu": "yunikorn_scheduler_vcore_node_usage_total",
    "memory": "yunikorn_scheduler_memory_node_usage_total",
    "nvidia.com/gpu": "yunikorn_scheduler_nvidia_com_gpu_node_usage_total",
}
LEFT_OUT = (
    LeftOut(
        "yunikorn_scheduler_node_sorting_latency_milliseconds, yunikorn_scheduler_trynode_latency_milliseconds,"
        " yunikorn_scheduler_trynode_evaluation_milliseconds, yunikorn_scheduler_trypreemption_latency_milliseconds,"
        " yunikorn_scheduler_trynode_count, yunikorn_scheduler_tryapplication_count",
        "nodes are not tried one by one; `windlass_scheduler_action_duration_seconds` has the duration of preemption",
    ),
    LeftOut(
        "yunikorn_scheduler_application_submission_total",
        "nothing is submitted to the scheduler; it follows the objects of the cluster",
    ),
    LeftOut(
        "states `preempting`, `rejected`, `failing`, `failed`, `resuming`, `released`",
        "groups have no such state",
    ),
    LeftOut("yunikorn_<queue>_queue_…", "YuniKorn itself has replaced them by a label"),
)


_EXPORTER = MetricsExporter(FAMILIES)


def export(scrape: Scrape) -> Iterator[Metric]:
    own = scrape.own
    resources: list[Row] = []
    apps: list[Row] = []
    totals: Counter[str] = Counter()
    for name, queue in scrape.queues.items():
        by_state = {label: queue.of(state) for state, label in RESOURCES.items()}
        by_state["pending"] = queue.pending
        resources += [
            ((name, label, resource), value)
            for label, values in by_state.items()
            for resource, value in values.items()
        ]
        for label, phases in APPS.items():
            apps.append(((name, label), queue.number(*phases)))
            totals[label] += queue.number(*phases)
    yield _EXPORTER.rows("yunikorn_queue_resource", resources)
    yield _EXPORTER.rows("yunikorn_queue_app", apps)
    applications = [((label,), totals[label]) for label in ("running", "completed")]
    yield _EXPORTER.rows("yunikorn_scheduler_application_total", applications)
    attempts = {"allocated": "bound", "error": "failed"}
    rows = [((label,), total(own.binds, result=result)) for label, result in attempts.items()]
    yield _EXPORTER.rows("yunikorn_scheduler_container_allocation_attempt_total", rows)
    yield _EXPORTER.durations(
        "yunikorn_scheduler_scheduling_latency_milliseconds", own.part_seconds.of("decide")
    )
    yield _EXPORTER.renamed("yunikorn_scheduler_scheduling_cycle_milliseconds", own.cycle_seconds)
    yield from _nodes(scrape)


def _nodes(scrape: Scrape) -> Iterator[Metric]:
    states = Counter(
        "unhealthy" if node.ready not in ("", "True") else "draining" if node.unschedulable else "active"
        for node in scrape.model.objects.nodes.values()
    )
    yield _EXPORTER.rows(
        "yunikorn_scheduler_node",
        [((state,), states[state]) for state in ("active", "draining", "unhealthy")],
    )
    held = scrape.sources.node_usage.held()
    for resource, name in _USAGE.items():
        ranges: Counter[int] = Counter()
        for node in scrape.model.objects.nodes.values():
            allocatable = node.allocatable.get(resource, 0)
            if allocatable > 0:
                tenths = ceil(10 * held.get(node.name, {}).get(resource, 0) / allocatable)
                ranges[min(max(tenths, 1), 10) - 1] += 1
        if ranges:
            yield _EXPORTER.rows(name, [((label,), ranges[index]) for index, label in enumerate(RANGES)])
