"""kube-scheduler."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.metrics_core import Metric

from windlass.scheduler.compat_metrics.families import LeftOut, MetricsExporter, families, total
from windlass.scheduler.compat_metrics.scrape import Scrape

PROFILE = "windlass"
RESULTS = {"bound": "scheduled", "failed": "error"}
FAMILIES = (
    *families(
        "gauge",
        "queue",
        {
            "scheduler_pending_pods": "Pods that wait: `unschedulable`, `gated`; there is no queue of active or"
            " backed-off ones"
        },
    ),
    *families(
        "counter",
        "result profile",
        {
            "scheduler_schedule_attempts_total": "Bindings carried out (`scheduled`) or failed (`error`). What"
            " waits is not tried again and again, so `unschedulable` is missing",
            "scheduler_podgroup_schedule_attempts_total": "Groups whose minimum came to nodes (`scheduled`)",
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
            "scheduler_framework_extension_point_duration_seconds": "`Bind` alone: one binding that came through."
            " Filters and scores are asked for all nodes at once, in the middle of others"
        },
    ),
    *families(
        "histogram",
        "",
        {
            "scheduler_pod_scheduling_sli_duration_seconds": "From a pod's creation to its binding",
            "scheduler_scheduling_algorithm_duration_seconds": "The part of a cycle that decides",
            "scheduler_podgroup_scheduling_algorithm_duration_seconds": "The same part",
            "scheduler_preemption_victims": "Pods that one claimer evicts in one cycle",
        },
    ),
    *families(
        "counter",
        "",
        {
            "scheduler_preemption_attempts_total": "Claimers for whom somebody was evicted, each counted once in a"
            " cycle"
        },
    ),
    *families("gauge", "type", {"scheduler_cache_size": "`nodes`, `pods` on nodes, `assumed_pods`"}),
)
LEFT_OUT = (
    LeftOut(
        "scheduler_plugin_execution_duration_seconds, scheduler_plugin_evaluation_total",
        "plug-ins are asked in"
        " arrays of nodes and kept answers; a time or a number of one of them would say nothing",
    ),
    LeftOut(
        "scheduler_unschedulable_pods",
        "its label is a plug-in of kube-scheduler; `windlass_scheduler_pending_groups` has the reasons",
    ),
    LeftOut(
        "scheduler_queue_incoming_pods_total, scheduler_pod_scheduling_attempts, scheduler_queued_entities",
        "there is no queue of attempts that pods enter and leave",
    ),
    LeftOut("scheduler_permit_wait_duration_seconds", "nothing waits for a permit: a gang is decided whole"),
    LeftOut("scheduler_goroutines", "there are none"),
)
_TELL = MetricsExporter(FAMILIES)


def export(scrape: Scrape) -> Iterator[Metric]:
    own, story = scrape.own, scrape.group_counters
    done = {"profile": PROFILE, "result": "scheduled"}
    tell = _TELL
    for name in ("scheduling_attempt", "podgroup_scheduling_attempt"):
        yield tell.renamed(f"scheduler_{name}_duration_seconds", own.cycle_seconds, 1.0, **done)
    yield tell.renamed("scheduler_pod_scheduling_sli_duration_seconds", own.wait_seconds)
    bind = {"extension_point": "Bind", "status": "Success", "profile": PROFILE}
    yield tell.renamed("scheduler_framework_extension_point_duration_seconds", own.bind_seconds, 1.0, **bind)
    decide = own.part_seconds.of("decide")
    for name in ("scheduling_algorithm", "podgroup_scheduling_algorithm"):
        yield tell.durations(f"scheduler_{name}_duration_seconds", decide)
    attempts = [((word, PROFILE), total(own.binds, result=ours)) for ours, word in RESULTS.items()]
    yield tell.rows("scheduler_schedule_attempts_total", attempts)
    whole = story.start_wait.count
    yield tell.rows("scheduler_podgroup_schedule_attempts_total", [(("scheduled", PROFILE), whole)])
    yield tell.value("scheduler_preemption_attempts_total", sum(story.transactions.values()))
    yield tell.durations("scheduler_preemption_victims", story.victims)
    pods = scrape.pods
    waiting = [(("unschedulable",), pods["waiting"]), (("gated",), pods["gated"])]
    yield tell.rows("scheduler_pending_pods", waiting)
    assumed = len(scrape.model.assumed)
    held = sum(bool(pod.node_name) and not pod.finished for pod in scrape.model.pods.values())
    size = {"nodes": len(scrape.model.nodes), "pods": held + assumed, "assumed_pods": assumed}
    yield tell.rows("scheduler_cache_size", [((kind,), number) for kind, number in size.items()])
