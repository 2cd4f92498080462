"""Metrics of kube-scheduler."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.metrics_core import Metric

from windlass.scheduler.compat_metrics.families import LeftOut, MetricsExporter, families, total
from windlass.scheduler.compat_metrics.scrape import Scrape

PROFILE = "windlass"
RESULTS = {"bound": "scheduled", "failed": "error"}
"""Windlass' result of a bind → kube-scheduler's."""
FAMILIES = (
    *families(
        "gauge",
        "queue",
        {
            "scheduler_pending_pods": "Pending pods: `unschedulable`, `gated`. There is no queue of active or"
            " backed-off ones"
        },
    ),
    *families(
        "counter",
        "result profile",
        {
            "scheduler_schedule_attempts_total": "Binds that succeeded (`scheduled`) or failed (`error`). Pending"
            " pods are not retried one by one, so `unschedulable` is missing",
            "scheduler_podgroup_schedule_attempts_total": "Groups that have reached their minimum (`scheduled`)",
        },
    ),
    *families(
        "histogram",
        "result profile",
        {
            "scheduler_scheduling_attempt_duration_seconds": "One cycle, which decides for all pods together",
            "scheduler_podgroup_scheduling_attempt_duration_seconds": "The same cycle, which decides for all groups"
            " together",
        },
    ),
    *families(
        "histogram",
        "extension_point status profile",
        {
            "scheduler_framework_extension_point_duration_seconds": "`Bind` only: one bind that succeeded. Filters"
            " and scores are evaluated for all nodes at once, and not timed one by one"
        },
    ),
    *families(
        "histogram",
        "",
        {
            "scheduler_pod_scheduling_sli_duration_seconds": "From a pod's creation to its binding",
            "scheduler_scheduling_algorithm_duration_seconds": "The phase of a cycle that decides",
            "scheduler_podgroup_scheduling_algorithm_duration_seconds": "The same phase",
            "scheduler_preemption_victims": "Pods evicted for one preemptor in one cycle",
        },
    ),
    *families(
        "counter",
        "",
        {
            "scheduler_preemption_attempts_total": "Preemptors for which pods were evicted, each counted once per"
            " cycle"
        },
    ),
    *families("gauge", "type", {"scheduler_cache_size": "`nodes`, `pods` on nodes, `assumed_pods`"}),
)
LEFT_OUT = (
    LeftOut(
        "scheduler_plugin_execution_duration_seconds, scheduler_plugin_evaluation_total",
        "plugins are evaluated for arrays of nodes and their results are cached; a time or a number of one of them"
        " would mean nothing",
    ),
    LeftOut(
        "scheduler_unschedulable_pods",
        "its label is a plugin of kube-scheduler; `windlass_scheduler_pending_groups` has the reasons",
    ),
    LeftOut(
        "scheduler_queue_incoming_pods_total, scheduler_pod_scheduling_attempts, scheduler_queued_entities",
        "there is no queue of attempts",
    ),
    LeftOut(
        "scheduler_permit_wait_duration_seconds", "nothing waits for a permit: a gang is decided as a whole"
    ),
    LeftOut("scheduler_goroutines", "there are none"),
)
_EXPORTER = MetricsExporter(FAMILIES)


def export(scrape: Scrape) -> Iterator[Metric]:
    own, counters, exporter = scrape.own, scrape.counters, _EXPORTER
    done = {"profile": PROFILE, "result": "scheduled"}
    for name in ("scheduling_attempt", "podgroup_scheduling_attempt"):
        yield exporter.renamed(f"scheduler_{name}_duration_seconds", own.cycle_seconds, 1.0, **done)
    yield exporter.renamed("scheduler_pod_scheduling_sli_duration_seconds", own.wait_seconds)
    bind = {"extension_point": "Bind", "status": "Success", "profile": PROFILE}
    yield exporter.renamed(
        "scheduler_framework_extension_point_duration_seconds", own.bind_seconds, 1.0, **bind
    )
    decide = own.part_seconds.of("decide")
    for name in ("scheduling_algorithm", "podgroup_scheduling_algorithm"):
        yield exporter.durations(f"scheduler_{name}_duration_seconds", decide)
    attempts = [((result, PROFILE), total(own.binds, result=ours)) for ours, result in RESULTS.items()]
    yield exporter.rows("scheduler_schedule_attempts_total", attempts)
    complete = counters.start_wait.count
    yield exporter.rows("scheduler_podgroup_schedule_attempts_total", [(("scheduled", PROFILE), complete)])
    yield exporter.value("scheduler_preemption_attempts_total", sum(counters.transactions.values()))
    yield exporter.durations("scheduler_preemption_victims", counters.victims)
    pods = scrape.pods
    pending = [(("unschedulable",), pods["waiting"]), (("gated",), pods["gated"])]
    yield exporter.rows("scheduler_pending_pods", pending)
    assumed = len(scrape.model.binds.assumed)
    held = sum(bool(pod.node_name) and not pod.finished for pod in scrape.model.objects.pods.values())
    size = {"nodes": len(scrape.model.objects.nodes), "pods": held + assumed, "assumed_pods": assumed}
    yield exporter.rows("scheduler_cache_size", [((kind,), number) for kind, number in size.items()])
