"""Metrics of Volcano's scheduler.

Resources are exported for every queue. Those of an inner queue include all queues below
it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache

from prometheus_client.metrics_core import Metric

from windlass.api import views
from windlass.model.devices.usage import resources_held
from windlass.scheduler.compat_metrics.families import (
    JOBS,
    LeftOut,
    MetricFamily,
    MetricsExporter,
    Row,
    families,
    total,
)
from windlass.scheduler.compat_metrics.kube import RESULTS
from windlass.scheduler.compat_metrics.scrape import Resources, Scrape, ScrapedQueue, namespace_and_name

PHASES = ("Inqueue", "Pending", "Running", "Unknown", "Completed")
STATES = {
    "allocated": "allocated",
    "request": "requested, including what is allocated",
    "deserved": "deserved",
    "capacity": "as limit (`capability`)",
    "real_capacity": "that it can have at most, without what is guaranteed to other queues",
    "inqueue": "`minResources` of its PodGroups in phase Inqueue",
}
"""Volcano's name of a state → meaning."""
_OWN_STATES = {
    "allocated": "allocated",
    "request": "requested",
    "deserved": "deserved",
    "capacity": "capability",
}


def _queue_families() -> Iterator[MetricFamily]:
    for state, meaning in STATES.items():
        stem = f"volcano_queue_{state}"
        yield MetricFamily(f"{stem}_milli_cpu", "gauge", ("queue_name",), f"CPU {meaning}, thousandths")
        yield MetricFamily(f"{stem}_memory_bytes", "gauge", ("queue_name",), f"Memory {meaning}")
        others = f"Other resources {meaning}, thousandths of units as in Volcano; pods by number"
        yield MetricFamily(f"{stem}_scalar_resources", "gauge", ("queue_name", "resource"), others)


FAMILIES = (
    *_queue_families(),
    *families(
        "gauge",
        "queue_name",
        {
            "volcano_queue_share": "The largest allocated fraction of a deserved resource",
            "volcano_queue_weight": "Its weight",
            "volcano_queue_overused": "1: more is allocated than it deserves",
            **{
                f"volcano_queue_pod_group_{phase.lower()}_count": f"PodGroups in phase {phase}"
                for phase in PHASES
            },
        },
    ),
    *families(
        "histogram",
        "",
        {
            "volcano_e2e_scheduling_latency_milliseconds": "One cycle",
            "volcano_open_session_duration_milliseconds": "The phase of a cycle that takes changes in",
            "volcano_e2e_job_scheduling_latency_milliseconds": "From a group's creation until its minimum is on nodes",
        },
    ),
    *families(
        "histogram",
        "stage",
        {
            "volcano_task_scheduling_latency_milliseconds": "From a pod's creation to its binding (`Bound`)",
            "volcano_scheduling_stage_duration_milliseconds": "One bind (`Bind`)",
        },
    ),
    *families(
        "histogram",
        "action",
        {"volcano_action_scheduling_latency_milliseconds": "One pass of an action in a cycle"},
    ),
    *families(
        "counter",
        "result",
        {"volcano_schedule_attempts_total": "Binds that succeeded (`scheduled`) or failed (`error`)"},
    ),
    *families(
        "counter",
        "action",
        {
            "volcano_eviction_transactions_total": "Preemptors for which pods were evicted, each counted once per"
            " cycle"
        },
    ),
    *families("counter", "", {"volcano_total_preemption_attempts": "Evictions decided"}),
    *families(
        "gauge",
        "",
        {
            "volcano_pod_preemption_victims": "Pods evicted",
            "volcano_unschedule_job_count": "Pending groups",
            "volcano_unschedule_task_count": "Pending pods of all groups",
        },
    ),
    *families(
        "gauge",
        "job_ns job_id",
        {"volcano_job_share": "The largest allocated fraction of a resource of the cluster"},
        JOBS,
    ),
    *families(
        "gauge",
        "job_name queue job_namespace",
        {
            "volcano_e2e_job_scheduling_duration": "Milliseconds from its creation until its minimum was on nodes",
            "volcano_e2e_job_scheduling_start_time": "Unix seconds of its creation",
            "volcano_e2e_job_scheduling_last_time": "Unix seconds at which its minimum was on nodes",
        },
        JOBS,
    ),
)
LEFT_OUT = (
    LeftOut(
        "volcano_plugin_scheduling_latency_milliseconds",
        "plugins do no work when a cycle begins or ends; in between they are evaluated for all nodes at once",
    ),
    LeftOut("volcano_job_retry_counts", "pending groups are not retried in every cycle"),
    LeftOut(
        "volcano_namespace_share, volcano_namespace_weight, volcano_namespace_weighted_share",
        "namespaces have no shares (Volcano itself has removed them)",
    ),
    LeftOut(
        "volcano_controller_job_to_pod_creation_latency_milliseconds",
        "creation times are whole seconds;"
        " `windlass_controller_look_seconds` has the duration of the job controller's reconciles",
    ),
    LeftOut(
        "stages `Watched`, `Assumed`, `PreBound`, `Predicate`, `Scoring`, `PreBind`",
        "a pod does not pass through them one by one",
    ),
)
_EXPORTER = MetricsExporter(FAMILIES)


def export(scrape: Scrape) -> Iterator[Metric]:
    own, counters, exporter = scrape.own, scrape.counters, _EXPORTER
    yield exporter.renamed("volcano_e2e_scheduling_latency_milliseconds", own.cycle_seconds, 1000.0)
    take = own.part_seconds.of("take")
    yield exporter.durations("volcano_open_session_duration_milliseconds", take, 1000.0)
    yield exporter.durations("volcano_e2e_job_scheduling_latency_milliseconds", counters.start_wait, 1000.0)
    yield exporter.renamed(
        "volcano_task_scheduling_latency_milliseconds", own.wait_seconds, 1000.0, stage="Bound"
    )
    yield exporter.renamed(
        "volcano_scheduling_stage_duration_milliseconds", own.bind_seconds, 1000.0, stage="Bind"
    )
    yield exporter.timings("volcano_action_scheduling_latency_milliseconds", own.action_seconds, 1000.0)
    attempts = [((result,), total(own.binds, result=ours)) for ours, result in RESULTS.items()]
    yield exporter.rows("volcano_schedule_attempts_total", attempts)
    transactions = [((action,), number) for action, number in counters.transactions.items()]
    yield exporter.rows("volcano_eviction_transactions_total", transactions)
    yield exporter.value("volcano_total_preemption_attempts", total(own.decisions, kind="eviction"))
    yield exporter.value("volcano_pod_preemption_victims", total(own.evictions, result="done"))
    yield exporter.value("volcano_unschedule_job_count", sum(own.reasons.values()))
    yield exporter.value("volcano_unschedule_task_count", scrape.pods["waiting"] + scrape.pods["gated"])
    yield from _queues(scrape.queues)
    if JOBS in scrape.sources.details:
        yield from _jobs(scrape)


def _queues(queues: Mapping[str, ScrapedQueue]) -> Iterator[Metric]:
    for state in STATES:
        rows = {name: _resources_of(queue, state) for name, queue in queues.items()}
        yield from _resource_rows(f"volcano_queue_{state}", rows)
    for phase in PHASES:
        name = f"volcano_queue_pod_group_{phase.lower()}_count"
        yield _EXPORTER.rows(name, [((key,), queue.number(phase)) for key, queue in queues.items()])
    yield _EXPORTER.rows("volcano_queue_share", [((key,), queue.share) for key, queue in queues.items()])
    over = [((key,), float(queue.share > 1)) for key, queue in queues.items()]
    yield _EXPORTER.rows("volcano_queue_overused", over)
    weights = [((key,), queue.weight) for key, queue in queues.items() if queue.weight is not None]
    yield _EXPORTER.rows("volcano_queue_weight", weights)


def _resources_of(queue: ScrapedQueue, state: str) -> Resources:
    if state == "inqueue":
        return queue.inqueue
    return queue.real_capacity if state == "real_capacity" else queue.of(_OWN_STATES[state])


def _resource_rows(stem: str, queues: Mapping[str, Resources]) -> Iterator[Metric]:
    cpu, memory, scalar = [], [], []
    for queue, resources in queues.items():
        for resource, value in resources.items():
            if resource == "cpu":
                cpu.append(((queue,), value * 1000))
            elif resource == "memory":
                memory.append(((queue,), value))
            else:
                scalar.append(((queue, resource), value if resource == "pods" else value * 1000))
    yield _EXPORTER.rows(f"{stem}_milli_cpu", cpu)
    yield _EXPORTER.rows(f"{stem}_memory_bytes", memory)
    yield _EXPORTER.rows(f"{stem}_scalar_resources", scalar)


@dataclass(frozen=True, slots=True)
class _Job:
    """State of a group at the time of a scrape."""

    key: str
    queue: str
    created: float
    started: float
    counted: bool
    pods: tuple[views.Pod, ...]


def _jobs(scrape: Scrape) -> Iterator[Metric]:
    cluster = dict(scrape.sources.engine().state.table.total)
    pods_of = scrape.model.groups.pods_of
    jobs = [
        _Job(key, life.queue, life.created, life.started, life.counted, tuple(pods_of(key)))
        for key, life in scrape.counters.lives.items()
    ]

    @cache
    def rows() -> dict[str, list[Row]]:
        return _job_rows(jobs, cluster)

    for family in _JOB_FAMILIES:
        yield _EXPORTER.deferred(family, lambda family=family: rows()[family])


_JOB_FAMILIES = (
    "volcano_job_share",
    "volcano_e2e_job_scheduling_duration",
    "volcano_e2e_job_scheduling_start_time",
    "volcano_e2e_job_scheduling_last_time",
)


def _job_rows(jobs: Iterable[_Job], cluster: Mapping[str, int]) -> dict[str, list[Row]]:
    rows: dict[str, list[Row]] = {family: [] for family in _JOB_FAMILIES}
    shares, waits, created, last = rows.values()
    for job in jobs:
        namespace, name = namespace_and_name(job.key)
        labels = (name, job.queue, namespace)
        shares.append(((namespace, name), _share(job.pods, cluster)))
        created.append((labels, job.created))
        if job.started:
            last.append((labels, job.started))
        if job.started and job.counted:
            waits.append((labels, 1000.0 * max(0.0, job.started - job.created)))
    return rows


def _share(pods: Iterable[views.Pod], cluster: Mapping[str, int]) -> float:
    held: dict[str, int] = {}
    for pod in pods:
        if pod.node_name and not pod.finished:
            for name, units in resources_held(pod).items():
                held[name] = held.get(name, 0) + units
    return max((units / cluster[name] for name, units in held.items() if cluster.get(name)), default=0.0)
