"""Which group a pod belongs to, which queue the group is in and by whose rules, whatever API says so. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec.structs import replace as altered

from windlass.api import annotations as names
from windlass.api import views
from windlass.api.errors import FieldError
from windlass.model.cluster.object_cache import IMPLIED, ObjectCache
from windlass.model.devices.dra_claims import stays
from windlass.model.groups import (
    claim_sharing,
    foreign_groups,
    member_counts,
    podgroups,
    subgroups,
    topology_constraint,
)
from windlass.model.queues import engine_queue
from windlass.spi.objects import Dialect, Group


class GroupIndex(ObjectCache):
    """What :class:`ObjectCache` was shown, by groups."""

    def __init__(self) -> None:
        super().__init__()
        self._group_of: dict[str, str] = {}
        self._others: dict[str, dict[str, None]] = {}
        """Group → pods that name it and are placed by another scheduler."""
        self._others_group: dict[str, str] = {}

    def pods_of(self, group: str) -> Iterator[views.Pod]:
        """The pods of a group, as of the last :meth:`take`."""
        for key in self._members.get(group, ()):
            pod = self.pods.get(key)
            if pod is not None:
                yield pod

    def members(self, group: str) -> member_counts.Members:
        return member_counts.count(self.pods_of(group))

    def group_of(self, key: str) -> str | None:
        """The group of a managed pod, as of the last :meth:`take`."""
        return self._group_of.get(key)

    def known(self, group: str) -> bool:
        """Whether the group has an object or pods, and is nobody else's."""
        return group in self._members or (self._defined(group) and not self._elsewhere(group))

    def _elsewhere(self, group: str) -> bool:
        """Whether the group is another scheduler's: it has pods, and none of them is placed here."""
        return group in self._others and group not in self._members

    def _note_whose(self, group: str) -> None:
        """A pod that is placed here came to the group, or left it: it may have become ours, or another one's."""
        if group in self._others:
            self._dirty_groups[group] = None

    def _note_other(self, pod: views.Pod) -> None:
        """Another scheduler places the pod."""
        group = podgroups.group_key(pod)
        if self._others_group.get(pod.key) == group:
            return
        self._forget_other(pod.key)
        if podgroups.is_implicit(group):
            return
        self._others_group[pod.key] = group
        self._others.setdefault(group, {})[pod.key] = None
        self._dirty_groups[group] = None

    def _forget_other(self, key: str) -> None:
        """The pod is gone, or placed here."""
        group = self._others_group.pop(key, None)
        if group is None:
            return
        mates = self._others[group]
        del mates[key]
        if not mates:
            del self._others[group]
        self._dirty_groups[group] = None

    def both_apis(self) -> bool:
        """Whether the cluster has queues of both APIs, so that a name needs its API beside it."""
        return bool(self.kai_queues) and any(name not in IMPLIED for name in self.queues)

    def _group(self, key: str) -> Group | None:
        """The group of an object, of any API; ``None`` without one, and where it is another scheduler's."""
        group = self._far_group(key) if not self._elsewhere(key) else None
        if group is None:
            return None
        if (near := self._near(key)) is not None:
            group = topology_constraint.applied(group, near, self.pods_of(key))
        return self._with_sharers(group) if key in self._near_groups else group

    def _with_sharers(self, group: Group) -> Group:
        pods = [pod for pod in self.pods_of(group.key) if stays(pod)]
        found: dict[str, dict[str, list[views.Pod]]] = {}
        seen: set[str] = set()
        for pod in pods:
            if pod.key not in seen and claim_sharing.shares(pod):
                claim, mates = self._sharing(pod, group.key)
                seen.update(mates)
                if claim:
                    part = self._own_part(pod, group.key)
                    found.setdefault(part, {})[claim] = list(mates.values())
        for part, sharing in sorted(found.items()):
            members = sum(self._own_part(pod, group.key) == part for pod in pods)
            group = claim_sharing.applied(group, part, sharing, members, self.assumed)
        return group

    def _sharing(self, pod: views.Pod, key: str) -> tuple[str, dict[str, views.Pod]]:
        """The pods of a gang that share claims with one of them, itself among them, and by which claim they are
        known; ``""`` and none where there are no others, or they are in different sub-groups."""
        if podgroups.is_implicit(key) or not (claim_sharing.shares(pod) and stays(pod)):
            return "", {}
        claim, mates = self.claims.sharers(
            pod,
            self.pods,
            lambda other: (
                other.scheduler_name == pod.scheduler_name
                and stays(other)
                and podgroups.group_key(other) == key
            ),
        )
        parts = {self._own_part(mate, key) for mate in mates.values()}
        apart = len(parts) > 1 or (parts == {""} and self._divided(key))
        return (claim, mates) if len(mates) > 1 and not apart else ("", {})

    def _own_part(self, pod: views.Pod, key: str) -> str:
        """The sub-group of a gang that a pod is in, by its object or by what the pod says; ``""`` for none."""
        if podgroups.kind_prefix(key) == podgroups.KAI:
            kai = self.kai_groups.get(podgroups.shown_key(key))
            part = pod.labels.get(names.SUBGROUP_KAI, "")
            known = kai is not None and any(one.name == part for one in kai.subgroups)
            return part if known else topology_constraint.segment_of(pod)
        view = self.groups.get(key)
        policies = view.subgroup_policies if view is not None else ()
        return (
            subgroups.subgroup_of(policies, pod.labels) if policies else topology_constraint.segment_of(pod)
        )

    def _divided(self, key: str) -> bool:
        """Whether the object of a group names sub-groups."""
        if podgroups.kind_prefix(key) == podgroups.KAI:
            kai = self.kai_groups.get(podgroups.shown_key(key))
            return kai is not None and bool(kai.subgroups)
        view = self.groups.get(key)
        return view is not None and bool(view.subgroup_policies)

    def _near(self, key: str) -> topology_constraint.GroupTopology | None:
        """How near to one another the group's pods are to be; ``None`` if nobody says anything."""
        near: topology_constraint.GroupTopology | None = None
        if (view := self.groups.get(key)) is not None:
            near = topology_constraint.of_pod_group(view, self.topology)
        elif podgroups.kind_prefix(key) == podgroups.KAI and (
            kai := self.kai_groups.get(podgroups.shown_key(key))
        ):
            near = topology_constraint.of_kai_group(kai, self.topology)
        if (near is None or not near.asks) and key in self._near_groups:
            near = topology_constraint.of_pods(self.pods_of(key), self.topology)
        return near if near is not None and near.asks else None

    def _far_group(self, key: str) -> Group | None:
        """:meth:`_group` without how near its pods are to be."""
        kind = podgroups.kind_prefix(key)
        if kind == podgroups.KAI:
            kai = self.kai_groups.get(podgroups.shown_key(key))
            if kai is None:
                return None
            queue = engine_queue.KAI + kai.queue
            group = foreign_groups.kai_group(kai, key, queue, self.classes, self.pods_of(key))
            return group if group.started is not None else altered(group, started=self._reached(group))
        if kind == podgroups.NATIVE:
            native = self._native(key)
            if native is None:
                return None
            pods = list(self.pods_of(key))
            queue = self._queue_of(native, pods)
            return foreign_groups.native_group(native, key, queue, dialect_of(queue), self.classes, pods)
        if kind == podgroups.COSCHEDULING:
            coscheduling = self._coscheduling(key)
            if coscheduling is None:
                return None
            pods = list(self.pods_of(key))
            queue = self._queue_of(coscheduling, pods)
            dialect = dialect_of(queue)
            return foreign_groups.coscheduling_group(coscheduling, key, queue, dialect, self.classes, pods)
        if kind == podgroups.KUEUE:
            pods = list(self.pods_of(key))
            oldest = member_counts.oldest_of(pods)
            if oldest is None:
                return None
            queue = self._implicit_queue(oldest)
            return foreign_groups.kueue_group(oldest, pods, key, queue, dialect_of(queue), self.classes)
        if kind == podgroups.OWNER:
            first = member_counts.oldest_of(self.pods_of(key))
            if first is None:
                return None
            return foreign_groups.kai_batch_group(first, key, self._implicit_queue(first), self.classes)
        view = self.groups.get(key)
        if view is None:
            return None
        near = topology_constraint.of_policies(view, self.topology)
        urgency = self.classes.urgency(view.priority_class, self.pods_of(key))
        return podgroups.group_of(view, urgency, subgroups.subgroups(view, self.pods_of(key), near))

    def _reached(self, group: Group) -> float | None:
        """Since when the group holds its minimum, by the start of its running pods; ``None`` if it does not."""
        starts = sorted(
            pod.started for pod in self.pods_of(group.key) if pod.phase == "Running" and pod.started
        )
        least = max(1, group.min_member)
        return starts[least - 1] if len(starts) >= least else None

    def _defined(self, key: str) -> bool:
        """Whether the group has an object."""
        kind = podgroups.kind_prefix(key)
        if kind == podgroups.KAI:
            return podgroups.shown_key(key) in self.kai_groups
        if kind == podgroups.NATIVE:
            return self._native(key) is not None
        if kind == podgroups.COSCHEDULING:
            return self._coscheduling(key) is not None
        if kind in (podgroups.OWNER, podgroups.KUEUE):
            return key in self._members
        return key in self.groups

    def _native(self, key: str) -> views.NativeGroup | None:
        """The object of a native group; a replica of a Workload's part has that of the part."""
        return self.native_groups.get(podgroups.shown_key(key).partition(":")[0])

    def _coscheduling(self, key: str) -> views.CoschedulingGroup | None:
        return self.coscheduling_groups.get(podgroups.shown_key(key))

    def _queue_of(self, view: views.NativeGroup | views.CoschedulingGroup, pods: Iterable[views.Pod]) -> str:
        """That of the object, which has no field for it; else that of the oldest of its pods, as if it were alone."""
        name = foreign_groups.named_queue(view.labels, view.annotations)
        if name:
            return self._kai_or_plain(name)
        pod = member_counts.oldest_of(pods)
        return self._implicit_queue(pod) if pod is not None else self._queue_of_namespace(view.namespace)

    def _queue_of_namespace(self, name: str) -> str:
        namespace = self._namespaces.get(name)
        said = namespace.annotations.get(names.QUEUE_NAME_VOLCANO, "") if namespace else ""
        return said or engine_queue.DEFAULT

    def _kai_or_plain(self, name: str) -> str:
        """What KAI's label means: a queue of KAI where the cluster has any, else one of that name."""
        return (
            engine_queue.KAI + name
            if name in self.kai_queues or (self.kai_queues and name not in self.queues)
            else name
        )

    def _group_problems(self, key: str) -> tuple[FieldError, ...]:
        near = self._near(key)
        return (*self._own_problems(key), *(near.problems if near is not None else ()))

    def _own_problems(self, key: str) -> tuple[FieldError, ...]:
        kind = podgroups.kind_prefix(key)
        if kind == podgroups.KAI:
            kai = self.kai_groups.get(podgroups.shown_key(key))
            return () if kai is None else foreign_groups.kai_problems(kai)
        if kind == podgroups.NATIVE:
            native = self._native(key)
            return () if native is None else native.problems
        if kind == podgroups.COSCHEDULING:
            coscheduling = self._coscheduling(key)
            return () if coscheduling is None else foreign_groups.coscheduling_problems(coscheduling)
        if kind == podgroups.KUEUE:
            return foreign_groups.kueue_problems(self.pods_of(key))
        view = self.groups.get(key)
        return () if view is None else podgroups.group_problems(view)

    def _implicit_queue(self, pod: views.Pod) -> str:
        """The queue of a pod without a PodGroup: the pod's word, the namespace's, ``default``."""
        annotated = pod.annotations.get(names.QUEUE_NAME_VOLCANO)
        labelled = pod.labels.get(names.QUEUE_NAME_KAI)
        if labelled and (not annotated or pod.scheduler_name == podgroups.KAI_SCHEDULER):
            return self._kai_or_plain(labelled)
        return podgroups.queue_named(pod) or self._queue_of_namespace(pod.namespace)

    def _implicit_group(self, pod: views.Pod) -> Group:
        queue = self._implicit_queue(pod)
        if engine_queue.is_kai(queue):
            group = foreign_groups.kai_pod_group(pod, queue, self.classes)
        else:
            group = podgroups.implicit_group(pod, self.classes, queue)
        if not topology_constraint.speaks(pod.annotations):
            return group
        return topology_constraint.applied(group, topology_constraint.of_pods([pod], self.topology), [pod])

    def _queue_dialect(self, pod: views.Pod, key: str) -> Dialect:
        """The dialect of the queue that the group of a pod with a group is in."""
        kind = podgroups.kind_prefix(key)
        if kind == podgroups.KAI:
            return Dialect.KAI
        if kind in podgroups.BY_PODS:
            sent = self._sent_groups.get(key)
            return sent.dialect if sent is not None else dialect_of(self._implicit_queue(pod))
        return Dialect.VOLCANO

    def queue_named(self, group: str) -> str:
        """The queue that a group's own words name, whether the engine knows the group or not."""
        sent = self._sent_groups.get(group) or self._group(group)
        if sent is not None:
            return sent.queue
        pod = next(self.pods_of(group), None)
        return "" if pod is None else self._implicit_queue(pod)


def dialect_of(queue: str) -> Dialect:
    return Dialect.KAI if engine_queue.is_kai(queue) else Dialect.VOLCANO
