"""Settings for requesting nodes for a group, from its queues and its own object."""

from __future__ import annotations

from collections.abc import Callable

from windlass.api import annotations as names
from windlass.api import views
from windlass.model.autoscaling.provisioning_objects import OwningGroup
from windlass.model.cluster.group_index import GroupIndex
from windlass.model.cluster.object_cache import ObjectCache
from windlass.model.queues import engine_queue


class ProvisioningSettings:
    """Provisioning settings of groups.

    ``queue_of``: the queue of a group, by its key; ``""`` for a group that the engine
        does not know.
    """

    def __init__(self, objects: ObjectCache, index: GroupIndex, queue_of: Callable[[str], str]) -> None:
        self._objects = objects
        self._index = index
        self._queue_of = queue_of
        self.served = False
        """True if the cluster serves ProvisioningRequests and permits reading them."""

    def class_of(self, group: str) -> str | None:
        """Return the provisioning class of the nearest queue above the group; ``None`` without one."""
        view = self._queue_with_class(group)
        return None if view is None else view.annotations[names.PROVISIONING_CLASS].strip()

    def parameters_of(self, group: str) -> dict[str, str]:
        """Return the parameters of that queue and of the group, which take precedence."""
        parameters: dict[str, str] = {}
        written = self._index.object_of(group)
        for view in (self._queue_with_class(group), written[1] if written is not None else None):
            for name, value in view.annotations.items() if view is not None else ():
                if name.startswith(names.PROVISIONING_PARAMETER):
                    parameters[name.removeprefix(names.PROVISIONING_PARAMETER)] = value
        return parameters

    def _queue_with_class(self, group: str) -> views.QueueObject | views.KaiQueue | None:
        visited: set[str] = set()
        name, objects = self._queue_of(group), self._objects
        while name not in visited:
            visited.add(name)
            kai = name.startswith(engine_queue.KAI)
            view = (
                objects.kai_queues.get(name.removeprefix(engine_queue.KAI))
                if kai
                else objects.queues.get(name)
            )
            if view is not None and names.PROVISIONING_CLASS in view.annotations:
                return view
            above = view.parent if view is not None else ""
            name = f"{engine_queue.KAI}{above}" if kai and above else above or engine_queue.ROOT
        return None

    def owner_of(self, group: str) -> OwningGroup | None:
        """Return the object that owns the group's requests; ``None`` for a group that has none."""
        known = self._index.object_of(group)
        if known is None or known[1].deleted:
            return None
        resource, view = known
        return OwningGroup(resource, view.namespace, view.name, view.uid)
