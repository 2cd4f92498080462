"""Kueue. A ClusterQueue is a queue without queues below it; a Cohort is one that has some; a Workload is a PodGroup."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from prometheus_client.metrics_core import Metric

from windlass.api.reasons import FACTS, Reason
from windlass.scheduler.compat_metrics.families import LeftOut, MetricsExporter, Row, families
from windlass.scheduler.compat_metrics.scrape import Scrape, ScrapedQueue

ADMITTED = ("Inqueue", "Running", "Unknown")
_STATUS = {"Open": "active", "Deleted": "terminating"}
_AMOUNTS = "cohort cluster_queue flavor resource"
FAMILIES = (
    *families(
        "counter",
        "result",
        {
            "kueue_admission_attempts_total": "Cycles that let a group in (`success`), and those"
            " that let in none of those who wait (`inadmissible`)"
        },
    ),
    *families("histogram", "result", {"kueue_admission_attempt_duration_seconds": "Those cycles"}),
    *families(
        "gauge",
        "cluster_queue status",
        {
            "kueue_pending_workloads": "PodGroups not let in: all `active`; none is parked as `inadmissible`",
            "kueue_cluster_queue_status": "1: so it is: `active` (open), `pending` (closed or closing: it lets"
            " nobody in), `terminating`",
        },
    ),
    *families(
        "gauge",
        "cluster_queue",
        {
            "kueue_admitted_active_workloads": "PodGroups let in and not ended",
            "kueue_reserving_active_workloads": "The same: who is let in has its quota",
            "kueue_finished_workloads": "PodGroups that have ended and are still there",
        },
    ),
    *families(
        "counter",
        "cluster_queue",
        {
            "kueue_admitted_workloads_total": "Groups let in since the process began",
            "kueue_quota_reserved_workloads_total": "The same",
            "kueue_finished_workloads_total": "Groups that have ended since the process began",
        },
    ),
    *families(
        "histogram",
        "cluster_queue",
        {
            "kueue_admission_wait_time_seconds": "From a group's creation until it was let in",
            "kueue_quota_reserved_wait_time_seconds": "The same",
            "kueue_ready_wait_time_seconds": "From a group's creation until its minimum ran",
            "kueue_admitted_until_ready_wait_time_seconds": "From its being let in until its minimum ran",
            "kueue_execution_time_seconds": "For so long the minimum of a group that has ended has run in all",
        },
    ),
    *families(
        "counter",
        "cluster_queue reason underlying_cause",
        {
            "kueue_evicted_workloads_total": "Groups of which pods were evicted: `Preempted`, for others;"
            " `PodsReadyTimeout`, a gang that did not come together in time. The cause is empty"
        },
    ),
    *families(
        "counter",
        "preempting_cluster_queue reason",
        {
            "kueue_preempted_workloads_total": "Groups evicted for one of this queue: `InClusterQueue`, of the same;"
            " `InCohortReclamation`, of another"
        },
    ),
    *families(
        "histogram",
        "cluster_queue reason",
        {
            "kueue_workload_eviction_latency_seconds": "From a decision to evict until the group held nothing any more"
        },
    ),
    *families(
        "gauge",
        "cluster_queue reason underlying_cause",
        {
            "kueue_unadmitted_workloads": "Groups that wait, by Kueue's word and (the cause) Windlass' reason; also"
            " those that are let in and find no room"
        },
    ),
    *families(
        "gauge",
        _AMOUNTS,
        {
            "kueue_cluster_queue_resource_usage": "Held; the flavor is empty",
            "kueue_cluster_queue_resource_reservation": "The same",
            "kueue_cluster_queue_resource_pending": "Asked for and not held",
            "kueue_cluster_queue_nominal_quota": "Deserved",
            "kueue_cluster_queue_borrowing_limit": "What it may hold above what it deserves, where that is limited",
            "kueue_cluster_queue_lending_limit": "What it deserves and others may use, where some is guaranteed",
        },
    ),
    *families(
        "gauge",
        "cluster_queue cohort",
        {
            "kueue_cluster_queue_weighted_share": "Thousandths: the largest part that it holds above its quota of"
            " what its cohort can lend, by weight"
        },
    ),
    *families("gauge", "cluster_queue cohort parent_cohort root_cohort", {"kueue_cluster_queue_info": "1"}),
    *families("gauge", "cohort parent_cohort root_cohort", {"kueue_cohort_info": "1"}),
    *families(
        "gauge",
        "cohort",
        {
            "kueue_cohort_weighted_share": "As of a queue; 0 at the top",
            "kueue_cohort_subtree_admitted_active_workloads": "PodGroups below it let in and not ended",
        },
    ),
    *families(
        "counter", "cohort", {"kueue_cohort_subtree_admitted_workloads_total": "Groups below it let in"}
    ),
    *families(
        "gauge",
        "cohort flavor resource",
        {
            "kueue_cohort_subtree_quota": "Deserved: what it says itself, else what those below it do together",
            "kueue_cohort_subtree_resource_reservations": "Held below it",
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
        "quotas are by resource, and by card model in its name; the label is there and empty",
    ),
    LeftOut(
        "labels `replica_role`, `priority_class`",
        "`windlass_scheduler_leader` tells who leads; classes have no figures",
    ),
    LeftOut("kueue_build_info", "it is not Kueue"),
    LeftOut(
        "kueue_admission_cycle_preemption_skips, kueue_evicted_workloads_once_total",
        "nothing like it is kept",
    ),
)
_TELL = MetricsExporter(FAMILIES)


def export(scrape: Scrape) -> Iterator[Metric]:
    leaves = {name: queue for name, queue in scrape.queues.items() if not queue.children}
    cohorts = {name: queue for name, queue in scrape.queues.items() if queue.children}
    yield from _story(scrape)
    yield from _workloads(scrape, leaves)
    yield from _amounts(leaves)
    yield from _cohorts(scrape, leaves, cohorts)


def _story(scrape: Scrape) -> Iterator[Metric]:
    """What groups have come to since the process began."""
    story, tell = scrape.group_counters, _TELL
    yield tell.rows("kueue_admission_attempts_total", story.attempts.counts().items())
    yield tell.timings("kueue_admission_attempt_duration_seconds", story.attempts)
    admitted = story.admission_wait.counts().items()
    yield tell.rows("kueue_admitted_workloads_total", admitted)
    yield tell.rows("kueue_quota_reserved_workloads_total", admitted)
    yield tell.rows("kueue_finished_workloads_total", story.execution.counts().items())
    yield tell.timings("kueue_admission_wait_time_seconds", story.admission_wait)
    yield tell.timings("kueue_quota_reserved_wait_time_seconds", story.admission_wait)
    yield tell.timings("kueue_ready_wait_time_seconds", story.ready_wait)
    yield tell.timings("kueue_admitted_until_ready_wait_time_seconds", story.admitted_until_ready)
    yield tell.timings("kueue_execution_time_seconds", story.execution)
    yield tell.timings("kueue_workload_eviction_latency_seconds", story.eviction_wait)
    evicted = [((queue, reason, ""), number) for (queue, reason), number in story.evicted.items()]
    yield tell.rows("kueue_evicted_workloads_total", evicted)
    yield tell.rows("kueue_preempted_workloads_total", story.preempted.items())


def _workloads(scrape: Scrape, queues: Mapping[str, ScrapedQueue]) -> Iterator[Metric]:
    pending: list[Row] = []
    status: list[Row] = []
    for name, queue in queues.items():
        pending += [((name, "active"), queue.number("Pending")), ((name, "inadmissible"), 0)]
        now = _STATUS.get(queue.state, "pending")
        status += [((name, word), float(word == now)) for word in ("active", "pending", "terminating")]
    yield _TELL.rows("kueue_pending_workloads", pending)
    yield _TELL.rows("kueue_cluster_queue_status", status)
    admitted = [((name,), queue.number(*ADMITTED)) for name, queue in queues.items()]
    yield _TELL.rows("kueue_admitted_active_workloads", admitted)
    yield _TELL.rows("kueue_reserving_active_workloads", admitted)
    ended = [((name,), queue.number("Completed")) for name, queue in queues.items()]
    yield _TELL.rows("kueue_finished_workloads", ended)
    waiting = Counter((queue, FACTS[Reason(code)].kueue, code) for _, queue, code in scrape.waiting)
    yield _TELL.rows("kueue_unadmitted_workloads", waiting.items())


def _amounts(queues: Mapping[str, ScrapedQueue]) -> Iterator[Metric]:
    rows: dict[str, list[Row]] = {
        word: [] for word in ("usage", "pending", "nominal", "borrowing", "lending")
    }
    for name, queue in queues.items():
        deserved, limit, kept = queue.of("deserved"), queue.of("capability"), queue.of("guarantee")
        told = {
            "usage": queue.of("allocated"),
            "pending": queue.pending,
            "nominal": deserved,
            "borrowing": {key: max(0.0, most - deserved.get(key, 0.0)) for key, most in limit.items()},
            "lending": {key: max(0.0, deserved[key] - some) for key, some in kept.items() if key in deserved},
        }
        for word, amounts in told.items():
            rows[word] += [((queue.parent, name, "", resource), units) for resource, units in amounts.items()]
    for name, word in (
        ("resource_usage", "usage"),
        ("resource_reservation", "usage"),
        ("resource_pending", "pending"),
        ("nominal_quota", "nominal"),
        ("borrowing_limit", "borrowing"),
        ("lending_limit", "lending"),
    ):
        yield _TELL.rows(f"kueue_cluster_queue_{name}", rows[word])


def _cohorts(
    scrape: Scrape, leaves: Mapping[str, ScrapedQueue], cohorts: Mapping[str, ScrapedQueue]
) -> Iterator[Metric]:
    every = scrape.queues
    quotas = Quotas(every)
    shares = {name: quotas.weighted_share(name) for name in every}
    above = {name: list(_path(every, queue)) for name, queue in every.items()}
    yield _TELL.rows(
        "kueue_cluster_queue_weighted_share",
        [((name, queue.parent), shares[name]) for name, queue in leaves.items()],
    )
    yield _TELL.rows("kueue_cohort_weighted_share", [((name,), shares[name]) for name in cohorts])
    info = [
        ((name, queue.parent, queue.parent, above[name][-1]), 1)
        for name, queue in leaves.items()
        if above[name]
    ]
    yield _TELL.rows("kueue_cluster_queue_info", info)
    tree = [((name, queue.parent, [name, *above[name]][-1]), 1) for name, queue in cohorts.items()]
    yield _TELL.rows("kueue_cohort_info", tree)
    active: Counter[str] = Counter()
    entered: Counter[str] = Counter()
    admitted = scrape.group_counters.admission_wait.counts()
    for name, queue in leaves.items():
        for cohort in above[name]:
            active[cohort] += queue.number(*ADMITTED)
            entered[cohort] += admitted.get((name,), 0)
    for word, numbers in (("active_workloads", active), ("workloads_total", entered)):
        rows = [((name,), numbers[name]) for name in cohorts]
        yield _TELL.rows(f"kueue_cohort_subtree_admitted_{word}", rows)
    quota = {name: quotas.of(name) for name in cohorts}
    held = {name: queue.of("allocated") for name, queue in cohorts.items()}
    for word, amounts in (("quota", quota), ("resource_reservations", held)):
        rows = [
            ((name, "", resource), units) for name in cohorts for resource, units in amounts[name].items()
        ]
        yield _TELL.rows(f"kueue_cohort_subtree_{word}", rows)


def _path(queues: Mapping[str, ScrapedQueue], queue: ScrapedQueue) -> Iterator[str]:
    """Those above it, the nearest first."""
    seen = {queue.name}
    while queue.parent in queues and queue.parent not in seen:
        queue = queues[queue.parent]
        seen.add(queue.name)
        yield queue.name


class Quotas:
    """What the queues of a tree deserve and can lend; each is looked at once."""

    def __init__(self, queues: Mapping[str, ScrapedQueue]) -> None:
        self._queues = queues
        self._quota: dict[str, dict[str, float]] = {}
        self._lendable: dict[str, dict[str, float]] = {}

    def of(self, name: str) -> dict[str, float]:
        """What a queue and those below it deserve: its own word, else theirs together."""
        found = self._quota.get(name)
        if found is None:
            queue = self._queues[name]
            found = _sum(self.of(child) for child in queue.children if child in self._queues)
            self._quota[name] = found = found | dict(queue.of("deserved"))
        return found

    def lendable(self, cohort: str) -> dict[str, float]:
        """What its members deserve together and need not keep for themselves."""
        found = self._lendable.get(cohort)
        if found is None:
            members = [name for name in self._queues[cohort].children if name in self._queues]
            found = self._lendable[cohort] = _sum(self._lends(name) for name in members)
        return found

    def _lends(self, name: str) -> dict[str, float]:
        kept = self._queues[name].of("guarantee")
        return {
            resource: max(0.0, units - kept.get(resource, 0.0)) for resource, units in self.of(name).items()
        }

    def weighted_share(self, name: str) -> int:
        """Kueue's dominant resource share: of each resource, what is held above the quota, in thousandths of what the
        cohort's members can lend; the largest, divided by the weight."""
        queue = self._queues[name]
        if queue.parent not in self._queues:
            return 0
        lendable, quota = self.lendable(queue.parent), self.of(name)
        parts = [
            (held - quota.get(resource, 0.0)) * 1000 / lendable[resource]
            for resource, held in queue.of("allocated").items()
            if lendable.get(resource)
        ]
        return int(max(0.0, *parts, 0.0) / (queue.weight or 1))


def _sum(every: Iterable[Mapping[str, float]]) -> dict[str, float]:
    found: dict[str, float] = {}
    for amounts in every:
        for resource, units in amounts.items():
            found[resource] = found.get(resource, 0.0) + units
    return found
