"""Remedies: sentences and commands that would let a pending group start."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from windlass.api.reasons import Reason, SuggestedChange, SuggestedChangeKind
from windlass.engine.diagnosis import ending_tasks
from windlass.engine.diagnosis.device_advice import advice_on_devices
from windlass.engine.diagnosis.domain_diagnosis import DomainDiagnosis
from windlass.engine.diagnosis.limit_remedies import KAI, object_name
from windlass.engine.diagnosis.messages import count
from windlass.engine.diagnosis.node_diagnosis import NodeDiagnosis
from windlass.engine.diagnosis.partitioning import MIG, missing_slices
from windlass.engine.diagnosis.unreadable_labels import label_remedies
from windlass.engine.groups.entries import GroupEntry, NextTasks
from windlass.engine.groups.next_step import Shortage, next_step
from windlass.engine.nodes.table import PODS
from windlass.engine.queueing.enqueue import closed_reason
from windlass.engine.state.cluster_state import ClusterState
from windlass.spi.objects import Dialect
from windlass.spi.quantities import from_units
from windlass.spi.topology import HOSTNAME, NODE_NAME

_RETURNS = {
    Reason.NODE_UNSCHEDULABLE: "Uncordon nodes: windlass node uncordon",
    Reason.NODE_NOT_READY: "See why nodes are not ready: kubectl describe node",
}
"""State of nodes → command for them."""
_MAX_NAMED = 8
"""Maximum number of nodes that a remedy names."""


def remedies_for(
    codes: Sequence[Reason],
    group: GroupEntry,
    state: ClusterState,
    diagnoses: Sequence[NodeDiagnosis],
    step: NextTasks | Shortage | None,
) -> tuple[str, ...]:
    """Return one or two remedies per blocker, in the order of the blockers."""
    remedies: list[str] = []
    for code in codes:
        remedies += _queue_remedies(code, group, state)
        remedies += _node_remedies(code, state, diagnoses)
        if code is Reason.WAITING_FOR_MEMBERS and isinstance(step, Shortage) and group.group is not None:
            what = f"minTaskMember of {step.role}" if step.role else group.spec.minimum_name
            if step.subgroup:
                what = f"the minimum of sub-group {step.subgroup}"
            if step.counts_subgroups:
                remedies.append(_complete_subgroups(step, group))
            elif step.available:
                remedies.append(f"Create the missing pods, or lower {what} to {step.available}.")
            else:
                remedies.append(f"Create the {step.needed} pods: the creator of the group has not done so.")
        if code is Reason.SCHEDULING_GATED:
            remedies.append("Remove the scheduling gates (spec.schedulingGates) from the pods.")
        if code is Reason.BEHIND_IN_QUEUE and group.group is not None and not group.timed:
            remedies.append(
                "State how long it runs (windlass run --time, runningEstimate), so that it may go first."
            )
        if code is Reason.ON_HOLD:
            remedies.append("Release it.")
        if code is Reason.EXCEEDS_CLUSTER and not any(v.never is code for v in diagnoses):
            remedies.append(f"Ask for less at once (lower {group.spec.minimum_name}), or add nodes.")
    remedies[:0] = [each for diagnosis in diagnoses for each in label_remedies(diagnosis.unreadable)]
    for diagnosis in diagnoses:
        remedies += ending_tasks.remedies(diagnosis.ending)
    return tuple(dict.fromkeys(remedies))


def _complete_subgroups(shortage: Shortage, group: GroupEntry) -> str:
    """Return the remedy for too few sub-groups with all their pods."""
    name = shortage.subgroup.rstrip("/")
    field = "minSubGroup" if group.spec.dialect is Dialect.KAI else "minSubGroups"
    of_policy = f" of {name}" if name else ""
    missing = shortage.needed - shortage.available
    more = f"{missing} more sub-group{'' if missing == 1 else 's'}"
    return f"Create the pods of {more}{of_policy}, or lower {field}{of_policy} to {shortage.available}."


def domain_remedies(diagnosis: DomainDiagnosis, group: GroupEntry) -> tuple[str, ...]:
    """Return remedies for topology domains that do not hold the group."""
    remedies = []
    level = diagnosis.need.levels[diagnosis.need.required].shown
    if diagnosis.labels:
        labels = " ".join(f"{label}=VALUE" for label in diagnosis.labels)
        instead = (
            "name a label that nodes carry" if level == diagnosis.need.topology else "require another level"
        )
        remedies.append(f"Label nodes (kubectl label node NODE {labels}), or {instead}.")
    elif diagnosis.nearest is None and not group.held_members:
        remedies.append(f"Put nodes into a domain of {level}, or require a level that nodes are in.")
    for code, how in _RETURNS.items():
        names = [name for state, name in diagnosis.returning if state is code][:_MAX_NAMED]
        if names:
            remedies.append(f"{how} {' '.join(names)}.")
    if diagnosis.code is Reason.EXCEEDS_EVERY_DOMAIN:
        remedies += _for_every_domain(diagnosis, level)
    return tuple(remedies)


def _for_every_domain(diagnosis: DomainDiagnosis, level: str) -> list[str]:
    """Return remedies for pods that no domain would hold, not even an empty one.

    Nodes cannot be added to a domain that is one node.
    """
    label = diagnosis.need.levels[diagnosis.need.required].label
    most = diagnosis.held + diagnosis.ever
    fewer = count(most, "pod")
    if label == NODE_NAME:
        share = f"Let at most {fewer} share {diagnosis.subgroup}, or give" if most else "Give"
        return [
            f"Add a node that holds {count(diagnosis.held + diagnosis.wanted, 'pod')}, or ask for less per pod.",
            f"{share} each pod a claim of its own (resourceClaimTemplateName).",
        ]
    if not diagnosis.ever:
        return []
    if label == HOSTNAME:
        return [f"Ask for at most {fewer} at once, ask for less per pod, or add a larger node."]
    return [f"Ask for at most {fewer} at once, or add nodes to a domain of {level}."]


def tried_remedies(
    changes: Sequence[SuggestedChange], group: GroupEntry, domains: DomainDiagnosis | None
) -> tuple[str, ...]:
    """Return the remedies that state a change with which the group starts now."""
    coarser, smaller = [], []
    for change in changes:
        if (
            change.kind is SuggestedChangeKind.TOPOLOGY
            and domains is not None
            and domains.coarser is not None
        ):
            name, level = domains.coarser
            if level == change.wanted:
                coarser.append(f"Require {level} instead of {change.current}: {name} would hold it now.")
        if change.kind is SuggestedChangeKind.MIN_MEMBER and isinstance(next_step(group), NextTasks):
            smaller.append(f"With {group.spec.minimum_name} {change.wanted} it could start now.")
    return (*coarser, *smaller)


def _queue_remedies(code: Reason, group: GroupEntry, state: ClusterState) -> list[str]:
    queue = group.queue
    if queue is None:
        return []
    match code:
        case Reason.QUEUE_NOT_FOUND:
            missing = next((a.name for a in queue.path if a.missing), queue.name)
            usable = sorted(e.name for e in state.queues if closed_reason(e) is None)
            use = f", or use one that exists: {', '.join(usable[:8])}" if usable else ""
            kai = group.group is not None and group.group.dialect is Dialect.KAI
            how = f"a Queue {object_name(missing)} of {KAI}/v2" if kai else f"windlass queue create {missing}"
            return [f"Create it: {how}{use}."]
        case Reason.QUEUE_CLOSED:
            closed = next((a.name for a in queue.path if a.spec.state != "Open"), queue.name)
            return [f"Open the queue: windlass queue set {closed} state=Open."]
        case Reason.QUEUE_NOT_LEAF:
            leaves = sorted(e.name for e in state.queues if queue in e.path and closed_reason(e) is None)
            return [f"Use a queue below it: {', '.join(leaves[:8])}."] if leaves else []
    return []


def _missing_resources(diagnosis: NodeDiagnosis, state: ClusterState) -> list[str]:
    """Return remedies for resources that no node has: a typo, or a missing device plugin."""
    total, remedies = state.table.total, []
    for name, units in diagnosis.cls.node_items:
        if units and not total.get(name) and name == PODS:
            remedies.append("Set status.allocatable.pods: no node reports how many pods it may hold.")
        elif (
            units
            and not total.get(name)
            and MIG in name
            and missing_slices(state, diagnosis.cls, diagnosis.matching)
        ):
            profile = name.partition(MIG)[2]
            remedies.append(
                f"Request a share of a GPU in place of {name}, or add a node with a GPU in MIG mode that has "
                f"profile {profile}."
            )
        elif units and not total.get(name):
            similar = difflib.get_close_matches(
                name, sorted(other for other, has in total.items() if has), 1, 0.8
            )
            remedies.append(
                f"No node has any {name}: did you mean {similar[0]}?"
                if similar
                else f"No node has any {name}: correct the name, or add a node that has it."
            )
    return remedies


def _no_nodes(diagnosis: NodeDiagnosis) -> list[str]:
    """Return the remedy for a cluster without nodes; then no selector is the cause."""
    if diagnosis.nodes:
        return []
    return [
        "Add a node: the cluster has none. If the node of a single machine was deleted, its agent registers "
        "it again within 5 minutes."
    ]


def _spread_remedies(diagnosis: NodeDiagnosis) -> list[str]:
    """Return remedies for spread constraints with a label that no node has."""
    labels = [
        blocker.detail.removeprefix("no label ")
        for blocker in diagnosis.blockers
        if blocker.code is Reason.TOPOLOGY_SPREAD_CONFLICT and blocker.nodes == diagnosis.nodes
    ]
    return [
        f"Label nodes (kubectl label node NODE {label}=VALUE), or spread by a label that nodes carry."
        for label in labels
    ]


def _smaller_pod_or_larger_node(diagnosis: NodeDiagnosis, state: ClusterState) -> list[str]:
    """Return remedies for a pod that exceeds every node."""
    largest = dict(diagnosis.largest)
    remedies = [
        f"Ask for at most {from_units(name, largest[name])} {name} per pod."
        for name, units in diagnosis.cls.items
        if units > largest.get(name, 0) > 0
    ]
    if diagnosis.limited_by_numa:
        policy = diagnosis.cls.needs.zones and diagnosis.cls.needs.zones.policy
        remedies += [f"Ask for another NUMA policy than {policy}, or for none."] if policy else []
        remedies.append(
            "Ask for less per pod, or for several containers that fit into NUMA zones of their own."
        )
    missing = _missing_resources(diagnosis, state)
    remedies += missing
    return remedies + (
        advice_on_devices(diagnosis, state) or ([] if missing else ["Add a node that is large enough."])
    )


def _fewer_or_more_nodes(pods: int, rule: str) -> str:
    """Return the remedy for more pods than the nodes hold. ``rule``: by which they exclude one another."""
    if rule.startswith("claim "):
        return f"Ask for at most {pods} pods at once, or give each pod a claim of its own."
    return f"Ask for at most {pods} pods at once, or add nodes{f', or remove its {rule}' if rule else ''}."


def _node_remedies(
    code: Reason,
    state: ClusterState,
    diagnoses: Sequence[NodeDiagnosis],
) -> list[str]:
    """Return remedies for nodes."""
    remedies = []
    for diagnosis in diagnoses:
        if code not in (diagnosis.never, diagnosis.now):
            continue
        match code:
            case Reason.EXCEEDS_EVERY_NODE:
                remedies += _smaller_pod_or_larger_node(diagnosis, state)
            case Reason.EXCEEDS_CLUSTER:
                remedies.append(_fewer_or_more_nodes(diagnosis.ever, diagnosis.rule))
            case Reason.NO_MATCHING_NODE:
                remedies += (
                    _no_nodes(diagnosis)
                    or _spread_remedies(diagnosis)
                    or ["Change the selectors, affinities or tolerations, or add a node that satisfies them."]
                )
            case Reason.NODE_NOT_READY:
                remedies.append("See why nodes are not ready: windlass node ls, kubectl describe node NODE.")
            case Reason.NODE_UNSCHEDULABLE:
                remedies.append("Uncordon nodes: windlass node ls, windlass node uncordon NODE.")
            case Reason.CLAIM_UNAVAILABLE:
                remedies += [
                    f"Look at the claim: kubectl -n {namespace} describe pvc {name}"
                    for volume in diagnosis.cls.needs.volumes
                    if volume.fault or volume.exclusive
                    for namespace, _, name in (volume.claim.partition("/"),)
                ]
            case Reason.VOLUME_UNAVAILABLE:
                remedies.append(
                    "Free capacity on the nodes that have access to its volume, or remove what excludes them."
                )
            case Reason.NUMA_ALIGNMENT_FAILED:
                remedies.append("With less per pod it may fit into the free part of the NUMA zones.")
    return remedies
