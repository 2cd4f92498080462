"""KAI, with the prefix ``kai_`` that its charts set. Where there are queues of KAI, these alone are told, by their own
names; else all others are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from prometheus_client.metrics_core import Metric

from windlass.api.devices.request import GPU
from windlass.model.queues import engine_queue
from windlass.scheduler.compat_metrics.families import JOBS, LeftOut, MetricsExporter, Row, families, total
from windlass.scheduler.compat_metrics.scrape import Scrape, ScrapedQueue, job_named
from windlass.scheduler.observability.lifecycle import PARTS

_QUEUE = "queue_name queue_metadata_name"
AMOUNTS = (
    ("kai_queue_fair_share_gpu", "fair_share", GPU, 1.0, "The fair share of GPUs"),
    ("kai_queue_fair_share_cpu_cores", "fair_share", "cpu", 1.0, "The fair share of CPU"),
    ("kai_queue_fair_share_memory_gb", "fair_share", "memory", 1e-9, "The fair share of memory"),
    ("kai_queue_deserved_gpus", "deserved", GPU, 1.0, "The quota of GPUs; -1: any number"),
    ("kai_queue_quota_cpu_cores", "deserved", "cpu", 1.0, "The quota of CPU; -1: any amount"),
    ("kai_queue_quota_memory_bytes", "deserved", "memory", 1.0, "The quota of memory; -1: any amount"),
    ("kai_queue_allocated_gpus", "allocated", GPU, 1.0, "GPUs held"),
    ("kai_queue_allocated_cpu_cores", "allocated", "cpu", 1.0, "CPU held"),
    ("kai_queue_allocated_memory_bytes", "allocated", "memory", 1.0, "Memory held"),
)
"""Name, our state, resource, the unit told in the base unit, and meaning."""
_PARTS = {
    "kai_e2e_scheduling_latency_milliseconds": ("cycle", "The last cycle"),
    "kai_open_session_latency_milliseconds": (
        PARTS[0],
        "The part of the last cycle that read what had changed",
    ),
    "kai_close_session_latency_milliseconds": (
        PARTS[2],
        "The part of the last cycle that showed what was new",
    ),
}
FAMILIES = (
    *families("gauge", _QUEUE, {"kai_queue_info": "1", **{name: meaning for name, *_, meaning in AMOUNTS}}),
    *families("gauge", "", {name: meaning for name, (_, meaning) in _PARTS.items()}),
    *families(
        "gauge",
        "action",
        {"kai_action_scheduling_latency_milliseconds": "The pass of an action in the last cycle"},
    ),
    *families(
        "histogram",
        "",
        {
            "kai_task_scheduling_latency_milliseconds": "From a pod's creation to its binding",
            "kai_task_bind_latency_milliseconds": "One binding request",
        },
    ),
    *families(
        "counter",
        "action",
        {
            "kai_podgroups_scheduled_by_action": "Groups of which an action placed pods, each counted once in a cycle"
        },
    ),
    *families("counter", "", {"kai_total_preemption_attempts": "Evictions decided"}),
    *families(
        "counter",
        "podgroup namespace uid nodepool action",
        {"kai_pod_group_evicted_pods_total": "Pods that an action evicted; the node pool is empty"},
        JOBS,
    ),
)
LEFT_OUT = (
    LeftOut(
        "kai_plugin_scheduling_latency_milliseconds",
        "plug-ins have no work of their own when a cycle begins or ends",
    ),
    LeftOut(
        "kai_podgroups_acted_on_by_action", "groups that ask for the same are judged together, not one by one"
    ),
    LeftOut(
        "kai_scenarios_simulation_by_action, kai_scenarios_filtered_by_action, kai_scenario_search_*",
        "room is not searched for by scenarios that could be counted",
    ),
    LeftOut(
        "kai_queue_gpu_usage, kai_queue_cpu_usage, kai_queue_memory_usage, kai_usage_query_latency_milliseconds",
        "they are of KAI's usage database, in units of its configuration",
    ),
    LeftOut(
        "label `queue_display_name`", "the display name of a queue is not read; `queue_name` is its name"
    ),
)
_TELL = MetricsExporter(FAMILIES)


def export(scrape: Scrape) -> Iterator[Metric]:
    own, story, tell = scrape.own, scrape.group_counters, _TELL
    told = own.last_cycle
    for name, (part, _) in _PARTS.items():
        yield tell.rows(name, [((), 1000 * told[part])] if part in told else [])
    actions = [((action,), 1000 * seconds) for action, seconds in own.last_actions.items()]
    yield tell.rows("kai_action_scheduling_latency_milliseconds", actions)
    yield tell.renamed("kai_task_scheduling_latency_milliseconds", own.wait_seconds, 1000.0)
    yield tell.renamed("kai_task_bind_latency_milliseconds", own.bind_seconds, 1000.0)
    scheduled = [((action,), number) for action, number in story.scheduled.items()]
    yield tell.rows("kai_podgroups_scheduled_by_action", scheduled)
    yield tell.value("kai_total_preemption_attempts", total(own.decisions, kind="eviction"))
    yield from _queues(scrape)
    if JOBS in scrape.sources.details:
        rows: list[Row] = [
            ((name, namespace, life.uid, "", action), pods)
            for key, life in story.lives.items()
            if life.evicted
            for namespace, name in (job_named(key),)
            for action, pods in life.evicted.items()
        ]
        yield tell.rows("kai_pod_group_evicted_pods_total", rows)


def _queues(scrape: Scrape) -> Iterator[Metric]:
    every: Mapping[str, ScrapedQueue] = scrape.queues
    kais = {name: queue for name, queue in every.items() if engine_queue.is_kai(name)}
    found = {engine_queue.plain(name): queue for name, queue in (kais or every).items()}
    yield _TELL.rows("kai_queue_info", [((name, name), 1) for name in found])
    for metric, state, resource, factor, _ in AMOUNTS:
        rows = []
        for name, queue in found.items():
            view = scrape.model.kai_queues.get(name) if kais else None
            if state == "deserved" and view is not None and resource in view.unlimited:
                rows.append(((name, name), -1.0))
            elif resource in queue.of(state):
                rows.append(((name, name), queue.of(state)[resource] * factor))
        yield _TELL.rows(metric, rows)
