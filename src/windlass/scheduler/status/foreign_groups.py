"""Status of PodGroups of other APIs than Volcano's.

* KAI: the explanation, KAI's own conditions
  (:mod:`windlass.model.groups.kai_conditions`, unless KAI itself runs in the cluster),
  and the timestamps that its policies use.
* coscheduling plugin: the explanation, and the status unless another controller writes
  it (:mod:`windlass.model.groups.coscheduling_status`).
* Kubernetes: one condition and nothing else
  (:mod:`windlass.model.groups.native_conditions`).
"""

from __future__ import annotations

from dataclasses import dataclass

from windlass.api import annotations as names
from windlass.api import resources, views
from windlass.api.reasons import Explanation
from windlass.client.client import Client
from windlass.client.recorder import EventRecorder, ObjectRef
from windlass.kits.clock import Clock
from windlass.model.cluster import ownership
from windlass.model.cluster.cluster_model import ClusterModel
from windlass.model.cluster.group_index import WrittenGroup
from windlass.model.groups import coscheduling_status, kai_conditions, native_conditions, podgroup_status
from windlass.model.groups.member_counts import Members
from windlass.observe.scheduling import SchedulerMetrics
from windlass.scheduler.options import LiveOptions
from windlass.scheduler.status.explanation_writer import (
    COUNTS_SECONDS,
    OWN_WRITE_SECONDS,
    ExplanationWriter,
    encode_explanation,
)
from windlass.scheduler.status.kai_timestamps import Timestamps
from windlass.scheduler.write_queue import Enqueue


@dataclass(frozen=True, slots=True)
class _WrittenStatus:
    status: coscheduling_status.CoschedulingStatus
    at: float


@dataclass(frozen=True, slots=True)
class _WrittenCondition:
    status_and_message: tuple[str, str]
    at: float


class ForeignGroups:
    """Writes the status of groups of other APIs.

    Keys are ``group NS/NAME``, as of Volcano's.
    """

    def __init__(
        self,
        client: Client,
        model: ClusterModel,
        recorder: EventRecorder,
        metrics: SchedulerMetrics,
        options: LiveOptions,
        explanations: ExplanationWriter,
        enqueue: Enqueue,
        *,
        clock: Clock,
    ) -> None:
        self._client = client
        self._model = model
        self._recorder = recorder
        self._metrics = metrics
        self._options = options
        self._explanations = explanations
        self._enqueue = enqueue
        self._clock = clock
        self._timestamps: Timestamps = {}
        self._written: dict[str, _WrittenStatus] = {}
        self._written_conditions: dict[str, _WrittenCondition] = {}

    # ------------------------------------------------------------------ what is to be written

    def update(self, key: str, members: Members, *, pending: bool) -> None:
        """Enqueue a group with an outdated status.

        ``pending``: whether the group waits. An earlier leader may have stopped between
        the start of a group and the removal of its explanation, so started groups are
        checked too.
        """
        native = self._model.groups.native_object_of(key)
        if native is not None and not pending and self._native_condition(key, native, None) is not None:
            self._enqueue(f"group {key}")
        entry = self._model.groups.object_of(key)
        if entry is None:
            return
        view = entry[1]
        if not pending and names.EXPLANATION in view.annotations:
            self._enqueue(f"group {key}", OWN_WRITE_SECONDS)
        outdated = isinstance(view, views.KaiPodGroup) and self._kai_conditions(view, None) is not None
        if outdated and not pending:
            self._enqueue(f"group {key}")
        if isinstance(view, views.CoschedulingGroup):
            wanted = self._coscheduling_status(key, view, members)
            if wanted is not None:
                final = wanted.phase != view.phase and wanted.phase not in coscheduling_status.ON_THE_WAY
                self._enqueue(f"group {key}", 0.0 if final else COUNTS_SECONDS)

    def update_timestamps(self, changes: Timestamps) -> None:
        """Take in timestamps to write on groups of KAI."""
        for key, wanted in changes.items():
            entry = self._model.groups.object_of(key)
            if entry is None:
                continue
            if any(entry[1].annotations.get(name) != text for name, text in wanted.items()):
                self._timestamps.setdefault(key, {}).update(wanted)
                self._enqueue(f"group {key}")

    def due_annotations(self, key: str) -> dict[str, str | None]:
        """Return the annotations due on a group before its members are bound."""
        entry = self._model.groups.object_of(key)
        attained = {} if entry is None else self._explanations.attained_service(key, entry[1].annotations)
        return {**self._timestamps.get(key, {}), **attained}

    def remove(self, key: str) -> None:
        """Forget a group that no longer exists, nor any of its pods."""
        self._timestamps.pop(key, None)
        self._written.pop(key, None)
        self._written_conditions.pop(key, None)

    # ------------------------------------------------------------------ writing

    async def write(self, key: str, explanation: Explanation | None, blocked: bool) -> None:
        """Write the status of one group.

        ``explanation``: why the group waits. ``blocked``: it does not hold its minimum.
        """
        native = self._model.groups.native_object_of(key)
        if native is not None:
            await self._write_native_condition(key, native, explanation if blocked else None)
        entry = self._model.groups.object_of(key)
        if entry is None:
            return
        resource, view = entry
        text = encode_explanation(explanation)
        if explanation is not None and blocked and view.annotations.get(names.EXPLANATION) != text:
            ref = ObjectRef(resource.api_version, resource.kind, view.namespace, view.name, view.uid)
            self._recorder.event(ref, "Warning", podgroup_status.UNSCHEDULABLE, explanation.message)
        if isinstance(view, views.CoschedulingGroup):
            await self._write_coscheduling_status(key, view)
        if key in self._timestamps:
            await self._write_timestamps(key, resource, view)
        attained = self._explanations.attained_service(key, view.annotations)
        await self._explanations.write(
            resource, view.namespace, view.name, view.annotations, text, along=attained
        )
        if isinstance(view, views.KaiPodGroup):
            await self._write_kai_conditions(view, explanation if blocked else None)

    async def _write_native_condition(
        self, key: str, view: views.NativeGroup, explanation: Explanation | None
    ) -> None:
        wanted = self._native_condition(key, view, explanation)
        if wanted is None:
            return
        resource, patch = resources.NATIVE_POD_GROUPS, {"status": {"conditions": [wanted]}}
        await self._client.patch(
            resource, view.name, patch, view.namespace, kind="strategic", subresource="status"
        )
        written = (wanted["status"], wanted["message"])
        self._written_conditions[key] = _WrittenCondition(written, self._clock.monotonic())
        self._metrics.writes.labels("podgroup").inc()

    def _native_condition(
        self, key: str, view: views.NativeGroup, explanation: Explanation | None
    ) -> native_conditions.Condition | None:
        """Return the condition to write, ``None`` if there is none."""
        if not self._model.groups.known(key):
            return None
        wanted = native_conditions.desired(
            view, self._model.groups.members(key), explanation, self._clock.now()
        )
        written = self._written_conditions.get(key)
        if wanted is None or written is None:
            return wanted
        if written.status_and_message != (wanted["status"], wanted["message"]):
            return wanted
        return wanted if self._clock.monotonic() - written.at > OWN_WRITE_SECONDS else None

    async def _write_kai_conditions(self, view: views.KaiPodGroup, explanation: Explanation | None) -> None:
        wanted = self._kai_conditions(view, explanation)
        if wanted is None:
            return
        resource, status = resources.KAI_POD_GROUPS, {"status": {"schedulingConditions": wanted}}
        await self._client.patch(resource, view.name, status, view.namespace, subresource="status")
        self._metrics.writes.labels("podgroup").inc()

    def _kai_conditions(
        self, view: views.KaiPodGroup, explanation: Explanation | None
    ) -> list[kai_conditions.Condition] | None:
        """Return the conditions to write, ``None`` if there are none."""
        if any(other.kind == ownership.KAI for other in self._options.current.other_schedulers):
            return None
        return kai_conditions.desired(view, explanation, self._clock.now())

    async def _write_timestamps(self, key: str, resource: resources.Resource, view: WrittenGroup) -> None:
        timestamps = self._timestamps.pop(key)
        changed = {name: time for name, time in timestamps.items() if view.annotations.get(name) != time}
        if not changed:
            return
        patch = {"metadata": {"annotations": changed}}
        try:
            await self._client.patch(resource, view.name, patch, view.namespace)
        except BaseException:
            self._timestamps[key] = {**timestamps, **self._timestamps.get(key, {})}
            raise
        self._metrics.writes.labels("moment").inc()

    async def _write_coscheduling_status(self, key: str, view: views.CoschedulingGroup) -> None:
        wanted = self._coscheduling_status(key, view, self._model.groups.members(key))
        if wanted is None:
            return
        resource, patch = resources.COSCHEDULING_POD_GROUPS, wanted.patch()
        await self._client.patch(resource, view.name, patch, view.namespace, subresource="status")
        self._written[key] = _WrittenStatus(wanted, self._clock.monotonic())
        self._metrics.writes.labels("podgroup").inc()

    def _coscheduling_status(
        self, key: str, view: views.CoschedulingGroup, members: Members
    ) -> coscheduling_status.CoschedulingStatus | None:
        """Return the status to write, ``None`` if it is current or another controller's."""
        if coscheduling_status.is_managed_by_others(view) or not self._model.groups.known(key):
            return None
        wanted = coscheduling_status.desired(view, members, self._model.groups.pods_of(key))
        if wanted == coscheduling_status.current(view):
            self._written.pop(key, None)
            return None
        written = self._written.get(key)
        if written is None or written.status != wanted:
            return wanted
        return wanted if self._clock.monotonic() - written.at > OWN_WRITE_SECONDS else None
