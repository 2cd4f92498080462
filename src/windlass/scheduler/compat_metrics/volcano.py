"""Volcano's scheduler. Its figures of amounts are of every queue, those of an inner queue with all below it."""

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
from windlass.scheduler.compat_metrics.scrape import Amounts, Scrape, ScrapedQueue, job_named

PHASES = ("Inqueue", "Pending", "Running", "Unknown", "Completed")
AMOUNTS = {
    "allocated": "held",
    "request": "asked for, with what is held",
    "deserved": "deserved",
    "capacity": "the limit (`capability`)",
    "real_capacity": "the most it can ever hold, with what is reserved for others taken off",
    "inqueue": "`minResources` of its PodGroups in phase Inqueue",
}
"""Volcano's word → what it is."""
_STATES = {"allocated": "allocated", "request": "requested", "deserved": "deserved", "capacity": "capability"}


def _amounts() -> Iterator[MetricFamily]:
    for word, meaning in AMOUNTS.items():
        stem = f"volcano_queue_{word}"
        yield MetricFamily(f"{stem}_milli_cpu", "gauge", ("queue_name",), f"CPU {meaning}, thousandths")
        yield MetricFamily(f"{stem}_memory_bytes", "gauge", ("queue_name",), f"Memory {meaning}")
        others = f"Others {meaning}, thousandths of units as in Volcano; pods by number"
        yield MetricFamily(f"{stem}_scalar_resources", "gauge", ("queue_name", "resource"), others)


FAMILIES = (
    *_amounts(),
    *families(
        "gauge",
        "queue_name",
        {
            "volcano_queue_share": "The largest part held of what it deserves of anything",
            "volcano_queue_weight": "Its weight",
            "volcano_queue_overused": "1: it holds more than it deserves",
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
            "volcano_open_session_duration_milliseconds": "The part of a cycle that reads what has changed",
            "volcano_e2e_job_scheduling_latency_milliseconds": "From a group's creation until its minimum is on nodes",
        },
    ),
    *families(
        "histogram",
        "stage",
        {
            "volcano_task_scheduling_latency_milliseconds": "From a pod's creation to its binding (`Bound`)",
            "volcano_scheduling_stage_duration_milliseconds": "One binding request (`Bind`)",
        },
    ),
    *families(
        "histogram",
        "action",
        {"volcano_action_scheduling_latency_milliseconds": "One pass of an action of a cycle"},
    ),
    *families(
        "counter",
        "result",
        {"volcano_schedule_attempts_total": "Bindings carried out (`scheduled`), failed (`error`)"},
    ),
    *families(
        "counter",
        "action",
        {
            "volcano_eviction_transactions_total": "Claimers for whom somebody was evicted, each counted once in a"
            " cycle"
        },
    ),
    *families("counter", "", {"volcano_total_preemption_attempts": "Evictions decided"}),
    *families(
        "gauge",
        "",
        {
            "volcano_pod_preemption_victims": "Pods evicted",
            "volcano_unschedule_job_count": "Groups that wait",
            "volcano_unschedule_task_count": "Pods that wait, of all groups",
        },
    ),
    *families(
        "gauge",
        "job_ns job_id",
        {"volcano_job_share": "The largest part that it holds of anything the cluster has"},
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
        "plug-ins have no work of their own when a cycle begins or"
        " ends; what they are asked in between is asked for all nodes at once",
    ),
    LeftOut("volcano_job_retry_counts", "what waits is not tried again in every cycle"),
    LeftOut(
        "volcano_namespace_share, volcano_namespace_weight, volcano_namespace_weighted_share",
        "namespaces have no shares (Volcano itself has given them up)",
    ),
    LeftOut(
        "volcano_controller_job_to_pod_creation_latency_milliseconds",
        "moments of creation are whole seconds;"
        " `windlass_controller_look_seconds` tells how long the job controller takes",
    ),
    LeftOut(
        "stages `Watched`, `Assumed`, `PreBound`, `Predicate`, `Scoring`, `PreBind`",
        "a pod does not pass through them one by one",
    ),
)
_TELL = MetricsExporter(FAMILIES)


def export(scrape: Scrape) -> Iterator[Metric]:
    own, story, tell = scrape.own, scrape.group_counters, _TELL
    yield tell.renamed("volcano_e2e_scheduling_latency_milliseconds", own.cycle_seconds, 1000.0)
    take = own.part_seconds.of("take")
    yield tell.durations("volcano_open_session_duration_milliseconds", take, 1000.0)
    yield tell.durations("volcano_e2e_job_scheduling_latency_milliseconds", story.start_wait, 1000.0)
    yield tell.renamed(
        "volcano_task_scheduling_latency_milliseconds", own.wait_seconds, 1000.0, stage="Bound"
    )
    yield tell.renamed(
        "volcano_scheduling_stage_duration_milliseconds", own.bind_seconds, 1000.0, stage="Bind"
    )
    yield tell.timings("volcano_action_scheduling_latency_milliseconds", own.action_seconds, 1000.0)
    attempts = [((word,), total(own.binds, result=ours)) for ours, word in RESULTS.items()]
    yield tell.rows("volcano_schedule_attempts_total", attempts)
    transactions = [((action,), number) for action, number in story.transactions.items()]
    yield tell.rows("volcano_eviction_transactions_total", transactions)
    yield tell.value("volcano_total_preemption_attempts", total(own.decisions, kind="eviction"))
    yield tell.value("volcano_pod_preemption_victims", total(own.evictions, result="done"))
    yield tell.value("volcano_unschedule_job_count", sum(own.reasons.values()))
    yield tell.value("volcano_unschedule_task_count", scrape.pods["waiting"] + scrape.pods["gated"])
    yield from _queues(scrape.queues)
    if JOBS in scrape.sources.details:
        yield from _jobs(scrape)


def _queues(queues: Mapping[str, ScrapedQueue]) -> Iterator[Metric]:
    for word in AMOUNTS:
        rows = {name: _amounts_of(queue, word) for name, queue in queues.items()}
        yield from _amount_rows(f"volcano_queue_{word}", rows)
    for phase in PHASES:
        name = f"volcano_queue_pod_group_{phase.lower()}_count"
        yield _TELL.rows(name, [((key,), queue.number(phase)) for key, queue in queues.items()])
    yield _TELL.rows("volcano_queue_share", [((key,), queue.share) for key, queue in queues.items()])
    over = [((key,), float(queue.share > 1)) for key, queue in queues.items()]
    yield _TELL.rows("volcano_queue_overused", over)
    weights = [((key,), queue.weight) for key, queue in queues.items() if queue.weight is not None]
    yield _TELL.rows("volcano_queue_weight", weights)


def _amounts_of(queue: ScrapedQueue, word: str) -> Amounts:
    if word == "inqueue":
        return queue.inqueue
    return queue.real_capacity if word == "real_capacity" else queue.of(_STATES[word])


def _amount_rows(stem: str, queues: Mapping[str, Amounts]) -> Iterator[Metric]:
    cpu, memory, scalar = [], [], []
    for queue, amounts in queues.items():
        for resource, amount in amounts.items():
            if resource == "cpu":
                cpu.append(((queue,), amount * 1000))
            elif resource == "memory":
                memory.append(((queue,), amount))
            else:
                scalar.append(((queue, resource), amount if resource == "pods" else amount * 1000))
    yield _TELL.rows(f"{stem}_milli_cpu", cpu)
    yield _TELL.rows(f"{stem}_memory_bytes", memory)
    yield _TELL.rows(f"{stem}_scalar_resources", scalar)


@dataclass(frozen=True, slots=True)
class _Job:
    """A group at the moment of a scrape."""

    key: str
    queue: str
    created: float
    started: float
    counted: bool
    pods: tuple[views.Pod, ...]


def _jobs(scrape: Scrape) -> Iterator[Metric]:
    cluster = dict(scrape.sources.engine().state.table.total)
    pods_of = scrape.model.pods_of
    jobs = [
        _Job(key, life.queue, life.created, life.started, life.counted, tuple(pods_of(key)))
        for key, life in scrape.group_counters.lives.items()
    ]

    @cache
    def rows() -> dict[str, list[Row]]:
        return _of_jobs(jobs, cluster)

    for family in _OF_JOBS:
        yield _TELL.later(family, lambda family=family: rows()[family])


_OF_JOBS = (
    "volcano_job_share",
    "volcano_e2e_job_scheduling_duration",
    "volcano_e2e_job_scheduling_start_time",
    "volcano_e2e_job_scheduling_last_time",
)


def _of_jobs(jobs: Iterable[_Job], cluster: Mapping[str, int]) -> dict[str, list[Row]]:
    rows: dict[str, list[Row]] = {family: [] for family in _OF_JOBS}
    shares, waits, begun, last = rows.values()
    for job in jobs:
        namespace, name = job_named(job.key)
        labels = (name, job.queue, namespace)
        shares.append(((namespace, name), _share(job.pods, cluster)))
        begun.append((labels, job.created))
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
