"""Automatic PodGroup of a bare pod.

A pod that another operator created is in the group of its top owner, with the size that
:mod:`windlass.jobs.owners` reads there. For other pods the rules are Volcano's.

A pod of scheduler ``volcano`` without a group gets ``podgroup-<uid of its controller,
or its own>``. Pods of one controller share it. The group is owned by that controller or
the pod, so garbage collection deletes it with the last of them. The group is created
first, then the pod is annotated with it.

Fields are set as in Volcano:

* minimum member: 1, or ``scheduling.volcano.sh/group-min-member`` (read from the pod
  itself);
* minimum resources: requests of that number of pods like this one, or
  ``…/group-min-resources`` (JSON);
* priority class: the pod's;
* queue: annotation ``scheduling.volcano.sh/queue-name`` of the pod, or else of its
  namespace.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from windlass.api import annotations as names
from windlass.api.quantities import QuantityError, from_units, to_vector
from windlass.api.resources import POD_GROUPS, PODS
from windlass.api.views import PodGroup, decode_pod
from windlass.client.event_correlator import ObjectRef
from windlass.controllers.effects import (
    NOTHING,
    Create,
    EffectPlan,
    Effects,
    EmitEvent,
    Patch,
    controller_of,
    controller_reference,
    reference,
)
from windlass.jobs.owners.decision import OwnerGroup

Json = dict[str, Any]
SCHEDULER = "volcano"
MIN_MEMBER = "scheduling.volcano.sh/group-min-member"
MIN_RESOURCES = "scheduling.volcano.sh/group-min-resources"
_TOPOLOGY_MODE = "volcano.sh/network-topology-mode"
_TOPOLOGY_TIER = "volcano.sh/network-topology-highest-tier"
_ANNOTATIONS = (
    names.PREEMPTABLE,
    "volcano.sh/cooldown-time",
    "volcano.sh/revocable-zone",
    names.QUEUED_SINCE,
    names.EVICTED_FOR,
)
_LABELS = (names.PREEMPTABLE, "volcano.sh/cooldown-time")
_BUDGETS = ("volcano.sh/jdb-min-available", "volcano.sh/jdb-max-unavailable")


@dataclass(frozen=True, slots=True)
class PodGroupSnapshot:
    """Observations about a pod.

    ``exists``: its group exists.
    ``namespace_queue``: queue annotation of the namespace, or ``""``.
    ``owned``: group of its top owner; ``None`` if Volcano's rules apply.
    ``grouped_by``: text of the existing group about its owner and size.
    """

    exists: bool
    namespace_queue: str = ""
    owned: OwnerGroup | None = None
    grouped_by: str = ""


def needs_group(pod: Json, *, owned: bool = False) -> bool:
    """Return whether the pod needs an automatic group. ``owned``: its top owner decides."""
    metadata, status = pod["metadata"], pod.get("status") or {}
    annotations = metadata.get("annotations") or {}
    return (
        (owned or (pod.get("spec") or {}).get("schedulerName") == SCHEDULER)
        and not (annotations.get(names.GROUP_NAME) or annotations.get(names.GROUP_NAME_VOLCANO))
        and not metadata.get("deletionTimestamp")
        and not _gets_a_group(pod)
        and status.get("phase") not in ("Succeeded", "Failed")
    )


def _gets_a_group(pod: Json) -> bool:
    """Return whether the controller of LeaderWorkerSets is about to write the group of a pod."""
    return any(
        gate.get("name") == names.LWS_GATE for gate in (pod.get("spec") or {}).get("schedulingGates") or ()
    )


def group_name(pod: Json, owned: OwnerGroup | None = None) -> str:
    """Return the name of the pod's automatic group."""
    if owned is not None:
        subject = owned.owner if owned.owner is not None else pod
        part = f"-{owned.suffix}" if owned.suffix else ""
        return f"podgroup-{subject['metadata']['uid']}{part}"
    owner = controller_of(pod)
    return f"podgroup-{owner['uid'] if owner else pod['metadata']['uid']}"


def reconcile(pod: Json, observed: PodGroupSnapshot) -> Effects:
    """Reconcile one pod. Pure."""
    owned = observed.owned
    if not needs_group(pod, owned=owned is not None):
        return NOTHING
    plan = EffectPlan(about=reference(PODS, pod))
    metadata = pod["metadata"]
    name = group_name(pod, owned)
    if not observed.exists:
        group = _group(pod, name, observed.namespace_queue, plan)
        if owned is not None:
            _by_owner(group, pod, owned, plan)
        plan.stage(Create(POD_GROUPS, group))
    elif owned is not None and MIN_MEMBER not in (metadata.get("annotations") or {}):
        plan.stage(*resize(name, metadata["namespace"], observed.grouped_by, owned))
    patch = {"metadata": {"annotations": {names.GROUP_NAME: name}}}
    plan.stage(Patch(PODS, metadata["name"], patch, metadata["namespace"], uid=metadata["uid"]))
    return plan.done()


def _group(pod: Json, name: str, namespace_queue: str, plan: EffectPlan) -> Json:
    metadata = pod["metadata"]
    annotations: Mapping[str, str] = metadata.get("annotations") or {}
    labels: Mapping[str, str] = metadata.get("labels") or {}
    least = _min_member(annotations, plan)
    spec: Json = {
        "minMember": least,
        "queue": annotations.get(names.QUEUE_NAME_VOLCANO) or namespace_queue or "default",
        "minResources": _min_resources(pod, annotations, least, plan),
    }
    if pod["spec"].get("priorityClassName"):
        spec["priorityClassName"] = pod["spec"]["priorityClassName"]
    topology = _topology(annotations)
    if topology:
        spec["networkTopology"] = topology
    copied = {key: annotations[key] for key in _ANNOTATIONS if key in annotations}
    budget = next((key for key in _BUDGETS if key in annotations), None)
    if budget is not None:
        copied[budget] = annotations[budget]
    return {
        "apiVersion": POD_GROUPS.api_version,
        "kind": POD_GROUPS.kind,
        "metadata": {
            "name": name,
            "namespace": metadata["namespace"],
            "annotations": copied,
            "labels": {key: labels[key] for key in _LABELS if key in labels},
            "ownerReferences": _owners(pod),
        },
        "spec": spec,
    }


def _by_owner(group: Json, pod: Json, owned: OwnerGroup, plan: EffectPlan) -> None:
    """Write the owner's size, queue and class into a new group, in place."""
    metadata, spec = group["metadata"], group["spec"]
    annotations = pod["metadata"].get("annotations") or {}
    if MIN_MEMBER not in annotations:
        spec["minMember"] = owned.min_member
    if MIN_RESOURCES not in annotations:
        del spec["minResources"]  # the pods of an owner may differ
    if priority := owned.priority_class or spec.get("priorityClassName") or owned.owner_class:
        spec["priorityClassName"] = priority
    own_queue = annotations.get(names.QUEUE_NAME_VOLCANO) or _queue_label(pod)
    if queue := owned.queue or own_queue or owned.owner_queue:
        spec["queue"] = queue
    if owned.subgroups and MIN_MEMBER not in annotations:
        spec["subGroupPolicy"] = [part.policy for part in owned.subgroups]
    if owned.tier is not None:
        spec["networkTopology"] = {"mode": "hard", "highestTierAllowed": owned.tier}
    for problem in owned.problems:
        _warn(plan, problem, "GroupedByDefault")
    if owned.owner is None:
        metadata["ownerReferences"] = [controller_reference(PODS, pod)]
        return
    owner = owned.owner
    metadata["ownerReferences"] = [
        {
            "apiVersion": owner["apiVersion"],
            "kind": owner["kind"],
            "name": owner["metadata"]["name"],
            "uid": owner["metadata"]["uid"],
            "controller": True,
        }
    ]
    if MIN_MEMBER in annotations:
        owned = replace(owned, min_member=spec["minMember"], source=f"annotation {MIN_MEMBER}", subgroups=())
    metadata["annotations"] |= _told(owned)


def _told(owned: OwnerGroup) -> dict[str, str]:
    """Return the annotations that tell by which rule a group was made."""
    record = msgspec.json.encode(owned.record).decode()
    return {names.GROUPED_BY: owned.text, names.GROUPING_RULE: record}


def _queue_label(pod: Json) -> str:
    labels = pod["metadata"].get("labels") or {}
    return labels.get(names.QUEUE_NAME_KAI) or labels.get(names.QUEUE_NAME_LABEL) or ""


def resize(name: str, namespace: str, present: str, owned: OwnerGroup) -> tuple[Patch, ...]:
    """Return the write that gives an existing group the size that its owner states now, if it differs.

    ``present``: text of the group about its owner and size.
    """
    if owned.owner is None or present == owned.text or MIN_MEMBER in present:
        return ()
    policies = [part.policy for part in owned.subgroups] or None
    change = {
        "metadata": {"annotations": _told(owned)},
        "spec": {"minMember": owned.min_member, "subGroupPolicy": policies},
    }
    return (Patch(POD_GROUPS, name, change, namespace),)


def _owners(pod: Json) -> list[Json]:
    """Return the pod's owners if it has a controller, else the pod itself."""
    if controller_of(pod) is not None:
        return list(pod["metadata"]["ownerReferences"])
    return [controller_reference(PODS, pod)]


def _min_member(annotations: Mapping[str, str], plan: EffectPlan) -> int:
    text = annotations.get(MIN_MEMBER)
    if text is None:
        return 1
    if not (text.isascii() and text.isdecimal()):
        _warn(plan, f"annotation {MIN_MEMBER}: {text!r} is not a whole number of at least 0; 1 is used")
        return 1
    return int(text)


def _min_resources(pod: Json, annotations: Mapping[str, str], least: int, plan: EffectPlan) -> Json:
    text = annotations.get(MIN_RESOURCES)
    if text is not None:
        try:
            wanted = msgspec.json.decode(text, type=dict[str, str | int | float])
            to_vector(wanted)
        except (msgspec.DecodeError, QuantityError) as error:
            _warn(plan, f"annotation {MIN_RESOURCES}: {error}; the pod's own requests are used")
        else:
            return {name: str(amount) for name, amount in wanted.items()}
    shape = decode_pod(msgspec.json.encode(pod)).shape
    return {name: from_units(name, units * least) for name, units in sorted(shape.request.items())}


def _topology(annotations: Mapping[str, str]) -> Json | None:
    mode, tier = annotations.get(_TOPOLOGY_MODE), annotations.get(_TOPOLOGY_TIER)
    if mode is None and tier is None:
        return None
    topology: Json = {"mode": "soft" if (mode or "").lower() == "soft" else "hard"}
    if tier is not None and tier.isascii() and tier.isdecimal():
        topology["highestTierAllowed"] = int(tier)
    return topology


def _warn(plan: EffectPlan, message: str, reason: str = "InvalidAnnotation") -> None:
    assert plan.about is not None
    plan.event(EmitEvent(plan.about, "Warning", reason, message, lasting=True))


def warn_about_missing_class(group: PodGroup, classes: Container[str]) -> Effects:
    """Warn about a group with a missing PriorityClass: it counts as priority 0."""
    wanted = group.priority_class
    if not wanted or wanted in classes or group.deleted:
        return NOTHING
    message = f"PriorityClass {wanted} does not exist: the group has priority 0. Create it or change priorityClassName"
    about = ObjectRef(POD_GROUPS.api_version, POD_GROUPS.kind, group.namespace, group.name, group.uid)
    return Effects(events=(EmitEvent(about, "Warning", "PriorityClassNotFound", message, lasting=True),))
