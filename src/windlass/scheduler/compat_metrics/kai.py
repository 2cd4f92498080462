"""Metrics of KAI, with the prefix ``kai_`` that its charts set.

If there are queues of KAI, only these are exported, by their own names. Otherwise all
queues are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from prometheus_client.metrics_core import Metric

from windlass.api.devices.request import GPU
from windlass.model.queues import engine_queue
from windlass.scheduler.compat_metrics.families import JOBS, LeftOut, MetricsExporter, Row, families, total
from windlass.scheduler.compat_metrics.scrape import Scrape, ScrapedQueue, namespace_and_name
from windlass.scheduler.observability.lifecycle import PHASES

_QUEUE = "queue_name queue_metadata_name"
AMOUNTS = (
    ("kai_queue_fair_share_gpu", "fair_share", GPU, 1.0, "The fair share of GPUs"),
    ("kai_queue_fair_share_cpu_cores", "fair_share", "cpu", 1.0, "The fair share of CPU"),
    ("kai_queue_fair_share_memory_gb", "fair_share", "memory", 1e-9, "The fair share of memory"),
    ("kai_queue_deserved_gpus", "deserved", GPU, 1.0, "The quota of GPUs; -1: any number"),
    ("kai_queue_quota_cpu_cores", "deserved", "cpu", 1.0, "The quota of CPU; -1: any amount"),
    ("kai_queue_quota_memory_bytes", "deserved", "memory", 1.0, "The quota of memory; -1: any amount"),
    ("kai_queue_allocated_gpus", "allocated", GPU, 1.0, "Allocated GPUs"),
    ("kai_queue_allocated_cpu_cores", "allocated", "cpu", 1.0, "Allocated CPU"),
    ("kai_queue_allocated_memory_bytes", "allocated", "memory", 1.0, "Allocated memory"),
)
"""Name, state, resource, exported units per base unit, and meaning."""
_PHASES = {
    "kai_e2e_scheduling_latency_milliseconds": ("cycle", "The last cycle"),
    "kai_open_session_latency_milliseconds": (
        PHASES[0],
        "The phase of the last cycle that took changes in",
    ),
    "kai_close_session_latency_milliseconds": (
        PHASES[2],
        "The phase of the last cycle that reported changes",
    ),
}
FAMILIES = (
    *families("gauge", _QUEUE, {"kai_queue_info": "1", **{name: meaning for name, *_, meaning in AMOUNTS}}),
    *families("gauge", "", {name: meaning for name, (_, meaning) in _PHASES.items()}),
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
            "kai_task_bind_latency_milliseconds": "One bind",
        },
    ),
    *families(
        "counter",
        "action",
        {
            "kai_podgroups_scheduled_by_action": "Groups of which an action placed pods, each counted once per cycle"
        },
    ),
    *families("counter", "", {"kai_total_preemption_attempts": "Evictions decided"}),
    *families(
        "counter",
        "podgroup namespace uid nodepool action",
        {"kai_pod_group_evicted_pods_total": "Pods that an action evicted; the label `nodepool` is empty"},
        JOBS,
    ),
)
LEFT_OUT = (
    LeftOut(
        "kai_plugin_scheduling_latency_milliseconds",
        "plugins do no work when a cycle begins or ends",
    ),
    LeftOut(
        "kai_podgroups_acted_on_by_action",
        "groups with equal requests are evaluated together, not one by one",
    ),
    LeftOut(
        "kai_scenarios_simulation_by_action, kai_scenarios_filtered_by_action, kai_scenario_search_*",
        "the search for capacity has no scenarios that could be counted",
    ),
    LeftOut(
        "kai_queue_gpu_usage, kai_queue_cpu_usage, kai_queue_memory_usage, kai_usage_query_latency_milliseconds",
        "they come from KAI's usage database, in units of its configuration",
    ),
    LeftOut("label `queue_display_name`", "display names of queues are not read; `queue_name` is the name"),
)
_EXPORTER = MetricsExporter(FAMILIES)


def export(scrape: Scrape) -> Iterator[Metric]:
    own, counters, exporter = scrape.own, scrape.counters, _EXPORTER
    last = own.last_cycle
    for name, (phase, _) in _PHASES.items():
        yield exporter.rows(name, [((), 1000 * last[phase])] if phase in last else [])
    actions = [((action,), 1000 * seconds) for action, seconds in own.last_actions.items()]
    yield exporter.rows("kai_action_scheduling_latency_milliseconds", actions)
    yield exporter.renamed("kai_task_scheduling_latency_milliseconds", own.wait_seconds, 1000.0)
    yield exporter.renamed("kai_task_bind_latency_milliseconds", own.bind_seconds, 1000.0)
    scheduled = [((action,), number) for action, number in counters.scheduled.items()]
    yield exporter.rows("kai_podgroups_scheduled_by_action", scheduled)
    yield exporter.value("kai_total_preemption_attempts", total(own.decisions, kind="eviction"))
    yield from _queues(scrape)
    if JOBS in scrape.sources.details:
        rows: list[Row] = [
            ((name, namespace, life.uid, "", action), pods)
            for key, life in counters.lives.items()
            if life.evicted
            for namespace, name in (namespace_and_name(key),)
            for action, pods in life.evicted.items()
        ]
        yield exporter.rows("kai_pod_group_evicted_pods_total", rows)


def _queues(scrape: Scrape) -> Iterator[Metric]:
    all_queues: Mapping[str, ScrapedQueue] = scrape.queues
    kai_queues = {name: queue for name, queue in all_queues.items() if engine_queue.is_kai(name)}
    queues = {engine_queue.plain(name): queue for name, queue in (kai_queues or all_queues).items()}
    yield _EXPORTER.rows("kai_queue_info", [((name, name), 1) for name in queues])
    for metric, state, resource, factor, _ in AMOUNTS:
        rows = []
        for name, queue in queues.items():
            view = scrape.model.objects.kai_queues.get(name) if kai_queues else None
            if state == "deserved" and view is not None and resource in view.unlimited:
                rows.append(((name, name), -1.0))
            elif resource in queue.of(state):
                rows.append(((name, name), queue.of(state)[resource] * factor))
        yield _EXPORTER.rows(metric, rows)
