"""How near to one another the pods of a group are to be: from its object, else from what its pods say.

An object speaks Volcano's or KAI's words. Pods speak KAI's or Kueue's annotations; all pods of a gang that say
anything have to say the same. Segments (KAI) and slices (Kueue) divide a gang without sub-groups into neighbours
by index.
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

WORDS = (
    names.TOPOLOGY_KAI,
    names.PODSET_REQUIRED,
    names.PODSET_PREFERRED,
    names.PODSET_SLICE_REQUIRED,
    names.SEGMENT_SIZE_KAI,
)
_SAID = (
    *WORDS,
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
_WORDS = frozenset(WORDS)


@dataclass(frozen=True, slots=True)
class GroupTopology:
    """What a group asks for: as a whole, by part (of KAI), and in neighbours of ``size`` by index (0: in none)."""

    whole: TopologyNeed | None = None
    parts: Mapping[str, TopologyNeed] = field(default_factory=dict)
    size: int = 0
    segment: TopologyNeed | None = None
    problems: tuple[FieldError, ...] = ()

    @property
    def asks(self) -> bool:
        return bool(self.whole or self.parts or self.size or self.problems)


def speaks(annotations: Mapping[str, str]) -> bool:
    """Return whether a pod's annotations say anything about it."""
    return not _WORDS.isdisjoint(annotations)


def of_pod_group(view: views.PodGroup, book: TopologyIndex) -> GroupTopology:
    """What a PodGroup of Volcano asks for."""
    policies = view.subgroup_policies
    if view.topology is None and not any(policy.topology for policy in policies):
        return GroupTopology()
    anchor = view.annotations.get(names.ALLOCATED_HYPERNODE, "")
    whole, problems = book.network(view.topology, "spec.networkTopology", anchor)
    return GroupTopology(whole, problems=problems + _of_policies(view, book)[1])


def of_policies(view: views.PodGroup, book: TopologyIndex) -> dict[str, TopologyNeed]:
    """Policy → what it asks for each part that it makes."""
    return _of_policies(view, book)[0] if view.subgroup_policies else {}


def _of_policies(
    view: views.PodGroup, book: TopologyIndex
) -> tuple[dict[str, TopologyNeed], tuple[FieldError, ...]]:
    parts: dict[str, TopologyNeed] = {}
    problems: tuple[FieldError, ...] = ()
    for at, policy in enumerate(view.subgroup_policies):
        need, wrong = book.network(policy.topology, f"spec.subGroupPolicy[{at}].networkTopology")
        problems += wrong
        if need is not None:
            parts[policy.name] = need
    return parts, problems


def of_kai_group(view: views.KaiPodGroup, book: TopologyIndex) -> GroupTopology:
    """What a PodGroup of KAI asks for."""
    if view.topology is None and not any(part.topology_constraint for part in view.subgroups):
        return GroupTopology()
    whole, problems = book.constraint(view.topology, "spec.topologyConstraint")
    parts: dict[str, TopologyNeed] = {}
    for at, part in enumerate(view.subgroups):
        field_ = f"spec.subGroups[{at}].topologyConstraint"
        need, wrong = book.constraint(part.topology_constraint, field_)
        problems += wrong
        if need is not None:
            parts[part.name] = need
    return GroupTopology(whole, parts, problems=problems)


def of_pods(pods: Iterable[views.Pod], book: TopologyIndex) -> GroupTopology:
    """What the pods of a gang say."""
    said: dict[tuple[tuple[str, str], ...], views.Pod] = {}
    for pod in sorted(pods, key=lambda each: each.name):
        if speaks(pod.annotations):
            words = tuple((word, pod.annotations[word]) for word in _SAID if word in pod.annotations)
            said.setdefault(words, pod)
    if not said:
        return GroupTopology()
    first, *others = said.values()
    if others:
        words = f"pods {first.name} and {others[0].name} of one gang ask for different topologies"
        return GroupTopology(problems=(FieldError("metadata.annotations", words),))
    whole, problems = book.words(first.annotations)
    size, segment, wrong = book.parts(first.annotations)
    return GroupTopology(whole, size=size, segment=segment, problems=problems + wrong)


def segment_of(pod: views.Pod) -> str:
    """The segment that a pod belongs to by its index; ``""`` for none."""
    if not speaks(pod.annotations):
        return ""
    slices = names.PODSET_SLICE_REQUIRED in pod.annotations
    text = pod.annotations.get(names.PODSET_SLICE_SIZE if slices else names.SEGMENT_SIZE_KAI, "")
    index = next((pod.labels[label] for label in INDEXES if label in pod.labels), "")
    if not all(number.isascii() and number.isdigit() and len(number) < 7 for number in (text, index)):
        return ""
    return f"{SEGMENT}{int(index) // int(text)}" if int(text) else ""


def applied(group: Group, near: GroupTopology, pods: Iterable[views.Pod]) -> Group:
    """The group with what it asks for; held, if that cannot be told."""
    if near.problems:
        return altered(group, held=True)
    if near.size and not group.subgroups:
        counts: dict[str, int] = {}
        for pod in pods:
            if name := segment_of(pod):
                counts[name] = counts.get(name, 0) + 1
        parts = tuple(
            SubGroup(name, min_members=min(near.size, counts[name]), topology=near.segment)
            for name in sorted(counts, key=lambda each: (len(each), each))
        )
        least = min(len(parts), -(-group.min_member // near.size))
        return altered(group, topology=near.whole, subgroups=parts, min_subgroups=least if parts else None)
    subgroups = group.subgroups
    if near.parts:
        subgroups = tuple(
            replace(part, topology=near.parts[part.name]) if part.name in near.parts else part
            for part in subgroups
        )
    return altered(group, topology=near.whole, subgroups=subgroups)
