"""A dry run: the engine over a dump of a cluster, cycle by cycle, with the world answering as it would.

Between two cycles: what was bound runs; what was evicted is gone and its controller has made it anew,
pending, under the same name; what was terminating is gone, unless it is stuck in that; a group that was let
in says so. Time stands still. Pure: the same dump gives the same plan.

A cycle is quiet if it decided nothing and nobody is on the way out after it; then all further ones would be
the same, and the plan is stable.
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

MOST_CYCLES = 50
"""How many cycles a run until stability has at most."""


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
    """The NUMA zones that it is served from, with amounts."""


@dataclass(frozen=True, slots=True)
class PlannedEviction:
    """``claimer``: the key of the group that the room is for, ``""`` if for none."""

    pod: str
    node: str
    cycle: int
    action: str
    claimer: str = ""


@dataclass(frozen=True, slots=True)
class PlannedNomination:
    pod: str
    node: str
    cycle: int


@dataclass(frozen=True, slots=True)
class PendingPods:
    """The pods of a group (by its key) that wait at the end. ``queue``: the engine's key."""

    group: str
    queue: str
    pods: tuple[str, ...]
    why: Explanation


@dataclass(frozen=True, slots=True)
class DryRunPlan:
    """Pods as ``namespace/name``; lists in the order of decision. ``both``: both APIs have queues."""

    cycles: int
    stable: bool
    binds: tuple[PlannedBind, ...]
    evictions: tuple[PlannedEviction, ...]
    nominations: tuple[PlannedNomination, ...]
    waiting: tuple[PendingPods, ...]
    queues: tuple[QueueUsage, ...]
    both: bool


class DryRun:
    """``model`` holds the dump; it is used up by the run, as are ``engine`` and ``quotas``."""

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
        """Run ``cycles`` cycles, or until stability (then at most :data:`MOST_CYCLES`); a quiet cycle is
        the last one."""
        most = MOST_CYCLES if until_stable else cycles
        decision = self._decide()
        self._record(decision)
        while not self._quiet(decision) and self._cycle < most:
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
        at = self._cycle
        self._binds += [
            PlannedBind(
                bind.task,
                bind.node,
                at,
                tuple(map(allocated_devices, bind.devices)),
                bind.zones.zones if bind.zones is not None else (),
            )
            for bind in decision.binds
        ]
        self._evictions += [
            PlannedEviction(gone.task, gone.node, at, gone.action, gone.claimer)
            for gone in decision.evictions
        ]
        self._nominations += [
            PlannedNomination(promise.task, promise.node, at) for promise in decision.nominations
        ]
        for usage in decision.queues:
            self._queues[usage.queue] = usage

    def _quiet(self, decision: Decision) -> bool:
        return not decision.binds and not decision.evictions and not any(map(self._leaves, self._pods()))

    def _stays(self, decision: Decision) -> bool:
        """Return whether nothing more would happen. One more cycle, which is not part of the plan, tells."""
        if self._quiet(decision):
            return True
        self._advance(decision)
        return self._quiet(self._decide())

    def _pods(self) -> list[views.Pod]:
        return list(self._model.objects.pods.values())

    def _leaves(self, pod: views.Pod) -> bool:
        """Return whether the pod is on its way out and will be gone after the cycle."""
        return pod.deleting and not pod.finished and not engine_task.is_stuck(pod, self._now)

    # ------------------------------------------------------------------ between two cycles

    def _advance(self, decision: Decision) -> None:
        model = self._model
        for pod in self._pods():
            if self._leaves(pod):
                model.objects.remove_pod(pod.key)
                self._quotas.release(pod.key)
        for key in self._quotas.ask_again():
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
        """Gone, and back as its controller makes it: pending, of another incarnation."""
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
        """Write the moment on a PodGroup of KAI, as its scheduler does."""
        if podgroups.kind_prefix(group) != podgroups.KAI:
            return
        view = self._model.objects.kai_groups.get(podgroups.shown_key(group))
        if view is None or (not replace and annotation in view.annotations):
            return
        found = dict(view.annotations)
        if drop:
            found.pop(annotation, None)
        else:
            found[annotation] = rfc3339(self._now)
        self._model.objects.upsert_kai_group(msgspec.structs.replace(view, annotations=found))

    # ------------------------------------------------------------------ what waits

    def _waiting(self, decision: Decision) -> Iterable[PendingPods]:
        """Groups with pods that wait, in the order of the dump."""
        model = self._model
        bound = {bind.task for bind in decision.binds}
        found: dict[str, list[str]] = {}
        for pod in self._pods():
            if pod.node_name or pod.finished or pod.deleting or pod.key in bound or not model.manages(pod):
                continue
            group = model.groups.group_of(pod.key)
            if group is not None:
                found.setdefault(group, []).append(pod.key)
        for group, pods in found.items():
            queue = model.queue_of(group) or model.queue_named(group)
            yield PendingPods(group, queue, tuple(pods), self._why(group))

    def _why(self, group: str) -> Explanation:
        told = self._model.explanation(group) or self._engine.explain(group, self._now)
        if told is None:
            raise RuntimeError(f"group {group} has waiting pods and no reason")
        return self._model.display_names().explanation(told)
