"""Trial of a plugin: decisions without it and with it, on a trace or on a dump of a cluster.

Nothing is written, and no running scheduler is changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from windlass.cli.plugins.source import TriedPlugin, errors_of
from windlass.cli.simulate import plan as plans
from windlass.cli.simulate.plan import Loaded, PlanRequest
from windlass.sim.jobs import TraceJob
from windlass.sim.replay.outcome import ReplayOutcome
from windlass.sim.replay.policies import as_configured
from windlass.sim.replay.replay import ReplayOptions, replay
from windlass.spi.configuration import SchedulerConfig
from windlass.spi.objects import Node
from windlass.spi.plugins import AdmissionNote, Admit

Warn = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class JobPlace:
    """Start of a job in seconds of the trace, and its nodes; ``None`` if it never starts."""

    start: float | None = None
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ChangedJob:
    """Job of a trace with another start or other nodes."""

    job: str
    gpus: int
    before: JobPlace
    after: JobPlace


@dataclass(frozen=True, slots=True)
class TraceTrial:
    """Result of a trial on a trace. Waiting times are means in seconds over the jobs that start."""

    jobs: int
    changed: tuple[ChangedJob, ...]
    mean_wait_before: float
    mean_wait_after: float

    @property
    def earlier(self) -> int:
        return sum(_starts_before(one.after, one.before) for one in self.changed)

    @property
    def later(self) -> int:
        return sum(_starts_before(one.before, one.after) for one in self.changed)


def _starts_before(first: JobPlace, second: JobPlace) -> bool:
    if first.start is None or second.start is None:
        return first.start is not None and second.start is None
    return first.start < second.start


@dataclass(frozen=True, slots=True)
class Verdict:
    """Answer of an admission plugin about the next step of a group."""

    group: str
    passes: bool
    message: str
    needed: int = 0
    available: int = 0


@dataclass(frozen=True, slots=True)
class ChangedPod:
    """Pod with another node; ``""`` for no node."""

    pod: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class ClusterTrial:
    """Result of a trial on a cluster. ``verdicts`` is empty unless the plugin admits steps."""

    pods: int
    verdicts: tuple[Verdict, ...] = ()
    changed: tuple[ChangedPod, ...] = ()
    evictions_before: int = 0
    evictions_after: int = 0
    pending: Mapping[str, str] = field(default_factory=dict)
    """Group → reason why it waits with the plugin, for groups that would start without it."""


# -- a trace --------------------------------------------------------------------------------------


def on_trace(
    plugin: TriedPlugin, jobs: Sequence[TraceJob], nodes: Sequence[Node], config: SchedulerConfig
) -> TraceTrial:
    """Replay a trace under a configuration, without the plugin and with it.

    Raises :class:`WindlassError` for an error in the plugin's code.
    """
    options = ReplayOptions(timeline=True)
    before = replay(jobs, nodes, as_configured("without", "", config), options)
    with errors_of(plugin.file):
        after = replay(jobs, nodes, as_configured("with", "", config, more=plugin.make), options)
    places = zip(_places(before), _places(after), before.jobs, strict=True)
    changed = [
        ChangedJob(ended.job.id, ended.job.gpus, first, second)
        for first, second, ended in places
        if first != second
    ]
    return TraceTrial(len(jobs), tuple(changed), _mean_wait(before), _mean_wait(after))


def _places(outcome: ReplayOutcome) -> list[JobPlace]:
    """Return the first place of each job, in the order of the outcome."""
    first: dict[int, JobPlace] = {}
    for span in outcome.spans:
        if not span.held:
            first.setdefault(span.job, JobPlace(span.start, tuple(sorted(span.nodes))))
    return [first.get(number, JobPlace()) for number in range(len(outcome.jobs))]


def _mean_wait(outcome: ReplayOutcome) -> float:
    waits = [one.started - one.job.submit_seconds for one in outcome.jobs if one.started is not None]
    return sum(waits) / len(waits) if waits else 0.0


# -- a cluster ------------------------------------------------------------------------------------


def on_cluster(
    plugin: TriedPlugin, read: Callable[[Warn], Loaded], request: PlanRequest, warn: Warn
) -> ClusterTrial:
    """Plan a cluster without the plugin and with it.

    ``read`` reads the cluster again at each call. Raises :class:`WindlassError`.
    """
    before = _plan(read(warn), request, warn)
    with errors_of(plugin.file):
        verdicts = _verdicts(plugin.make(), read(_ignore), request.now)
        after = _plan(read(_ignore), request, _ignore, plugin.make())
    nodes_before, nodes_after = _nodes(before), _nodes(after)
    changed = [
        ChangedPod(pod, nodes_before.get(pod, ""), nodes_after.get(pod, ""))
        for pod in sorted({*nodes_before, *nodes_after})
        if nodes_before.get(pod) != nodes_after.get(pod)
    ]
    waiting = {_group(entry) for entry in before["pending"]}
    return ClusterTrial(
        pods=len({*nodes_before, *nodes_after, *_pending_pods(before), *_pending_pods(after)}),
        verdicts=tuple(verdicts),
        changed=tuple(changed),
        evictions_before=len(before["evictions"]),
        evictions_after=len(after["evictions"]),
        pending={
            _group(entry): entry["message"] for entry in after["pending"] if _group(entry) not in waiting
        },
    )


def _ignore(_: str) -> None:
    """Drop a warning that the first reading has shown."""


def _plan(cluster: Loaded, request: PlanRequest, warn: Warn, more: Sequence[object] = ()) -> dict[str, Any]:
    return plans.run(cluster.model, cluster.parsed, request, warn, cluster.counted, more)


def _nodes(plan: Mapping[str, Any]) -> dict[str, str]:
    return {f"{bind['namespace']}/{bind['pod']}": bind["node"] for bind in plan["binds"]}


def _pending_pods(plan: Mapping[str, Any]) -> set[str]:
    return {f"{entry['namespace']}/{pod}" for entry in plan["pending"] for pod in entry["pods"]}


def _group(entry: Mapping[str, Any]) -> str:
    return f"{entry['namespace']}/{entry['podGroup']}"


def _verdicts(plugins: Iterable[object], cluster: Loaded, now: float) -> list[Verdict]:
    """Return what the admission plugins say about each pending group, as the cluster stands."""
    admitting = [plugin for plugin in plugins if isinstance(plugin, Admit)]
    if not admitting:
        return []
    engine = plans.engine_of(cluster.model, cluster.parsed, _ignore, admitting)
    engine.apply(cluster.model.take(now))
    verdicts = []
    for group in sorted(engine.state.groups):
        question = engine.admission_input(group)
        if question is None:
            continue
        step, path, nodes = question
        name = group.replace("/pod:", "/")  # the engine's group of a pod without one
        for plugin in admitting:
            rejection = plugin.admits(step, path, nodes)
            if rejection is not None:
                verdicts.append(Verdict(name, False, rejection.detail, rejection.needed, rejection.available))
                break
        else:
            notes = (plugin.note(step) for plugin in admitting if isinstance(plugin, AdmissionNote))
            verdicts.append(Verdict(name, True, "; ".join(filter(None, notes))))
    return verdicts


def as_record(plugin: TriedPlugin, trial: TraceTrial | ClusterTrial) -> dict[str, Any]:
    """Return a trial for programs."""
    return {"plugin": plugin.name, **asdict(trial)}
