"""The scheduler's figures under the names of the field, so that boards and alerts made for others show something.

Nothing is measured for it: each scrape renames what is counted anyway, and looks at the groups and queues as they
are. Names, labels and units are those of kube-scheduler, Volcano, Kueue, YuniKorn and KAI; what they mean here is
``docs/operations/metrics.md``. A figure that Windlass does not have is not made up: its name is missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric, UnknownMetricFamily
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from windlass.api.deviceasks import GPU
from windlass.model.cluster import ClusterModel
from windlass.observe.scheduling import SchedulerMetrics

PROFILE = "windlass"
_CPU, _MEMORY = "cpu", "memory"
_PHASES = ("Inqueue", "Pending", "Running", "Unknown", "Completed")
_VOLCANO = {
    "allocated": "allocated",
    "requested": "request",
    "deserved": "deserved",
    "capability": "capacity",
}
_KUEUE = {
    "allocated": ("resource_usage", "resource_reservation"),
    "deserved": ("nominal_quota",),
}
_YUNIKORN = {"guarantee": "guaranteed", "capability": "max", "allocated": "allocated", "pending": "pending"}
Figures = Mapping[str, Mapping[str, float]]


@dataclass(slots=True)
class _Queue:
    """What is to be told of a queue: figures by state and resource, groups by phase."""

    figures: Figures
    phases: dict[str, int] = field(default_factory=dict)
    weight: int | None = None

    @property
    def pending(self) -> dict[str, float]:
        held = self.figures.get("allocated", {})
        asked = self.figures.get("requested", {})
        return {name: max(0.0, amount - held.get(name, 0.0)) for name, amount in asked.items()}

    @property
    def share(self) -> float:
        """Volcano's: the largest part of what it deserves of anything; 1 where it holds what it does not deserve."""
        held, deserved = self.figures.get("allocated", {}), self.figures.get("deserved", {})
        parts = [
            amount / deserved[name] if deserved[name] > 0 else float(amount > 0)
            for name, amount in held.items()
            if name in deserved
        ]
        return max(parts, default=0.0)

    def number(self, *phases: str) -> int:
        return sum(self.phases.get(phase, 0) for phase in phases)


class FieldMetrics(Collector):
    """Registered once. Reads what it is given at each scrape, in the thread of the event loop."""

    def __init__(self, registry: CollectorRegistry, own: SchedulerMetrics, model: ClusterModel) -> None:
        self._own = own
        self._model = model
        registry.register(self)

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterator[Metric]:
        yield from self._renamed()
        yield from self._counted()
        queues = self._queues()
        yield from _volcano(queues)
        yield from _kueue(queues)
        yield from _yunikorn(queues)
        yield from _kai(queues)

    # ------------------------------------------------------------------ what is counted anyway

    def _renamed(self) -> Iterator[Metric]:
        own, here = self._own, {"profile": PROFILE}
        cycle, wait = own.cycle_seconds, own.wait_seconds
        scheduled = {**here, "result": "scheduled"}
        yield _renamed(cycle, "scheduler_scheduling_attempt_duration_seconds", 1.0, scheduled)
        yield _renamed(wait, "scheduler_pod_scheduling_sli_duration_seconds", 1.0, {})
        yield _renamed(cycle, "volcano_e2e_scheduling_latency_milliseconds", 1000.0, {})
        yield _renamed(wait, "volcano_task_scheduling_latency_milliseconds", 1000.0, {})
        yield _renamed(own.bind_seconds, "kai_task_bind_latency_milliseconds", 1000.0, {})

    def _counted(self) -> Iterator[Metric]:
        results = {"bound": "scheduled", "failed": "error"}
        counts = {word: _total(self._own.binds, result=ours) for ours, word in results.items()}
        kube = CounterMetricFamily(
            "scheduler_schedule_attempts", "Bindings carried out, by result", labels=["result", "profile"]
        )
        volcano = CounterMetricFamily("volcano_schedule_attempts", "Bindings carried out", labels=["result"])
        for word, number in counts.items():
            kube.add_metric([word, PROFILE], number)
            volcano.add_metric([word], number)
        yield kube
        yield volcano
        victims = _total(self._own.evictions, result="done")
        yield _gauge("volcano_pod_preemption_victims", "Pods evicted", (), [((), victims)])
        kind = _total(self._own.decisions, kind="eviction")
        for name in ("volcano_total_preemption_attempts", "kai_total_preemption_attempts"):
            # Counted, but without the ending that the exposition gives to a counter.
            yield UnknownMetricFamily(name, "Evictions decided", value=kind)
        waiting = sum(self._own.reasons.values())
        yield _gauge("volcano_unschedule_job_count", "Groups that wait", (), [((), waiting)])
        pending = sum(
            not pod.node_name and not pod.finished and not pod.deleted and self._model.manages(pod)
            for pod in self._model.pods.values()
        )
        gated = sum(
            bool(pod.shape.gates) and not pod.node_name and not pod.finished and self._model.manages(pod)
            for pod in self._model.pods.values()
        )
        kinds = [(("unschedulable",), pending - gated), (("gated",), gated)]
        yield _gauge("scheduler_pending_pods", "Pods that wait", ("queue",), kinds)
        yield _gauge("volcano_unschedule_task_count", "Pods that wait", (), [((), pending)])

    def _queues(self) -> dict[str, _Queue]:
        model = self._model
        found = {name: _Queue(figures) for name, figures in self._own.figures.items()}
        for key, group in model.groups.items():
            queue = found.get(group.queue or "default")
            if queue is not None and model.known(key):
                phase = group.phase or "Pending"
                queue.phases[phase] = queue.phases.get(phase, 0) + 1
        for name, view in model.queues.items():
            if name in found:
                found[name].weight = view.weight
        return found


def _volcano(queues: Mapping[str, _Queue]) -> Iterator[Metric]:
    for state, word in _VOLCANO.items():
        cpu, memory, scalar = [], [], []
        for name, queue in queues.items():
            for resource, amount in queue.figures.get(state, {}).items():
                if resource == _CPU:
                    cpu.append(((name,), amount * 1000))
                elif resource == _MEMORY:
                    memory.append(((name,), amount))
                else:
                    scalar.append(((name, resource), amount))
        stem = f"volcano_queue_{word}"
        yield _gauge(f"{stem}_milli_cpu", f"CPU {state}, thousandths", ("queue_name",), cpu)
        yield _gauge(f"{stem}_memory_bytes", f"Memory {state}", ("queue_name",), memory)
        yield _gauge(f"{stem}_scalar_resources", f"Other {state}", ("queue_name", "resource"), scalar)
    for phase in _PHASES:
        rows = [((name,), queue.number(phase)) for name, queue in queues.items()]
        name = f"volcano_queue_pod_group_{phase.lower()}_count"
        yield _gauge(name, f"PodGroups in phase {phase}", ("queue_name",), rows)
    shares = [((name,), queue.share) for name, queue in queues.items()]
    yield _gauge("volcano_queue_share", "Largest part of what it deserves", ("queue_name",), shares)
    over = [((name,), float(queue.share > 1)) for name, queue in queues.items()]
    yield _gauge("volcano_queue_overused", "1: it holds more than it deserves", ("queue_name",), over)
    weights = [((name,), queue.weight) for name, queue in queues.items() if queue.weight is not None]
    yield _gauge("volcano_queue_weight", "Its weight", ("queue_name",), weights)


def _kueue(queues: Mapping[str, _Queue]) -> Iterator[Metric]:
    waiting = []
    admitted = []
    for name, queue in queues.items():
        waiting.append(((name, "active"), queue.number("Pending")))
        waiting.append(((name, "inadmissible"), 0))
        admitted.append(((name,), queue.number("Inqueue", "Running", "Unknown")))
    yield _gauge("kueue_pending_workloads", "Groups not admitted", ("cluster_queue", "status"), waiting)
    yield _gauge("kueue_admitted_active_workloads", "Groups admitted", ("cluster_queue",), admitted)
    yield _gauge("kueue_reserving_active_workloads", "Groups admitted", ("cluster_queue",), admitted)
    labels = ("cluster_queue", "flavor", "resource")
    for state, words in _KUEUE.items():
        rows = [
            ((name, "", resource), amount)
            for name, queue in queues.items()
            for resource, amount in queue.figures.get(state, {}).items()
        ]
        for word in words:
            yield _gauge(f"kueue_cluster_queue_{word}", f"{state}, by resource", labels, rows)
    rows = [((n, "", r), amount) for n, queue in queues.items() for r, amount in queue.pending.items()]
    yield _gauge("kueue_cluster_queue_resource_pending", "Asked for and not held", labels, rows)


def _yunikorn(queues: Mapping[str, _Queue]) -> Iterator[Metric]:
    rows = []
    for name, queue in queues.items():
        figures = {**queue.figures, "pending": queue.pending}
        for state, word in _YUNIKORN.items():
            rows += [((name, resource, word), amount) for resource, amount in figures.get(state, {}).items()]
    yield _gauge("yunikorn_queue_resource", "A queue's resources", ("queue", "resource", "state"), rows)
    states = {"new": ("Pending",), "accepted": ("Inqueue",), "running": ("Running", "Unknown")}
    apps = [((n, word), q.number(*phases)) for n, q in queues.items() for word, phases in states.items()]
    yield _gauge("yunikorn_queue_app", "A queue's groups", ("queue", "state"), apps)


def _kai(queues: Mapping[str, _Queue]) -> Iterator[Metric]:
    wanted = (
        ("fair_share", GPU, "kai_queue_fair_share_gpu", 1.0),
        ("fair_share", _CPU, "kai_queue_fair_share_cpu_cores", 1.0),
        ("fair_share", _MEMORY, "kai_queue_fair_share_memory_gb", 1e-9),
        ("deserved", GPU, "kai_queue_deserved_gpus", 1.0),
        ("allocated", GPU, "kai_queue_allocated_gpus", 1.0),
        ("allocated", _CPU, "kai_queue_allocated_cpu_cores", 1.0),
        ("allocated", _MEMORY, "kai_queue_allocated_memory_bytes", 1.0),
    )
    for state, resource, name, factor in wanted:
        rows = [
            ((queue_name,), queue.figures[state][resource] * factor)
            for queue_name, queue in queues.items()
            if resource in queue.figures.get(state, {})
        ]
        yield _gauge(name, f"{state} of {resource}", ("queue_name",), rows)


def _gauge(
    name: str, meaning: str, labels: tuple[str, ...], rows: Iterable[tuple[tuple[str, ...], float]]
) -> Metric:
    family = GaugeMetricFamily(name, meaning, labels=labels)
    for values, amount in rows:
        family.add_metric(values, amount)
    return family


def _renamed(source: Collector, name: str, factor: float, labels: Mapping[str, str]) -> Metric:
    """A histogram of seconds under another name; ``factor``: its unit in a second."""
    (metric,) = source.collect()
    found = Metric(name, metric.documentation, metric.type)
    for sample in metric.samples:
        tail = sample.name.removeprefix(metric.name)
        if tail == "_created":
            continue
        words, value = {**labels, **sample.labels}, sample.value
        if "le" in words and words["le"] != "+Inf":
            words["le"] = f"{float(words['le']) * factor:g}"
        if tail == "_sum":
            value *= factor
        found.samples.append(Sample(name + tail, words, value))
    return found


def _total(source: Collector, **labels: str) -> float:
    """The sum of a counter's values with these labels."""
    return sum(
        sample.value
        for metric in source.collect()
        for sample in metric.samples
        if sample.name.endswith("_total") and labels.items() <= sample.labels.items()
    )
