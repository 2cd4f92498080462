"""Sentences of explanations. Each has numbers and stands alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from windlass.api.reasons import FACTS, UNPREEMPTIBLE, Blocker, Reason
from windlass.engine.diagnosis.device_messages import describe_need
from windlass.engine.groups.next_step import Shortage
from windlass.kits import durations
from windlass.spi.plugins import NodeBlocker, Rejection
from windlass.spi.quantities import from_units

if TYPE_CHECKING:
    from windlass.engine.diagnosis.node_diagnosis import NodeDiagnosis
    from windlass.engine.feasibility.task_class import TaskClass

PODS = "pods"
_NAMED = 4
"""Maximum number of sub-groups that a sentence names."""
_PER_NODE = {
    Reason.NODE_SELECTOR_MISMATCH: "do not match the node selector",
    Reason.NODE_AFFINITY_MISMATCH: "do not match the required node affinity",
    Reason.TAINT_NOT_TOLERATED: "have a taint that is not tolerated",
    Reason.NODE_UNSCHEDULABLE: "are cordoned",
    Reason.NODE_NOT_READY: "are not ready",
    Reason.POD_AFFINITY_MISMATCH: "are outside the pod affinity's domain",
    Reason.POD_ANTI_AFFINITY_CONFLICT: "are excluded by pod anti-affinity",
    Reason.HOST_PORT_TAKEN: "have the host port in use",
    Reason.TOO_MANY_PODS: "are at the limit of pods",
    Reason.VOLUME_UNAVAILABLE: "have no access to a required volume",
    Reason.CLAIM_UNAVAILABLE: "are unusable without the claim",
    Reason.TOPOLOGY_SPREAD_CONFLICT: "are excluded by the topology spread constraints",
    Reason.NUMA_ALIGNMENT_FAILED: "have no NUMA zones that fit it",
    Reason.NO_SUITABLE_DEVICE: "have too few GPUs of the kind",
    Reason.DEVICE_SHARES_TAKEN: "have no GPU with as much left",
    Reason.NODE_OVERLOADED: "are loaded above the threshold",
    Reason.NODE_RESERVED: "are reserved for other work",
    Reason.REFUSED_BY_EXTENDER: "are rejected by the extender",
}

_SINGULAR = {"attach": "attaches", "do": "does", "have": "has", "are": "is", "lack": "lacks", "hold": "holds"}

_MAX_NUMA_DETAILS = 3


def count(n: int, noun: str) -> str:
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def short_meaning(code: Reason) -> str:
    return FACTS[code].meaning.rstrip(".").lower()


def resources(items: Sequence[tuple[str, int]]) -> str:
    """Return a text like ``1 nvidia.com/gpu, 4 cpu, 8Gi memory``; ``pods`` is left out."""
    texts = [f"{from_units(name, units)} {name}" for name, units in items if name != PODS]
    return ", ".join(texts) or "nothing in particular"


def request(cls: TaskClass) -> str:
    """Return the request of a task of the class; device shares in words."""
    if not cls.needs.devices:
        return resources(cls.items)
    plain = [item for item in cls.node_items if item[0] != PODS]
    return ", ".join(
        [*([resources(plain)] if plain else []), *(describe_need(need) for need in cls.needs.devices)]
    )


def unknown_group(key: str) -> str:
    return f"The group {key}, which its pods name, does not exist yet."


def bind_failed(failure: str, failures: int, seconds: float) -> str:
    retry = f"it is tried again in {max(1, round(seconds))} s"
    reason = failure.rstrip(".") or "no reason was given"
    return f"Starting it has failed {count(failures, 'time')} ({reason}); {retry}."


def behind_strict(holder: str) -> str:
    """Return the sentence for a strict order, where ``holder`` is first."""
    return f"It waits behind {holder}: in this order, no group passes the first."


def unknown_ends(running: str, others: int, learned: str) -> str:
    """Return a clause: no reservation is possible, because the end of these groups is unknown.

    ``others``: number of groups besides ``running``.
    ``learned``: earlier runs from which the run time was learned.
    """
    names = f"{running} and {others} more" if others else running
    verb = "end" if others else "ends"
    return (
        f"it is unknown when {names} {verb}: fewer than half of the earlier runs were within a factor of two of "
        f"their median (of {running} {learned})"
    )


def reserved(holder: str, estimate: float | None, learned: str = "") -> str:
    """Return the sentence for capacity that is reserved for ``holder``.

    ``estimate``: run time of the group in seconds, if known.
    ``learned``: earlier runs from which it was learned.
    """
    capacity_text = f"The nodes have capacity for it, but it is reserved for {holder}, which comes first"
    if estimate is None:
        return f"{capacity_text}; the run time of this group is unknown, so it may not pass."
    if learned:
        run_time = f"{estimate:.0f} s ({learned})"
        return f"{capacity_text}; this group, which may run for {run_time}, might not have ended by then."
    return f"{capacity_text}; this group, which runs for {estimate:.0f} s, might not have ended by then."


def suspended(times: int, ran_seconds: float, turn_seconds: float | None) -> str:
    """Return the sentence for a suspended time-sharing group.

    ``turn_seconds``: time until it may claim capacity again, if known.
    """
    count_text = "once" if times == 1 else f"{times} times"
    run_time = durations.write(ran_seconds)
    sentence = f"It shares time: it has run for {run_time} and was suspended {count_text} for others"
    if turn_seconds is None:
        return f"{sentence}; it runs again when one of them ends."
    next_turn = f"in {durations.write(turn_seconds)} at the earliest"
    return f"{sentence}; it runs again when one of them ends, or ranks below it, {next_turn}."


def outweighed(saved_seconds: float | None) -> str:
    """Return the sentence for a time-sharing group that may suspend no other group.

    The others would lose more than it would gain. ``saved_seconds``: time until one of
    them has its next checkpoint, if known.
    """
    sentence = (
        "It shares time: the groups that rank below it would lose more work by a suspension"
        " than its capacity is worth"
    )
    if saved_seconds is None:
        return f"{sentence}; none of them states its next checkpoint (windlass.dev/checkpoint-every)."
    return f"{sentence}; the next checkpoint of one of them is in {durations.write(saved_seconds)}."


def shortage(shortage: Shortage) -> str:
    of_subgroup = f" of role {shortage.role}" if shortage.role else ""
    if shortage.counts_subgroups:
        of_policy = f" of {shortage.subgroup.rstrip('/')}" if shortage.subgroup else ""
        ready = f"{shortage.available} of the {shortage.needed} sub-groups{of_policy} that it needs"
        return f"It has the pods of {ready}."
    if shortage.subgroup:
        of_subgroup = f" of sub-group {shortage.subgroup}"
    present = f"{shortage.available} of the {shortage.needed} pods{of_subgroup} that it needs"
    if shortage.available >= shortage.needed:
        verb = "is" if shortage.gated == 1 else "are"
        return f"{count(shortage.gated, 'pod')}{of_subgroup} {verb} held back by a scheduling gate."
    if shortage.gated:
        verb = "is" if shortage.gated == 1 else "are"
        return f"It has {present}; {shortage.gated} more {verb} held back by a scheduling gate."
    return f"It has {present}."


def after_subgroups(placed: Sequence[str], sentence: str) -> str:
    """Return the sentence for a sub-group that has no domain next to those placed before it."""
    names = f"sub-group{'' if len(placed) == 1 else 's'} {', '.join(placed[:_NAMED])}"
    more = f" and {len(placed) - _NAMED} more" if len(placed) > _NAMED else ""
    return f"With {names}{more} placed: {sentence}"


def minimum(short: Sequence[Blocker]) -> str:
    """Return the sentence for a gang that requires more than all nodes together have."""
    missing = ", ".join(f"{b.needed} {b.resource} (all nodes have {b.available})" for b in short)
    return f"Together its pods need at least {missing}."


def rejection(rejection: Rejection) -> str:
    if not rejection.resource:
        return (
            f"{FACTS[rejection.code].meaning.rstrip('.')}: {rejection.detail}."
            if rejection.detail
            else (FACTS[rejection.code].meaning)
        )
    needed = f"{from_units(rejection.resource, rejection.needed)} {rejection.resource}"
    available = from_units(rejection.resource, rejection.available)
    if UNPREEMPTIBLE in rejection.detail:
        if rejection.permanent:
            return (
                f"It needs {needed} at once and is not preemptible. Such work may hold at most the quota of "
                f"queue {rejection.queue}, which is {available}."
            )
        return (
            f"It needs {needed} and is not preemptible. Such work has {available} left of its quota "
            f"({rejection.detail})."
        )
    if rejection.permanent:
        return f"It needs {needed} at once, and queue {rejection.queue} may never hold more than {available}."
    if not rejection.queue:
        verb = "is" if available == "1" else "are"
        return f"It needs {needed}, and there {verb} {available} ({rejection.detail})."
    return f"It needs {needed}, and queue {rejection.queue} has {available} left ({rejection.detail})."


def nominations(tasks: Sequence[tuple[str, int]], *, present: bool) -> str:
    """Return the sentence for nominated capacity.

    ``tasks``: node → number of nominated tasks.
    ``present``: capacity on one of these nodes is still being released.
    """
    total = sum(n for _, n in tasks)
    texts = ", ".join(f"{n} on {name}" for name, n in tasks[:5])
    further = f" and {count(len(tasks) - 5, 'more node')}" if len(tasks) > 5 else ""
    sentence = f"Capacity is nominated for {count(total, 'pod')} ({texts}{further})"
    if present:
        return f"{sentence}; other pods there are still terminating."
    return (
        f"{sentence}; pods elsewhere are still terminating,"
        " and count in its queue or block these nodes until they are gone."
    )


def not_together(reached: int, members: int, *, near: bool = False) -> str:
    """Return the sentence for a gang that does not fit as a whole.

    ``near``: because of its topology.
    """
    manner = "within the required topology" if near else "at the same time"
    if reached >= members:
        return f"The {count(members, 'pod')} that must start together fit, but not {manner}."
    return f"Only {reached} of the {count(members, 'pod')} that must start together fit {manner}."


def never_together(fitting: int, members: int) -> str:
    """Return the sentence for a gang that no packing on empty nodes holds."""
    return (
        f"Only {fitting} of the {count(members, 'pod')} that must start together fit on the nodes even if "
        "these are empty."
    )


def next_pod_sentence(sentence: str) -> str:
    """Return what blocks one pod more than fit together."""
    return f"For one more: {sentence[0].lower()}{sentence[1:]}"


def nodes_sentence(
    diagnosis: NodeDiagnosis, findings: Sequence[NodeBlocker], more: Sequence[str] = ()
) -> str:
    """Return what blocks the nodes, in one or two sentences.

    A group with several roles names the role. ``more``: further sentences.
    """
    sentence = " ".join([_nodes_sentence(diagnosis, findings), *filter(None, more)])
    return f"Role {diagnosis.role}: {sentence[0].lower()}{sentence[1:]}" if diagnosis.role else sentence


def _nodes_sentence(diagnosis: NodeDiagnosis, findings: Sequence[NodeBlocker]) -> str:
    each = request(diagnosis.cls)
    nodes = count(diagnosis.nodes, "node")
    if diagnosis.never is not None and not len(diagnosis.matching):
        if not diagnosis.nodes:
            return "The cluster has no nodes."
        lasting = [blocker for blocker in findings if not blocker.resource]
        return f"None of {nodes} may take it: {obstacles(lasting)}."
    match diagnosis.never or diagnosis.now:
        case Reason.EXCEEDS_EVERY_NODE:
            largest = [
                f"{from_units(name, most)} {name}"
                for (name, units), (_, most) in zip(diagnosis.cls.node_items, diagnosis.largest, strict=True)
                if units > most
            ]
            unsuitable = [blocker for blocker in findings if blocker.code is Reason.NO_SUITABLE_DEVICE]
            limit = nowhere_together(diagnosis) + (
                _numa_details(findings) if diagnosis.limited_by_numa else ""
            )
            if unsuitable and not largest:
                limit = f"of {nodes}, {obstacles(unsuitable)}"
            elif largest:
                limit = f"the most that one matching node has is {', '.join(largest)}"
            return f"One pod needs {each}; {limit}."
        case Reason.EXCEEDS_CLUSTER:
            together = "must run together"
            if diagnosis.replica_of:
                together = f"of {diagnosis.replica_of} run at the same time"
            because = f", because of {diagnosis.rule}" if diagnosis.rule else ""
            return (
                f"{count(diagnosis.wanted + diagnosis.held, 'pod')} of {each} {together}; "
                f"the {count(len(diagnosis.matching), 'matching node')} would hold {diagnosis.ever} even if "
                f"empty{because}."
            )
        case Reason.CLAIM_UNAVAILABLE:
            faults = dict.fromkeys(f.detail for f in findings if f.code is Reason.CLAIM_UNAVAILABLE)
            return f"It can be placed nowhere: {'; '.join(faults)}."
    requested = f"{count(diagnosis.wanted, 'pod')} of {each}" if diagnosis.wanted > 1 else each
    fitting = f"; {diagnosis.fitting} would fit now" if diagnosis.wanted > 1 else ""
    return f"It needs {requested}{fitting}. Of {nodes}, {obstacles(findings)}."


def nowhere_together(diagnosis: NodeDiagnosis) -> str:
    """Return why no empty node holds a pod, although each has enough of everything."""
    if diagnosis.limited_by_numa:
        return "no node's NUMA zones would fit it, even empty"
    return "no node has all of it together"


def _numa_details(findings: Sequence[NodeBlocker]) -> str:
    """Return the NUMA details in parentheses, those of most nodes first.

    Example: `` (single-numa-node: 5 nvidia.com/gpu in one zone: no zone has more than
    4)``.
    """
    relevant = [
        f for f in findings if f.code is Reason.NUMA_ALIGNMENT_FAILED and f.detail and f.blocked.any()
    ]
    relevant.sort(key=lambda blocker: -int(blocker.blocked.sum()))
    details = dict.fromkeys(blocker.detail for blocker in relevant)
    return f" ({'; '.join(list(details)[:_MAX_NUMA_DETAILS])})" if details else ""


def obstacles(findings: Sequence[NodeBlocker]) -> str:
    """Return a text like ``3 lack nvidia.com/gpu (8 needed, at most 2 free), 1 are cordoned``."""
    texts = []
    for blocker in findings:
        nodes = int(blocker.blocked.sum())
        if not nodes:
            continue
        if blocker.code is Reason.VOLUME_UNAVAILABLE and blocker.resource:
            text = f"attach no more volumes ({blocker.resource})"
        elif blocker.resource and blocker.resource != PODS and blocker.available is not None:
            needed = from_units(blocker.resource, blocker.needed)
            free = from_units(blocker.resource, blocker.most_available)
            text = f"lack {blocker.resource} ({needed} needed, at most {free} free)"
        else:
            text = _PER_NODE.get(blocker.code, f"have an obstacle: {short_meaning(blocker.code)}")
            if blocker.detail:
                text += f" ({blocker.detail})"
        if nodes == 1:
            verb, _, rest = text.partition(" ")
            text = f"{_SINGULAR[verb]} {rest}"
        texts.append((-nodes, f"{nodes} {text}"))
    texts.sort()
    return ", ".join(text for _, text in texts) or "each could take a pod, but not enough of them"
