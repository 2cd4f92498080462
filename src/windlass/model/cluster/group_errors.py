"""Explanations of waiting groups that follow from the objects and not from the engine."""

from __future__ import annotations

from windlass.api import annotations as names
from windlass.api.errors import FieldError
from windlass.api.reasons import Explanation
from windlass.model.cluster import object_errors
from windlass.model.cluster.assumed_binds import AssumedBinds
from windlass.model.cluster.group_builder import GroupBuilder
from windlass.model.cluster.group_index import GroupIndex
from windlass.model.cluster.object_cache import ObjectCache
from windlass.model.cluster.ownership import KAI, ForeignGroup
from windlass.model.cluster.task_builder import TaskBuilder
from windlass.model.contributors.features import Features
from windlass.model.groups import member_counts, podgroups


class GroupErrors:
    """Explanations of groups that the model holds back."""

    def __init__(
        self,
        objects: ObjectCache,
        index: GroupIndex,
        groups: GroupBuilder,
        tasks: TaskBuilder,
        binds: AssumedBinds,
        features: Features,
    ) -> None:
        self._objects = objects
        self._index = index
        self._groups = groups
        self._tasks = tasks
        self._binds = binds
        self._features = features

    def explanation(self, group: str) -> Explanation | None:
        """Return why the model holds a group back; ``None`` if the engine knows the reason."""
        members, awaited, withheld = (
            self._index.membership.pods.get(group, {}),
            self._binds.awaited,
            self._tasks.withheld,
        )
        if problems := self._problems(group):
            return object_errors.misconfigured(podgroups.shown_key(group), problems)
        if awaited and (waiting := [awaited[key] for key in members if key in awaited]):
            return object_errors.awaited(podgroups.shown_key(group), waiting)
        if withheld and (reasons := [withheld[key] for key in members if key in withheld]):
            return reasons[0]
        if not members or self._index.defined(group):
            return None
        return self._without_object(group)

    def _problems(self, group: str) -> dict[str, tuple[FieldError, ...]]:
        """Return the invalid fields of the group and of its pods."""
        invalid: dict[str, tuple[FieldError, ...]] = {}
        if problems := (*self._groups.problems(group), *self._features.topology.problems(group)):
            kind = "PodGroup" if podgroups.has_object(group) else "pod group"
            invalid[f"{kind} {podgroups.shown_key(group)}"] = problems
        for key in self._index.membership.pods.get(group, ()):
            if key in self._tasks.faults:
                invalid[f"pod {key}"] = self._tasks.faults[key]
        return invalid

    def _without_object(self, group: str) -> Explanation | None:
        """Return why the pods of a group without an object wait."""
        pods = self._index.pods_of(group)
        pending = [pod for pod in pods if not pod.node_name and not pod.finished]
        if not pending:
            return None
        foreign = self._objects.ownership.foreign.get(group)
        if foreign is not None:
            return self._not_migrated(group, foreign, len(pending))
        if not podgroups.is_implicit(group):
            return object_errors.group_missing(group, len(pending))
        if self._tasks.awaits_group(pending[0]):
            return object_errors.group_awaited(pending[0].key)
        return None

    def _not_migrated(self, group: str, foreign: ForeignGroup, pods: int) -> Explanation:
        queues = self._objects.kai_queues if foreign.kind == KAI else self._objects.queues
        known = queues.get(foreign.queue)
        marked = known is not None and known.annotations.get(names.ADOPTED) == "true"
        return object_errors.not_migrated(group, foreign, pods, marked=marked)

    def completed(self, group: str, explanation: Explanation) -> Explanation:
        """Return the engine's explanation, completed by what the engine does not know.

        That is devices that could be shared, but cannot be reserved at present.
        """
        requests = self._features.requests
        refusing = requests.reserved.refusing
        members = self._index.membership.pods.get(group, ())
        concerned = refusing and any(key in requests.pods for key in members)
        return object_errors.devices_rejected(explanation, refusing) if concerned else explanation

    def blocked(self, group: str) -> bool:
        """Return whether the group lacks its minimum.

        Binds in flight count, unless they wait for something.
        """
        binds, view = self._binds, self._objects.groups.get(group)
        if view is not None:
            pods = [pod for pod in self._index.pods_of(group) if pod.key not in binds.awaited]
            return not member_counts.is_ready(view.min_member, pods, binds.assumed)
        members = self._index.membership.pods.get(group, ())
        if binds.awaited and any(key in binds.awaited for key in members):
            return True
        return any(not pod.node_name and pod.key not in binds.assumed for pod in self._index.pods_of(group))
