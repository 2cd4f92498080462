"""Dry run: the engine over a dump of a cluster, cycle by cycle, with a simulated response.

Between two cycles bound pods start to run. Evicted pods are deleted and recreated by
their controllers, pending and with the same name. Terminating pods are deleted, unless
they are stuck. Admitted groups are marked as such. Time stands still. Pure: the same
dump gives the same plan.

A cycle is quiet if it decided nothing and no pod is terminating after it. All further
cycles would be the same, so the plan is stable.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

import msgspec

from windlass.api import annotations as names
from windlass.api import views
from windlass.api.devices.numa_annotations import Placement
from windlass.api.reasons import Explanation
from windlass.engine.decision import Bind, Decision, Eviction, QueueUsage
from windlass.engine.deltas import Delta
from windlass.kits.timestamps import rfc3339
from windlass.model.cluster.cluster_model import ClusterModel
from windlass.model.devices.assignment import WRITTEN, AllocatedDevice, allocated_devices, own_annotations
from windlass.model.groups import podgroups
from windlass.model.pods import engine_task
from windlass.model.queues.dry_run_quota import NamespaceQuotas

MAX_CYCLES = 50
"""Maximum number of cycles of a run until stability."""


class Scheduler(Protocol):
    """The engine, as far as a dry run needs it."""

    def apply(self, deltas: Iterable[Delta]) -> None: ...

    def cycle(self, now: float) -> Decision: ...

    def explain(self, group_key: str, now: float) -> Explanation | None: ...


@dataclass(frozen=True, slots=True)
class PlannedBind:
    pod: str
    node: str
    cycle: int
    devices: tuple[AllocatedDevice, ...] = ()
    zones: Placement = ()
    """NUMA zones that the pod is served from, with amounts."""


@dataclass(frozen=True, slots=True)
class PlannedEviction:
    """Eviction in a plan. ``preemptor``: the key of the group that needs the capacity, or ``""``."""

    pod: str
    node: str
    cycle: int
    action: str
    preemptor: str = ""


@dataclass(frozen=True, slots=True)
class PlannedNomination:
    pod: str
    node: str
    cycle: int


@dataclass(frozen=True, slots=True)
class PendingPods:
    """Waiting pods of a group (by its key) at the end. ``queue``: the engine's key."""

    group: str
    queue: str
    pods: tuple[str, ...]
    why: Explanation


@dataclass(frozen=True, slots=True)
class DryRunPlan:
    """Result of a dry run.

    Pods are ``namespace/name``. Lists are in the order of the decisions. ``both``: true
    if both APIs have queues.
    """

    cycles: int
    stable: bool
    binds: tuple[PlannedBind, ...]
    evictions: tuple[PlannedEviction, ...]
    nominations: tuple[PlannedNomination, ...]
    waiting: tuple[PendingPods, ...]
    queues: tuple[QueueUsage, ...]
    both: bool


class DryRun:
    """Dry run of an engine.

    ``model`` contains the dump. The run changes it, and also ``engine`` and ``quotas``.
    """

    def __init__(
        self, model: ClusterModel, engine: Scheduler, now: float, quotas: NamespaceQuotas | None = None
    ) -> None:
        self._quotas = quotas or NamespaceQuotas((), ())
        model.withhold(self._quotas.withheld)
        self._model = model
        self._engine = engine
        self._now = now
        self._cycle = 0
        self._binds: list[PlannedBind] = []
        self._evictions: list[PlannedEviction] = []
        self._nominations: list[PlannedNomination] = []
        self._queues: dict[str, QueueUsage] = {}

    def run(self, cycles: int = 1, *, until_stable: bool = False) -> DryRunPlan:
        """Run ``cycles`` cycles, or until stability (at most :data:`MAX_CYCLES` then).

        The run ends early with a quiet cycle.
        """
        limit = MAX_CYCLES if until_stable else cycles
        decision = self._decide()
        self._record(decision)
        while not self._quiet(decision) and self._cycle < limit:
            self._advance(decision)
            decision = self._decide()
            self._record(decision)
        waiting = tuple(self._waiting(decision))
        return DryRunPlan(
            cycles=self._cycle,
            stable=self._stays(decision),
            binds=tuple(self._binds),
            evictions=tuple(self._evictions),
            nominations=tuple(self._nominations),
            waiting=waiting,
            queues=tuple(self._queues[name] for name in sorted(self._queues)),
            both=self._model.objects.both_apis(),
        )

    def _decide(self) -> Decision:
        self._engine.apply(self._model.take(self._now))
        return self._engine.cycle(self._now)

    def _record(self, decision: Decision) -> None:
        self._cycle += 1
        cycle = self._cycle
        self._binds += [
            PlannedBind(
                bind.task,
                bind.node,
                cycle,
                tuple(map(allocated_devices, bind.devices)),
                bind.zones.zones if bind.zones is not None else (),
            )
            for bind in decision.binds
        ]
        self._evictions += [
            PlannedEviction(eviction.task, eviction.node, cycle, eviction.action, eviction.preemptor)
            for eviction in decision.evictions
        ]
        self._nominations += [
            PlannedNomination(nomination.task, nomination.node, cycle) for nomination in decision.nominations
        ]
        for usage in decision.queues:
            self._queues[usage.queue] = usage

    def _quiet(self, decision: Decision) -> bool:
        return not decision.binds and not decision.evictions and not any(map(self._leaves, self._pods()))

    def _stays(self, decision: Decision) -> bool:
        """Return whether the state is stable.

        One more cycle determines that. It is not part of the plan.
        """
        if self._quiet(decision):
            return True
        self._advance(decision)
        return self._quiet(self._decide())

    def _pods(self) -> list[views.Pod]:
        return list(self._model.objects.pods.values())

    def _leaves(self, pod: views.Pod) -> bool:
        """Return whether the pod is terminating and will be deleted after the cycle."""
        return pod.deleting and not pod.finished and not engine_task.is_stuck(pod, self._now)

    # ------------------------------------------------------------------ between two cycles

    def _advance(self, decision: Decision) -> None:
        model = self._model
        for pod in self._pods():
            if self._leaves(pod):
                model.objects.remove_pod(pod.key)
                self._quotas.release(pod.key)
        for key in self._quotas.retry():
            model.objects.upsert_pod(model.objects.pods[key])
        for bind in decision.binds:
            self._start(bind)
        for eviction in decision.evictions:
            self._restart(eviction)
        for status in decision.groups:
            view = model.objects.groups.get(status.group)
            if view is not None and status.admitted and view.phase in ("", "Pending"):
                model.objects.upsert_group(msgspec.structs.replace(view, phase="Inqueue"))

    def _start(self, bind: Bind) -> None:
        pod = self._model.objects.pods[bind.task]
        annotations = pod.annotations
        if bind.devices:
            annotations = {**annotations, **own_annotations(bind.devices)}
        self._model.objects.upsert_pod(
            msgspec.structs.replace(
                pod, node_name=bind.node, phase="Running", started=self._now, annotations=annotations
            )
        )
        self._note(bind.group, names.LAST_START_KAI, replace=False)

    def _restart(self, eviction: Eviction) -> None:
        """Delete an evicted pod, and recreate it as its controller does: pending, with another uid."""
        pod = self._model.objects.pods[eviction.task]
        annotations = {key: text for key, text in pod.annotations.items() if key not in WRITTEN}
        self._model.objects.upsert_pod(
            msgspec.structs.replace(
                pod,
                uid=f"{pod.uid}+{self._cycle}",
                node_name="",
                phase="Pending",
                started=0.0,
                deleted=0.0,
                annotations=annotations,
            )
        )
        if not any(mate.node_name for mate in self._model.groups.pods_of(eviction.group)):
            self._note(eviction.group, names.LAST_START_KAI, drop=True)
        self._note(eviction.group, names.LAST_EVICTION_KAI)

    def _note(self, group: str, annotation: str, *, replace: bool = True, drop: bool = False) -> None:
        """Write the time on a PodGroup of KAI, as its scheduler does."""
        if podgroups.kind_prefix(group) != podgroups.KAI:
            return
        view = self._model.objects.kai_groups.get(podgroups.shown_key(group))
        if view is None or (not replace and annotation in view.annotations):
            return
        annotations = dict(view.annotations)
        if drop:
            annotations.pop(annotation, None)
        else:
            annotations[annotation] = rfc3339(self._now)
        self._model.objects.upsert_kai_group(msgspec.structs.replace(view, annotations=annotations))

    # ------------------------------------------------------------------ waiting groups

    def _waiting(self, decision: Decision) -> Iterable[PendingPods]:
        """Yield the groups with waiting pods, in the order of the dump."""
        model = self._model
        bound = {bind.task for bind in decision.binds}
        pending: dict[str, list[str]] = {}
        for pod in self._pods():
            if pod.node_name or pod.finished or pod.deleting or pod.key in bound or not model.manages(pod):
                continue
            group = model.groups.group_of(pod.key)
            if group is not None:
                pending.setdefault(group, []).append(pod.key)
        for group, pods in pending.items():
            queue = model.queue_of(group) or model.queue_named(group)
            yield PendingPods(group, queue, tuple(pods), self._why(group))

    def _why(self, group: str) -> Explanation:
        explanation = self._model.explanation(group) or self._engine.explain(group, self._now)
        if explanation is None:
            raise RuntimeError(f"group {group} has waiting pods and no reason")
        return self._model.display_names().explanation(explanation)
