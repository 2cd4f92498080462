"""What was said on PodGroups that are another scheduler's: taken back.

A group whose pods another scheduler places is that one's to speak of. Who scheduled it here before (an older version,
or this one before the pods' ``schedulerName`` was changed) may have written why it waits: the annotation tells, and the
condition with the same words is ours. Nothing else on such a group is touched.
"""

from __future__ import annotations

import msgspec

from windlass.api import annotations as names
from windlass.api import resources, views
from windlass.model.cluster.cluster_model import WrittenGroup
from windlass.model.groups import podgroup_status
from windlass.scheduler.status.writer_context import StatusWriterContext


class _Told(msgspec.Struct):
    message: str = ""


class ForeignStatusCleanup:
    """Keys of the writes are ``foreign NS/NAME``."""

    def __init__(self, context: StatusWriterContext) -> None:
        self._context = context

    def review(self) -> None:
        """Look at all groups: this instance begins to lead."""
        model = self._context.model
        for key in (*model.groups, *model.foreign_keys()):
            self.look(key)

    def look(self, key: str) -> None:
        """A group may have become another scheduler's."""
        if self._of_another(key) is not None:
            self._context.wish(f"foreign {key}")

    def _of_another(self, key: str) -> tuple[resources.Resource, WrittenGroup] | None:
        """The group's object, if it is another's and says what we have said."""
        found = self._context.model.object_of(key)
        if found is None or names.EXPLANATION not in found[1].annotations or self._context.model.known(key):
            return None
        return found

    async def write(self, key: str) -> None:
        found = self._of_another(key)
        if found is None:
            return
        resource, view = found
        if isinstance(view, views.PodGroup):
            await self._take_back_condition(view)
        await self._context.annotate(resource, view.namespace, view.name, view.annotations, None)

    async def _take_back_condition(self, view: views.PodGroup) -> None:
        kept = [condition for condition in view.conditions if not _is_ours(condition, view)]
        if len(kept) < len(view.conditions):
            patch = {
                "metadata": {"resourceVersion": view.resource_version},  # another one writes there, too
                "status": {"conditions": [msgspec.to_builtins(condition) for condition in kept]},
            }
            await self._context.statuses.patch(view.name, view.namespace, patch)
            self._context.metrics.writes.labels("podgroup").inc()


def _is_ours(condition: views.Condition, view: views.PodGroup) -> bool:
    if condition.type != podgroup_status.UNSCHEDULABLE:
        return False
    try:
        told = msgspec.json.decode(view.annotations[names.EXPLANATION], type=_Told)
    except msgspec.MsgspecError:
        return False
    return bool(told.message) and condition.message == told.message
