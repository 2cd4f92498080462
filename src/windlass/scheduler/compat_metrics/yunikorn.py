"""YuniKorn's core."""

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
            "yunikorn_queue_resource": "A queue's amounts: `guaranteed`, `max`, `allocated`, `pending`, in base units"
        },
    ),
    *families(
        "gauge",
        "queue state",
        {"yunikorn_queue_app": "Its PodGroups: `new`, `accepted` (let in), `running`, `completed`"},
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
            "yunikorn_scheduler_container_allocation_attempt_total": "Pods bound (`allocated`), bindings that"
            " failed (`error`)"
        },
    ),
    *families(
        "histogram",
        "",
        {
            "yunikorn_scheduler_scheduling_latency_milliseconds": "The part of a cycle that decides, in seconds, as"
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
            "yunikorn_scheduler_vcore_node_usage_total": "Nodes of which so much of the CPU is held: `[0,10%]` …"
            " `(90%,100%]`",
            "yunikorn_scheduler_memory_node_usage_total": "The same, of memory",
            "yunikorn_scheduler_nvidia_com_gpu_node_usage_total": "The same, of GPUs, where there are some",
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
        "nodes are not tried one by one; `windlass_scheduler_action_duration_seconds` tells what evicting takes",
    ),
    LeftOut(
        "yunikorn_scheduler_application_submission_total",
        "nobody submits to the scheduler; it sees what is there",
    ),
    LeftOut(
        "states `preempting`, `rejected`, `failing`, `failed`, `resuming`, `released`",
        "nothing is kept by them",
    ),
    LeftOut("yunikorn_<queue>_queue_…", "YuniKorn itself has replaced them by the label"),
)


_TELL = MetricsExporter(FAMILIES)


def export(scrape: Scrape) -> Iterator[Metric]:
    own = scrape.own
    resources: list[Row] = []
    apps: list[Row] = []
    every: Counter[str] = Counter()
    for name, queue in scrape.queues.items():
        told = {word: queue.of(state) for state, word in RESOURCES.items()} | {"pending": queue.pending}
        resources += [
            ((name, word, resource), amount)
            for word, amounts in told.items()
            for resource, amount in amounts.items()
        ]
        for word, phases in APPS.items():
            apps.append(((name, word), queue.number(*phases)))
            every[word] += queue.number(*phases)
    yield _TELL.rows("yunikorn_queue_resource", resources)
    yield _TELL.rows("yunikorn_queue_app", apps)
    applications = [((word,), every[word]) for word in ("running", "completed")]
    yield _TELL.rows("yunikorn_scheduler_application_total", applications)
    attempts = {"allocated": "bound", "error": "failed"}
    rows = [((word,), total(own.binds, result=result)) for word, result in attempts.items()]
    yield _TELL.rows("yunikorn_scheduler_container_allocation_attempt_total", rows)
    yield _TELL.durations("yunikorn_scheduler_scheduling_latency_milliseconds", own.part_seconds.of("decide"))
    yield _TELL.renamed("yunikorn_scheduler_scheduling_cycle_milliseconds", own.cycle_seconds)
    yield from _nodes(scrape)


def _nodes(scrape: Scrape) -> Iterator[Metric]:
    states = Counter(
        "unhealthy" if node.ready not in ("", "True") else "draining" if node.unschedulable else "active"
        for node in scrape.model.nodes.values()
    )
    yield _TELL.rows(
        "yunikorn_scheduler_node", [((word,), states[word]) for word in ("active", "draining", "unhealthy")]
    )
    held = scrape.sources.ledger.held()
    for resource, name in _USAGE.items():
        ranges: Counter[int] = Counter()
        for node in scrape.model.nodes.values():
            has = node.allocatable.get(resource, 0)
            if has > 0:
                tenths = ceil(10 * held.get(node.name, {}).get(resource, 0) / has)
                ranges[min(max(tenths, 1), 10) - 1] += 1
        if ranges:
            yield _TELL.rows(name, [((word,), ranges[at]) for at, word in enumerate(RANGES)])
