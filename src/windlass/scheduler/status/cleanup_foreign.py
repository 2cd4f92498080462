"""Removal of explanations from PodGroups that another scheduler owns.

Only the scheduler that places a group's pods reports on it. An earlier leader, or this
instance before the pods' ``schedulerName`` was changed, may have written an
explanation. The annotation shows this, and the condition with the same message is also
Windlass'. Nothing else on such a group is touched.
"""

from __future__ import annotations

import msgspec

from windlass.api import annotations as names
from windlass.api import resources, views
from windlass.model.cluster.cluster_model import ClusterModel
from windlass.model.cluster.group_index import WrittenGroup
from windlass.model.groups import podgroup_status
from windlass.observe.scheduling import SchedulerMetrics
from windlass.scheduler.status.explanation_writer import ExplanationWriter
from windlass.scheduler.status.podgroup_status import PodGroupStatuses
from windlass.scheduler.write_queue import Enqueue


class _Record(msgspec.Struct):
    message: str = ""


class ForeignStatusCleanup:
    """Removes Windlass' explanations from foreign groups.

    Keys are ``foreign NS/NAME``.
    """

    def __init__(
        self,
        model: ClusterModel,
        metrics: SchedulerMetrics,
        statuses: PodGroupStatuses,
        explanations: ExplanationWriter,
        enqueue: Enqueue,
    ) -> None:
        self._model = model
        self._metrics = metrics
        self._statuses = statuses
        self._explanations = explanations
        self._enqueue = enqueue

    def review(self) -> None:
        """Check all groups, since this instance begins to lead."""
        for key in (*self._model.objects.groups, *self._model.groups.other_api_keys()):
            self.check(key)

    def check(self, key: str) -> None:
        """Enqueue a group that another scheduler owns now and that has an explanation."""
        if self._foreign_object(key) is not None:
            self._enqueue(f"foreign {key}")

    def _foreign_object(self, key: str) -> tuple[resources.Resource, WrittenGroup] | None:
        """Return the group's object if it is foreign and has an explanation."""
        entry = self._model.groups.object_of(key)
        if entry is None or names.EXPLANATION not in entry[1].annotations or self._model.groups.known(key):
            return None
        return entry

    async def write(self, key: str) -> None:
        entry = self._foreign_object(key)
        if entry is None:
            return
        resource, view = entry
        if isinstance(view, views.PodGroup):
            await self._remove_condition(view)
        await self._explanations.write(resource, view.namespace, view.name, view.annotations, None)

    async def _remove_condition(self, view: views.PodGroup) -> None:
        remaining = [condition for condition in view.conditions if not _is_own(condition, view)]
        if len(remaining) < len(view.conditions):
            patch = {
                "metadata": {"resourceVersion": view.resource_version},  # the owner writes there, too
                "status": {"conditions": [msgspec.to_builtins(condition) for condition in remaining]},
            }
            await self._statuses.patch(view.name, view.namespace, patch)
            self._metrics.writes.labels("podgroup").inc()


def _is_own(condition: views.Condition, view: views.PodGroup) -> bool:
    if condition.type != podgroup_status.UNSCHEDULABLE:
        return False
    try:
        record = msgspec.json.decode(view.annotations[names.EXPLANATION], type=_Record)
    except msgspec.MsgspecError:
        return False
    return bool(record.message) and condition.message == record.message
