"""Metrics of Kueue.

A ClusterQueue is a queue without child queues, a Cohort one with some, a Workload a
PodGroup.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from prometheus_client.metrics_core import Metric

from windlass.api.reasons import FACTS, Reason
from windlass.scheduler.compat_metrics.families import LeftOut, MetricsExporter, Row, families
from windlass.scheduler.compat_metrics.scrape import Scrape, ScrapedQueue

ADMITTED = ("Inqueue", "Running", "Unknown")
_STATUS = {"Open": "active", "Deleted": "terminating"}
_RESOURCE_LABELS = "cohort cluster_queue flavor resource"
FAMILIES = (
    *families(
        "counter",
        "result",
        {
            "kueue_admission_attempts_total": "Cycles that admitted a group (`success`), or none of the"
            " pending ones (`inadmissible`)"
        },
    ),
    *families(
        "histogram", "result", {"kueue_admission_attempt_duration_seconds": "Duration of those cycles"}
    ),
    *families(
        "gauge",
        "cluster_queue status",
        {
            "kueue_pending_workloads": "PodGroups not admitted: all `active`; none is parked as `inadmissible`",
            "kueue_cluster_queue_status": "1 for the current status: `active` (open), `pending` (closed or closing: it"
            " admits no group), `terminating`",
        },
    ),
    *families(
        "gauge",
        "cluster_queue",
        {
            "kueue_admitted_active_workloads": "PodGroups admitted and not finished",
            "kueue_reserving_active_workloads": "The same: an admitted group has its quota",
            "kueue_finished_workloads": "PodGroups that have finished and still exist",
        },
    ),
    *families(
        "counter",
        "cluster_queue",
        {
            "kueue_admitted_workloads_total": "Groups admitted since the process began",
            "kueue_quota_reserved_workloads_total": "The same",
            "kueue_finished_workloads_total": "Groups that have finished since the process began",
        },
    ),
    *families(
        "histogram",
        "cluster_queue",
        {
            "kueue_admission_wait_time_seconds": "From a group's creation to its admission",
            "kueue_quota_reserved_wait_time_seconds": "The same",
            "kueue_ready_wait_time_seconds": "From a group's creation until its minimum runs",
            "kueue_admitted_until_ready_wait_time_seconds": "From its admission until its minimum runs",
            "kueue_execution_time_seconds": "Total time for which the minimum of a finished group ran",
        },
    ),
    *families(
        "counter",
        "cluster_queue reason underlying_cause",
        {
            "kueue_evicted_workloads_total": "Groups of which pods were evicted: `Preempted` for another group,"
            " `PodsReadyTimeout` since the gang missed its minimum. The cause is empty"
        },
    ),
    *families(
        "counter",
        "preempting_cluster_queue reason",
        {
            "kueue_preempted_workloads_total": "Groups evicted for a group of this queue: `InClusterQueue`,"
            " from the same queue, or `InCohortReclamation`, from another"
        },
    ),
    *families(
        "histogram",
        "cluster_queue reason",
        {
            "kueue_workload_eviction_latency_seconds": "From the decision to evict until the group holds no resources"
        },
    ),
    *families(
        "gauge",
        "cluster_queue reason underlying_cause",
        {
            "kueue_unadmitted_workloads": "Pending groups by Kueue's reason and, as the cause, Windlass' reason; also"
            " admitted groups without capacity"
        },
    ),
    *families(
        "gauge",
        _RESOURCE_LABELS,
        {
            "kueue_cluster_queue_resource_usage": "Allocated; the flavor is empty",
            "kueue_cluster_queue_resource_reservation": "The same",
            "kueue_cluster_queue_resource_pending": "Requested and not allocated",
            "kueue_cluster_queue_nominal_quota": "Deserved",
            "kueue_cluster_queue_borrowing_limit": "What may be allocated above what it deserves, if that is limited",
            "kueue_cluster_queue_lending_limit": "What it deserves and other queues may use, if some is guaranteed",
        },
    ),
    *families(
        "gauge",
        "cluster_queue cohort",
        {
            "kueue_cluster_queue_weighted_share": "Thousandths: the largest fraction of what its cohort can"
            " lend that is allocated above its quota, divided by its weight"
        },
    ),
    *families("gauge", "cluster_queue cohort parent_cohort root_cohort", {"kueue_cluster_queue_info": "1"}),
    *families("gauge", "cohort parent_cohort root_cohort", {"kueue_cohort_info": "1"}),
    *families(
        "gauge",
        "cohort",
        {
            "kueue_cohort_weighted_share": "As for a queue; 0 at the top",
            "kueue_cohort_subtree_admitted_active_workloads": "PodGroups below it admitted and not finished",
        },
    ),
    *families(
        "counter", "cohort", {"kueue_cohort_subtree_admitted_workloads_total": "Groups below it admitted"}
    ),
    *families(
        "gauge",
        "cohort flavor resource",
        {
            "kueue_cohort_subtree_quota": "Deserved: its own value, else the sum of the queues below it",
            "kueue_cohort_subtree_resource_reservations": "Allocated below it",
        },
    ),
)
LEFT_OUT = (
    LeftOut("kueue_admission_checks_wait_time_seconds", "there are no admission checks"),
    LeftOut(
        "kueue_local_queue_*",
        "LocalQueues are translated once (`windlass install --adopt kueue`) and not followed",
    ),
    LeftOut(
        "label `flavor`",
        "quotas are by resource, with the GPU model in its name; the label exists and is empty",
    ),
    LeftOut(
        "labels `replica_role`, `priority_class`",
        "`windlass_scheduler_leader` shows the leader; priority classes have no metrics",
    ),
    LeftOut("kueue_build_info", "it is not Kueue"),
    LeftOut(
        "kueue_admission_cycle_preemption_skips, kueue_evicted_workloads_once_total",
        "nothing like it is counted",
    ),
)
_EXPORTER = MetricsExporter(FAMILIES)


def export(scrape: Scrape) -> Iterator[Metric]:
    leaves = {name: queue for name, queue in scrape.queues.items() if not queue.children}
    cohorts = {name: queue for name, queue in scrape.queues.items() if queue.children}
    yield from _history(scrape)
    yield from _workloads(scrape, leaves)
    yield from _resources(leaves)
    yield from _cohorts(scrape, leaves, cohorts)


def _history(scrape: Scrape) -> Iterator[Metric]:
    """Return what was counted since the process began."""
    counters, exporter = scrape.counters, _EXPORTER
    yield exporter.rows("kueue_admission_attempts_total", counters.attempts.counts().items())
    yield exporter.timings("kueue_admission_attempt_duration_seconds", counters.attempts)
    admitted = counters.admission_wait.counts().items()
    yield exporter.rows("kueue_admitted_workloads_total", admitted)
    yield exporter.rows("kueue_quota_reserved_workloads_total", admitted)
    yield exporter.rows("kueue_finished_workloads_total", counters.execution.counts().items())
    yield exporter.timings("kueue_admission_wait_time_seconds", counters.admission_wait)
    yield exporter.timings("kueue_quota_reserved_wait_time_seconds", counters.admission_wait)
    yield exporter.timings("kueue_ready_wait_time_seconds", counters.ready_wait)
    yield exporter.timings("kueue_admitted_until_ready_wait_time_seconds", counters.admitted_until_ready)
    yield exporter.timings("kueue_execution_time_seconds", counters.execution)
    yield exporter.timings("kueue_workload_eviction_latency_seconds", counters.eviction_wait)
    evicted = [((queue, reason, ""), number) for (queue, reason), number in counters.evicted.items()]
    yield exporter.rows("kueue_evicted_workloads_total", evicted)
    yield exporter.rows("kueue_preempted_workloads_total", counters.preempted.items())


def _workloads(scrape: Scrape, queues: Mapping[str, ScrapedQueue]) -> Iterator[Metric]:
    pending: list[Row] = []
    status: list[Row] = []
    for name, queue in queues.items():
        pending += [((name, "active"), queue.number("Pending")), ((name, "inadmissible"), 0)]
        current = _STATUS.get(queue.state, "pending")
        status += [((name, label), float(label == current)) for label in ("active", "pending", "terminating")]
    yield _EXPORTER.rows("kueue_pending_workloads", pending)
    yield _EXPORTER.rows("kueue_cluster_queue_status", status)
    admitted = [((name,), queue.number(*ADMITTED)) for name, queue in queues.items()]
    yield _EXPORTER.rows("kueue_admitted_active_workloads", admitted)
    yield _EXPORTER.rows("kueue_reserving_active_workloads", admitted)
    finished = [((name,), queue.number("Completed")) for name, queue in queues.items()]
    yield _EXPORTER.rows("kueue_finished_workloads", finished)
    waiting = Counter((queue, FACTS[Reason(code)].kueue, code) for _, queue, code in scrape.pending)
    yield _EXPORTER.rows("kueue_unadmitted_workloads", waiting.items())


def _resources(queues: Mapping[str, ScrapedQueue]) -> Iterator[Metric]:
    rows: dict[str, list[Row]] = {
        state: [] for state in ("usage", "pending", "nominal", "borrowing", "lending")
    }
    for name, queue in queues.items():
        deserved, limit = queue.of("deserved"), queue.of("capability")
        by_state = {
            "usage": queue.of("allocated"),
            "pending": queue.pending,
            "nominal": deserved,
            "borrowing": {key: max(0.0, value - deserved.get(key, 0.0)) for key, value in limit.items()},
            "lending": {
                key: max(0.0, deserved[key] - value)
                for key, value in queue.of("guarantee").items()
                if key in deserved
            },
        }
        for state, values in by_state.items():
            rows[state] += [((queue.parent, name, "", resource), value) for resource, value in values.items()]
    for name, state in (
        ("resource_usage", "usage"),
        ("resource_reservation", "usage"),
        ("resource_pending", "pending"),
        ("nominal_quota", "nominal"),
        ("borrowing_limit", "borrowing"),
        ("lending_limit", "lending"),
    ):
        yield _EXPORTER.rows(f"kueue_cluster_queue_{name}", rows[state])


def _cohorts(
    scrape: Scrape, leaves: Mapping[str, ScrapedQueue], cohorts: Mapping[str, ScrapedQueue]
) -> Iterator[Metric]:
    queues = scrape.queues
    quotas = Quotas(queues)
    shares = {name: quotas.weighted_share(name) for name in queues}
    above = {name: list(_ancestors(queues, queue)) for name, queue in queues.items()}
    yield _EXPORTER.rows(
        "kueue_cluster_queue_weighted_share",
        [((name, queue.parent), shares[name]) for name, queue in leaves.items()],
    )
    yield _EXPORTER.rows("kueue_cohort_weighted_share", [((name,), shares[name]) for name in cohorts])
    info = [
        ((name, queue.parent, queue.parent, above[name][-1]), 1)
        for name, queue in leaves.items()
        if above[name]
    ]
    yield _EXPORTER.rows("kueue_cluster_queue_info", info)
    tree = [((name, queue.parent, [name, *above[name]][-1]), 1) for name, queue in cohorts.items()]
    yield _EXPORTER.rows("kueue_cohort_info", tree)
    active: Counter[str] = Counter()
    admissions: Counter[str] = Counter()
    admitted = scrape.counters.admission_wait.counts()
    for name, queue in leaves.items():
        for cohort in above[name]:
            active[cohort] += queue.number(*ADMITTED)
            admissions[cohort] += admitted.get((name,), 0)
    for suffix, numbers in (("active_workloads", active), ("workloads_total", admissions)):
        rows = [((name,), numbers[name]) for name in cohorts]
        yield _EXPORTER.rows(f"kueue_cohort_subtree_admitted_{suffix}", rows)
    quota = {name: quotas.of(name) for name in cohorts}
    held = {name: queue.of("allocated") for name, queue in cohorts.items()}
    for suffix, resources in (("quota", quota), ("resource_reservations", held)):
        rows = [
            ((name, "", resource), value) for name in cohorts for resource, value in resources[name].items()
        ]
        yield _EXPORTER.rows(f"kueue_cohort_subtree_{suffix}", rows)


def _ancestors(queues: Mapping[str, ScrapedQueue], queue: ScrapedQueue) -> Iterator[str]:
    """Return the queues above a queue, the nearest first."""
    seen = {queue.name}
    while queue.parent in queues and queue.parent not in seen:
        queue = queues[queue.parent]
        seen.add(queue.name)
        yield queue.name


class Quotas:
    """Deserved and lendable resources of the queues of a tree.

    Each value is computed once.
    """

    def __init__(self, queues: Mapping[str, ScrapedQueue]) -> None:
        self._queues = queues
        self._quota: dict[str, dict[str, float]] = {}
        self._lendable: dict[str, dict[str, float]] = {}

    def of(self, name: str) -> dict[str, float]:
        """Return the own quota of a queue, else the sum of the queues below it."""
        quota = self._quota.get(name)
        if quota is None:
            queue = self._queues[name]
            children = _sum(self.of(child) for child in queue.children if child in self._queues)
            self._quota[name] = quota = children | dict(queue.of("deserved"))
        return quota

    def lendable(self, cohort: str) -> dict[str, float]:
        """Return what the members of a cohort deserve, without what is guaranteed to them."""
        lendable = self._lendable.get(cohort)
        if lendable is None:
            members = [name for name in self._queues[cohort].children if name in self._queues]
            lendable = self._lendable[cohort] = _sum(self._lends(name) for name in members)
        return lendable

    def _lends(self, name: str) -> dict[str, float]:
        guaranteed = self._queues[name].of("guarantee")
        return {
            resource: max(0.0, value - guaranteed.get(resource, 0.0))
            for resource, value in self.of(name).items()
        }

    def weighted_share(self, name: str) -> int:
        """Return Kueue's dominant resource share, in thousandths.

        For each resource this is what is allocated above the quota, as a fraction of
        what the cohort's members can lend. The largest counts, divided by the weight.
        """
        queue = self._queues[name]
        if queue.parent not in self._queues:
            return 0
        lendable, quota = self.lendable(queue.parent), self.of(name)
        fractions = [
            (held - quota.get(resource, 0.0)) * 1000 / lendable[resource]
            for resource, held in queue.of("allocated").items()
            if lendable.get(resource)
        ]
        return int(max(0.0, *fractions, 0.0) / (queue.weight or 1))


def _sum(many: Iterable[Mapping[str, float]]) -> dict[str, float]:
    total: dict[str, float] = {}
    for resources in many:
        for resource, value in resources.items():
            total[resource] = total.get(resource, 0.0) + value
    return total
