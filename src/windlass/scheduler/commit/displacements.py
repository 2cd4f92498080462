"""Records and events of evictions for another group, for the users of both groups.

The record of the evicted group is part of the write that comes before its evictions
(:mod:`windlass.scheduler.commit.eviction_record`). That of the preemptor is a write of
its own (:mod:`windlass.model.records.displacement` describes both).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from windlass.api import annotations as names
from windlass.api import resources
from windlass.api.quantities import is_device
from windlass.client.recorder import EventRecorder, ObjectRef
from windlass.engine.decision import Eviction
from windlass.engine.groups.entries import GroupEntry, TaskEntry, tasks_on
from windlass.kits.timestamps import rfc3339
from windlass.model.cluster.cluster_model import ClusterModel
from windlass.model.groups.podgroups import is_implicit, job_title
from windlass.model.pods.protection import protection_of
from windlass.model.records import displacement
from windlass.model.records.displacement import EvictedFor, EvictedGroup, SparedGroup
from windlass.scheduler.commit.bind_batch import PreBindWrite
from windlass.scheduler.engine_host import EngineHost
from windlass.scheduler.observability.group_counters import plain_action
from windlass.scheduler.steady_time import SteadyTime
from windlass.spi.objects import Group

MAX_NODES = 64
"""Maximum number of nodes on which spared groups are looked for."""
ENOUGH = "the evicted pods were enough"
EVENT_EVICTED, EVENT_EVICTS = "Evicted", "EvictedOthers"
Annotations = dict[str, str | None]


class Displacements:
    """Records of evictions for another group."""

    def __init__(
        self, model: ClusterModel, host: EngineHost, recorder: EventRecorder, time: SteadyTime
    ) -> None:
        self._model = model
        self._host = host
        self._recorder = recorder
        self._time = time

    # ------------------------------------------------------------------ the evicted group

    def of_victim(self, group: str, evictions: Sequence[Eviction]) -> Annotations:
        """Return the annotations of the group of evicted pods."""
        entry = self._model.groups.object_of(group)
        if entry is None:
            return {}
        resource, view = entry
        before = displacement.evicted_for(view.annotations)
        first = evictions[0]
        preemptor = job_title(first.preemptor) if first.preemptor else ""
        record = EvictedFor(
            rfc3339(self._time.now()),
            plain_action(first.action),
            preemptor,
            first.reason or self._rule(first),
            tuple(eviction.task.partition("/")[2] for eviction in evictions[: displacement.MAX_PODS]),
            len(evictions),
            1 if before is None else before.times + 1,
        )
        for_whom = f" for {preemptor}" if preemptor else ""
        pods = "1 pod was" if len(evictions) == 1 else f"{len(evictions)} pods were"
        ref = ObjectRef(resource.api_version, resource.kind, view.namespace, view.name, view.uid)
        message = f"{pods} evicted by {record.action}{for_whom}: {record.reason}"
        self._recorder.event(ref, "Warning", EVENT_EVICTED, message)
        return {names.EVICTED_FOR: displacement.encode(record)}

    def _rule(self, eviction: Eviction) -> str:
        """Return why the pods of an evicted group could be evicted for the preemptor."""
        victim, preemptor = (self._spec(key) for key in (eviction.group, eviction.preemptor))
        if victim is None or preemptor is None:
            return "its capacity was needed"
        action = plain_action(eviction.action)
        if "reclaim" in action:
            return f"queue {victim.queue} held more than its share, and queue {preemptor.queue} less"
        if "preempt" in action and victim.priority < preemptor.priority:
            return f"its priority {victim.priority} is lower than {preemptor.priority}"
        if action == "timeshare":
            return "both agreed to share time"
        if "preempt" in action:
            return f"the policy of queue {victim.queue} puts it behind"
        return "it is placed elsewhere, to make room"

    def _spec(self, key: str) -> Group | None:
        entry = self._host.engine.state.groups.get(key)
        return None if entry is None else entry.group

    # ------------------------------------------------------------------ the preemptor

    def of_preemptors(self, evictions: Iterable[Eviction]) -> Iterator[PreBindWrite]:
        """Yield the writes on the groups for which pods are evicted."""
        by_preemptor: dict[str, list[Eviction]] = {}
        for eviction in evictions:
            if eviction.preemptor:
                by_preemptor.setdefault(eviction.preemptor, []).append(eviction)
        for key, own in by_preemptor.items():
            write = self._of_preemptor(key, own)
            if write is not None:
                yield write

    def _of_preemptor(self, key: str, evictions: Sequence[Eviction]) -> PreBindWrite | None:
        found = self._object_of(key)
        if found is None:
            return None
        resource, ref, annotations = found
        spared = [*self._spared(key, evictions)][: displacement.MAX_GROUPS]
        evicted = [*self._evicted(evictions)]
        record = displacement.with_evicted(displacement.evictions_of(annotations), evicted, spared)
        groups = ", ".join(entry.group for entry in evicted[: displacement.MAX_GROUPS])
        more = (
            f" and {len(evicted) - displacement.MAX_GROUPS} more"
            if len(evicted) > len(record.evicted)
            else ""
        )
        protected = "; ".join(f"{entry.group} was spared: {entry.reason}" for entry in spared[:3])
        message = f"pods of {groups}{more} were evicted for it by {plain_action(evictions[0].action)}"
        self._recorder.event(ref, "Normal", EVENT_EVICTS, f"{message}; {protected}" if protected else message)
        text: Annotations = {names.EVICTIONS: displacement.encode(record)}
        body = {"metadata": {"uid": ref.uid, "annotations": text}}
        return PreBindWrite(resource, ref.namespace, ref.name, body, vital=False)

    def _object_of(self, key: str) -> tuple[resources.Resource, ObjectRef, Mapping[str, str]] | None:
        """Return the object of a group, or the pod that is a group of its own."""
        entry = self._model.groups.object_of(key)
        if entry is not None:
            resource, view = entry
            ref = ObjectRef(resource.api_version, resource.kind, view.namespace, view.name, view.uid)
            return resource, ref, view.annotations
        pod = next(iter(self._model.groups.pods_of(key)), None) if is_implicit(key) else None
        if pod is None:
            return None
        return resources.PODS, ObjectRef("v1", "Pod", pod.namespace, pod.name, pod.uid), pod.annotations

    def _evicted(self, evictions: Sequence[Eviction]) -> Iterator[EvictedGroup]:
        by_group: dict[str, list[Eviction]] = {}
        for eviction in evictions:
            by_group.setdefault(eviction.group, []).append(eviction)
        now = rfc3339(self._time.now())
        for group, own in by_group.items():
            yield EvictedGroup(
                job_title(group), now, plain_action(own[0].action), len(own), self._rule(own[0])
            )

    # ------------------------------------------------------------------ those spared

    def _spared(self, key: str, evictions: Sequence[Eviction]) -> list[SparedGroup]:
        """Return groups that hold such resources, first on the nodes of the evicted pods.

        Protected groups come first, and those that were merely not needed last.
        """
        state = self._host.engine.state
        victims, own = {eviction.task for eviction in evictions}, {key, *(e.group for e in evictions)}
        spec = self._spec(key)
        if spec is None:
            return []
        wanted = self._devices(entry for task in victims if (entry := state.tasks.get(task)) is not None)
        found: dict[str, tuple[int, str]] = {}
        for row in self._rows(evictions):
            for entry in tasks_on(state.table, row).values():
                group = entry.group
                if group is None or group.key in own or group.group is None or group.key in found:
                    continue
                if wanted and not any(name in wanted for name, _ in entry.cls.items):
                    continue
                found[group.key] = self._why_spared(spec, group, entry, plain_action(evictions[0].action))
        ordered = sorted(found.items(), key=lambda item: item[1][0])
        return [SparedGroup(job_title(group), reason) for group, (_, reason) in ordered]

    def _rows(self, evictions: Sequence[Eviction]) -> list[int]:
        table = self._host.engine.state.table
        first = {table.rows[e.node]: None for e in evictions if e.node in table.rows}
        rows = [*first, *(row for row in range(len(table.tasks)) if row not in first and table.tasks[row])]
        return rows[:MAX_NODES]

    @staticmethod
    def _devices(entries: Iterable[TaskEntry]) -> frozenset[str]:
        """Return the devices that tasks hold, by resource name; empty without any."""
        return frozenset(name for entry in entries for name, _ in entry.cls.items if is_device(name))

    def _why_spared(
        self, preemptor: Group, group: GroupEntry, entry: TaskEntry, action: str
    ) -> tuple[int, str]:
        """Return the rank and the text of the reason why a group was spared."""
        spec = group.spec
        if entry.task.critical or not entry.task.preemptible or not spec.preemptible:
            pod = self._model.objects.pods.get(entry.key)
            view = self._model.groups.object_of(group.key)
            stated = protection_of(pod, None if view is None else view[1], self._model.objects.classes)
            return 0, f"protected: {stated.text}" if stated is not None else "protected"
        same_queue = spec.queue == preemptor.queue
        if "preempt" in action and same_queue and spec.priority >= preemptor.priority:
            return 1, f"its priority {spec.priority} is not lower than {preemptor.priority}"
        if "preempt" in action and not same_queue:
            return 2, f"it is in queue {spec.queue}, and preempt acts within queue {preemptor.queue}"
        if "reclaim" in action and same_queue:
            return 2, f"it is in the same queue {spec.queue}"
        return 3, ENOUGH
