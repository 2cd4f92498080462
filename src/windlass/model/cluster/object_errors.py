"""Explanations from the translation: errors of objects, with their fields."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from windlass.api import annotations as names
from windlass.api.errors import FieldError
from windlass.api.generated_names import without_uid
from windlass.api.reasons import Blocker, Explanation, Reason
from windlass.api.resources import COSCHEDULING_POD_GROUPS
from windlass.model.cluster.ownership import KAI, VOLCANO, ForeignGroup
from windlass.model.devices.reserved_devices import NAMESPACE
from windlass.model.groups import podgroups

_SHOWN = 3
_NAMED_IN = {
    "": ("PodGroup", "annotation scheduling.k8s.io/group-name"),
    podgroups.KAI: ("PodGroup", "annotation pod-group-name"),
    podgroups.NATIVE: ("PodGroup", "field spec.schedulingGroup.podGroupName"),
    podgroups.COSCHEDULING: (
        f"PodGroup ({COSCHEDULING_POD_GROUPS.api_version})",
        f"label {names.GROUP_NAME_COSCHEDULING}",
    ),
}
"""Kind of a group's object, and the field of a pod that names it."""
_PEERS = {VOLCANO: "Volcano", KAI: "KAI"}


def misconfigured(group: str, faults: Mapping[str, Sequence[FieldError]]) -> Explanation:
    """Return the explanation of invalid fields.

    ``faults``: ``"pod ns/name"`` or ``"PodGroup ns/name"`` → its invalid fields.
    """
    blockers = [
        Blocker(Reason.MISCONFIGURED, detail=f"{what}: {problem.field}: {problem.message}")
        for what, problems in sorted(faults.items())
        for problem in problems
    ]
    first = "; ".join(_unique(blocker.detail for blocker in blockers[:_SHOWN]))
    more = f"; and {len(blockers) - _SHOWN} more" if len(blockers) > _SHOWN else ""
    fields = sorted({problem.field for problems in faults.values() for problem in problems})
    return Explanation(
        code=Reason.MISCONFIGURED,
        message=f"{first}{more}",
        blockers=tuple(blockers),
        remedies=(
            f"correct {', '.join(fields[:_SHOWN])} where {without_uid(group)} is defined and create it again",
        ),
    )


def group_missing(group: str, pods: int) -> Explanation:
    """Return the explanation of pods that name a PodGroup (by its key) which does not exist."""
    kind, place = _NAMED_IN[podgroups.kind_prefix(group)]
    group = podgroups.shown_key(group)
    return Explanation(
        code=Reason.WAITING_FOR_MEMBERS,
        message=f"{kind} {group} does not exist; {_count(pods, 'pod')} that name it wait for it",
        blockers=(Blocker(Reason.WAITING_FOR_MEMBERS, detail=f"{kind} {group} not found"),),
        remedies=(f"create {kind} {group}, or correct the pods' {place}",),
    )


def not_migrated(group: str, foreign: ForeignGroup, pods: int, *, marked: bool) -> Explanation:
    """Return the explanation of Windlass' pods in a PodGroup of another scheduler.

    No scheduler places such pods. ``marked``: the queue has been handed over, and the
    group will follow unless it has to stay.
    """
    kind, _ = _NAMED_IN[podgroups.kind_prefix(group)]
    owner = _PEERS[foreign.kind]
    decides = f"{owner} decides on {kind} {podgroups.shown_key(group)}"
    names_it = f"{_count(pods, 'pod')} of it that {'names' if pods == 1 else 'name'} schedulerName windlass"
    other = f"or have {owner} place it: schedulerName: {foreign.scheduler} in its pod template"
    if marked:
        return Explanation(
            code=Reason.WAITING_FOR_MEMBERS,
            message=f"{decides}, which is not handed over yet, though its queue {foreign.queue} is; {names_it} "
            f"{'waits' if pods == 1 else 'wait'} for that",
            blockers=(Blocker(Reason.WAITING_FOR_MEMBERS, detail=f"{decides}, of queue {foreign.queue}"),),
            remedies=("check the cause, and whether the Windlass controllers run: windlass doctor", other),
        )
    return Explanation(
        code=Reason.MISCONFIGURED,
        message=f"{decides}, since its queue {foreign.queue} is not handed over to Windlass; no scheduler places "
        f"{names_it}",
        blockers=(Blocker(Reason.MISCONFIGURED, detail=f"{decides}, of queue {foreign.queue}"),),
        remedies=(
            f"hand the queue over: windlass install --adopt {foreign.kind} -q {foreign.queue}",
            other,
        ),
    )


def group_awaited(pod: str) -> Explanation:
    """Return the explanation of a pod before the controller creates its PodGroup."""
    return Explanation(
        code=Reason.WAITING_FOR_MEMBERS,
        message=f"pod {pod} waits for the PodGroup that the PodGroup controller creates for it",
        remedies=("check that the Windlass controllers run: windlass status",),
    )


_LACKS_CAPACITY = (
    Reason.EXCEEDS_CLUSTER,
    Reason.EXCEEDS_EVERY_NODE,
    Reason.NO_MATCHING_NODE,
    Reason.INSUFFICIENT_RESOURCES,
    Reason.DEVICES_FRAGMENTED,
)


def devices_rejected(explanation: Explanation, refusing: Mapping[str, str]) -> Explanation:
    """Return the explanation of a share request while some nodes cannot reserve devices.

    It replaces ``explanation`` only if that states a lack of capacity. ``refusing``:
    node → reason.
    """
    if explanation.code not in _LACKS_CAPACITY:
        return explanation
    texts = [f"node {node}: {why}" for node, why in sorted(refusing.items())]
    more = f"; and {len(texts) - _SHOWN} more" if len(texts) > _SHOWN else ""
    return Explanation(
        code=Reason.BIND_FAILED,
        message=f"GPUs could not be reserved for sharing and are excluded for now: {'; '.join(texts[:_SHOWN])}{more}",
        blockers=(*(Blocker(Reason.BIND_FAILED, detail=text) for text in texts), *explanation.blockers),
        remedies=(f"look at the reservation pods: kubectl -n {NAMESPACE} get pods,events",),
        nodes_considered=explanation.nodes_considered,
    )


_AWAITED = {
    Reason.RESERVING_DEVICE: (
        "waits for the kubelet to name the shared GPU",
        f"look at the reservation pod: kubectl -n {NAMESPACE} get pods",
    ),
    Reason.AWAITING_VOLUME: (
        "waits for its volumes to be provisioned",
        "look at the claim (kubectl describe pvc) and at the provisioner of its volumes",
    ),
    Reason.AWAITING_DEVICE: (
        "waits for its devices to be prepared",
        "look at the conditions of the claim (kubectl get resourceclaim -o yaml) and at the driver of the device",
    ),
    Reason.AWAITING_NODE_LOCK: (
        "waits until HAMi's device plugin on the node is done with another pod",
        "if this persists, look at that pod (kubectl describe pod) and at HAMi's device plugin on the node",
    ),
}


def awaited(group: str, waiting: Sequence[Mapping[Reason, str]]) -> Explanation:
    """Return the explanation of a group with selected nodes that waits to be bound.

    ``waiting``: per pod, what it waits for. Only the first kind of reason is shown,
        devices first.
    """
    code = next(code for code in _AWAITED if any(code in reasons for reasons in waiting))
    text, remedy = _AWAITED[code]
    first = _unique(reasons[code] for reasons in waiting if code in reasons)
    more = f"; and {len(first) - _SHOWN} more" if len(first) > _SHOWN else ""
    return Explanation(
        code=code,
        message=f"nodes are selected for {group}, binding {text}: {'; '.join(first[:_SHOWN])}{more}",
        blockers=tuple(Blocker(code, detail=reasons) for reasons in first),
        remedies=(remedy,),
    )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _unique(texts: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(texts))
