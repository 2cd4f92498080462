"""Topology constraint of a group: from its object, else from annotations of its pods.

An object uses Volcano's or KAI's fields. Pods use KAI's or Kueue's annotations. All
pods of a gang that have any must have the same. Segments (KAI) and slices (Kueue)
divide a gang without sub-groups into neighbours by index.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from msgspec.structs import replace as altered

from windlass.api import annotations as names
from windlass.api import views
from windlass.api.errors import FieldError
from windlass.model.nodes.topology import TopologyIndex
from windlass.spi.objects import Group, SubGroup
from windlass.spi.topology import TopologyNeed

ANNOTATIONS = (
    names.TOPOLOGY_KAI,
    names.PODSET_REQUIRED,
    names.PODSET_PREFERRED,
    names.PODSET_SLICE_REQUIRED,
    names.SEGMENT_SIZE_KAI,
)
_ALL_ANNOTATIONS = (
    *ANNOTATIONS,
    names.TOPOLOGY_REQUIRED_KAI,
    names.TOPOLOGY_PREFERRED_KAI,
    names.SEGMENT_REQUIRED_KAI,
    names.SEGMENT_PREFERRED_KAI,
    names.PODSET_SLICE_SIZE,
)
INDEXES = (
    "training.kubeflow.org/replica-index",
    "leaderworkerset.sigs.k8s.io/worker-index",
    "batch.kubernetes.io/job-completion-index",
    names.TASK_INDEX,
)
"""Labels that number the pods of a gang."""
SEGMENT = "segment-"
_NAMES = frozenset(ANNOTATIONS)


@dataclass(frozen=True, slots=True)
class GroupTopology:
    """Topology constraint of a group.

    ``whole``: constraint of the whole group.
    ``parts``: constraints of sub-groups (KAI), by name.
    ``size``: number of neighbours by index that form a segment; 0 for no segments.
    """

    whole: TopologyNeed | None = None
    parts: Mapping[str, TopologyNeed] = field(default_factory=dict)
    size: int = 0
    segment: TopologyNeed | None = None
    problems: tuple[FieldError, ...] = ()

    @property
    def is_set(self) -> bool:
        return bool(self.whole or self.parts or self.size or self.problems)


def states_topology(annotations: Mapping[str, str]) -> bool:
    """Return whether a pod's annotations state a topology constraint."""
    return not _NAMES.isdisjoint(annotations)


def of_pod_group(view: views.PodGroup, index: TopologyIndex) -> GroupTopology:
    """Return the constraint of a PodGroup of Volcano."""
    policies = view.subgroup_policies
    if view.topology is None and not any(policy.topology for policy in policies):
        return GroupTopology()
    anchor = view.annotations.get(names.ALLOCATED_HYPERNODE, "")
    whole, problems = index.network(view.topology, "spec.networkTopology", anchor)
    return GroupTopology(whole, problems=problems + _of_policies(view, index)[1])


def of_policies(view: views.PodGroup, index: TopologyIndex) -> dict[str, TopologyNeed]:
    """Return the constraint of each sub-group, by policy."""
    return _of_policies(view, index)[0] if view.subgroup_policies else {}


def _of_policies(
    view: views.PodGroup, index: TopologyIndex
) -> tuple[dict[str, TopologyNeed], tuple[FieldError, ...]]:
    parts: dict[str, TopologyNeed] = {}
    problems: tuple[FieldError, ...] = ()
    for at, policy in enumerate(view.subgroup_policies):
        need, wrong = index.network(policy.topology, f"spec.subGroupPolicy[{at}].networkTopology")
        problems += wrong
        if need is not None:
            parts[policy.name] = need
    return parts, problems


def of_kai_group(view: views.KaiPodGroup, index: TopologyIndex) -> GroupTopology:
    """Return the constraint of a PodGroup of KAI."""
    if view.topology is None and not any(part.topology_constraint for part in view.subgroups):
        return GroupTopology()
    whole, problems = index.constraint(view.topology, "spec.topologyConstraint")
    parts: dict[str, TopologyNeed] = {}
    for at, part in enumerate(view.subgroups):
        field_ = f"spec.subGroups[{at}].topologyConstraint"
        need, wrong = index.constraint(part.topology_constraint, field_)
        problems += wrong
        if need is not None:
            parts[part.name] = need
    return GroupTopology(whole, parts, problems=problems)


def of_pods(pods: Iterable[views.Pod], index: TopologyIndex) -> GroupTopology:
    """Return the constraint in the annotations of a gang's pods."""
    stated: dict[tuple[tuple[str, str], ...], views.Pod] = {}
    for pod in sorted(pods, key=lambda each: each.name):
        if states_topology(pod.annotations):
            values = tuple(
                (name, pod.annotations[name]) for name in _ALL_ANNOTATIONS if name in pod.annotations
            )
            stated.setdefault(values, pod)
    if not stated:
        return GroupTopology()
    first, *more = stated.values()
    if more:
        values = f"pods {first.name} and {more[0].name} of one gang ask for different topologies"
        return GroupTopology(problems=(FieldError("metadata.annotations", values),))
    whole, problems = index.gang_need(first.annotations)
    size, segment, wrong = index.segment_need(first.annotations)
    return GroupTopology(whole, size=size, segment=segment, problems=problems + wrong)


def segment_of(pod: views.Pod) -> str:
    """Return the segment that a pod belongs to by its index; ``""`` for none."""
    if not states_topology(pod.annotations):
        return ""
    slices = names.PODSET_SLICE_REQUIRED in pod.annotations
    text = pod.annotations.get(names.PODSET_SLICE_SIZE if slices else names.SEGMENT_SIZE_KAI, "")
    index = next((pod.labels[label] for label in INDEXES if label in pod.labels), "")
    if not all(number.isascii() and number.isdigit() and len(number) < 7 for number in (text, index)):
        return ""
    return f"{SEGMENT}{int(index) // int(text)}" if int(text) else ""


def applied(group: Group, constraint: GroupTopology, pods: Iterable[views.Pod]) -> Group:
    """Return the group with its constraint. It is held if the constraint is invalid."""
    if constraint.problems:
        return altered(group, held=True)
    if constraint.size and not group.subgroups:
        counts: dict[str, int] = {}
        for pod in pods:
            if name := segment_of(pod):
                counts[name] = counts.get(name, 0) + 1
        parts = tuple(
            SubGroup(name, min_members=min(constraint.size, counts[name]), topology=constraint.segment)
            for name in sorted(counts, key=lambda each: (len(each), each))
        )
        least = min(len(parts), -(-group.min_member // constraint.size))
        return altered(
            group, topology=constraint.whole, subgroups=parts, min_subgroups=least if parts else None
        )
    subgroups = group.subgroups
    if constraint.parts:
        subgroups = tuple(
            replace(part, topology=constraint.parts[part.name]) if part.name in constraint.parts else part
            for part in subgroups
        )
    return altered(group, topology=constraint.whole, subgroups=subgroups)
