"""Diagnosis of nodes for a task class: every blocker on every node, counted.

``never``: reason why even empty nodes do not hold the tasks, possibly because some are
cordoned or not ready.
``now``: reason why the nodes do not hold them at present. At most one of the two is
set. Neither is set if enough tasks of the class fit by themselves.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from windlass.api.reasons import Blocker, Reason
from windlass.engine.diagnosis import ending_tasks, messages
from windlass.engine.diagnosis.device_messages import device_blockers
from windlass.engine.diagnosis.device_slots import with_slots
from windlass.engine.diagnosis.empty_capacity import capacity_by_resources, capacity_if_empty, exclusion
from windlass.engine.diagnosis.ending_tasks import depends_on_stuck, ending_on
from windlass.engine.diagnosis.partitioning import missing_slices
from windlass.engine.diagnosis.transient_blockers import blockers_by, recoverable
from windlass.engine.diagnosis.unreadable_labels import (
    UnreadableLabel,
    label_sentences,
    unreadable_labels,
)
from windlass.engine.feasibility.task_class import TaskClass
from windlass.engine.groups.entries import TaskEntry
from windlass.engine.nodes.table import NodeTable
from windlass.engine.nodes.view import view_of
from windlass.engine.placement.placer import Placer
from windlass.engine.state.cluster_state import ClusterState
from windlass.spi.plugins import NodeBlocker
from windlass.spi.quantities import from_units, is_device

PODS = "pods"
NUMA_MISALIGNED = 0.5
"""Missing fraction of a node with enough resources, but not in the required NUMA nodes.

Below 1.
"""


@dataclass(frozen=True, slots=True)
class DiagnosedRequest:
    """Request to diagnose: ``tasks`` more tasks, in addition to ``held`` running ones.

    ``role``: role of the tasks.
    ``lasting``: only blockers that last until the nodes change, independent of other
    pods.
    ``replica_of``: controller that keeps the tasks in ``held`` and these running at once.
    """

    tasks: int
    held: int = 0
    role: str = ""
    lasting: bool = False
    replica_of: str = ""


@dataclass(slots=True)
class NodeDiagnosis:
    """Result of a diagnosis for one class."""

    cls: TaskClass
    wanted: int
    held: int
    role: str
    nodes: int
    """Number of live nodes."""
    matching: NDArray[np.int64]
    """Rows that pass every static plugin."""
    fitting: int
    """Number of tasks of the class that fit now."""
    ever: int
    """Number of tasks that would fit on the matching nodes if these were empty."""
    rule: str = ""
    """Rule by which the tasks exclude one another, if it makes this number smaller."""
    replica_of: str = ""
    """Controller that keeps the running tasks in ``held`` and the waiting ones running at once."""
    limited_by_numa: bool = False
    """True if NUMA makes the number smaller."""
    short: tuple[str, ...] = ()
    """Resources that are too scarce on some matching node."""
    scarce: tuple[tuple[str, int], ...] = ()
    """Resources of which all matching nodes together have too little, with the available amount."""
    largest: tuple[tuple[str, int], ...] = ()
    """Largest amount of each requested resource on a matching node."""
    blockers: tuple[Blocker, ...] = ()
    nearest: tuple[str, str] | None = None
    never: Reason | None = None
    now: Reason | None = None
    sentence: str = ""
    unreadable: tuple[UnreadableLabel, ...] = ()
    """Labels of nodes that state what the devices have, and cannot be read."""
    ending: tuple[TaskEntry, ...] = ()
    """Terminating tasks that hold what is short."""
    waiting: str = ""
    """Override of the code's answer whether waiting helps; "" for none."""
    held_by: dict[str, int] | None = None
    """Group → amount of scarce resources that it holds; filled by ``holders``."""


def diagnose_nodes(
    state: ClusterState, placer: Placer, cls: TaskClass, request: DiagnosedRequest
) -> NodeDiagnosis:
    """Diagnose tasks of a class as if nothing else were pending."""
    table = state.table
    cls.refresh()
    live = np.flatnonzero(table.live[: table.height])
    view = view_of(table, live)
    matching = live[cls.static[live]]
    domains = placer.constraints(cls)
    mask = placer.domain_mask(cls, domains) if domains else None
    count = cls.count[live] if mask is None else cls.count[live] * mask[live]
    by_resources = int(capacity_by_resources(state, cls.needs, matching, empty=True).sum())
    ever = capacity_if_empty(state, cls, matching)
    limit = exclusion(state, cls, matching, ever)
    diagnosis = NodeDiagnosis(
        cls,
        request.tasks,
        request.held,
        request.role,
        nodes=len(live),
        matching=matching,
        fitting=int(count.sum()),
        ever=int(ever.sum()) if limit is None else limit.most,
        rule="" if limit is None else limit.rule,
        replica_of=request.replica_of,
        limited_by_numa=int(ever.sum()) < by_resources,
        largest=_largest(table, cls, matching),
    )
    plugins = state.plugins.static_blockers if request.lasting else state.plugins.blockers
    findings = blockers_by(plugins, cls.needs, view)
    if cls.needs.devices:
        found = device_blockers(cls, live, lasting=request.lasting)
        findings += with_slots(found, table, cls.needs, live)
    diagnosis.short = tuple(
        dict.fromkeys(f.resource for f in findings if f.resource and bool(f.blocked[cls.static[live]].any()))
    )
    diagnosis.scarce = _scarce(diagnosis, table)
    _set_reason(diagnosis, table, findings)
    if diagnosis.never is not None:
        diagnosis.never = _transient_reason(diagnosis, state, live) or diagnosis.never
    diagnosis.blockers = _blockers(diagnosis, table, findings)
    if diagnosis.never is not None or diagnosis.now is not None:
        diagnosis.nearest = _nearest_node(table, cls, live, findings)
        if diagnosis.now is not None:
            _add_ending(diagnosis, state)
        diagnosis.unreadable = unreadable_labels(table, cls.needs, live, findings)
        diagnosis.sentence = messages.nodes_sentence(
            diagnosis,
            findings,
            [*label_sentences(diagnosis.unreadable), ending_tasks.sentence(table, diagnosis.ending)],
        )
        if missing := missing_slices(state, cls, matching):
            diagnosis.sentence += f" {missing}"
    return diagnosis


def _add_ending(diagnosis: NodeDiagnosis, state: ClusterState) -> None:
    """Add the terminating tasks that are waited for. Without their end, waiting may not help."""
    cls, rows = diagnosis.cls, diagnosis.matching
    scarce = [*diagnosis.short, *(name for name, _ in diagnosis.scarce)]
    diagnosis.ending = tuple(ending_on(state, cls, rows, scarce))
    if depends_on_stuck(state, cls, rows, diagnosis.ending, diagnosis.wanted + diagnosis.held):
        diagnosis.waiting = "maybe"


def _largest(table: NodeTable, cls: TaskClass, matching: NDArray[np.int64]) -> tuple[tuple[str, int], ...]:
    if not len(matching):
        return ()
    view = view_of(table, matching)
    return tuple((name, int(view.allocatable(name).max())) for name, _ in cls.node_items)


def _scarce(diagnosis: NodeDiagnosis, table: NodeTable) -> tuple[tuple[str, int], ...]:
    view = view_of(table, diagnosis.matching)
    result = []
    for name, units in diagnosis.cls.node_items:
        available = np.maximum(view.available(name), 0)
        if int((available // units).sum()) < diagnosis.wanted:
            result.append((name, int(available.sum())))
    return tuple(result)


def _set_reason(diagnosis: NodeDiagnosis, table: NodeTable, findings: list[NodeBlocker]) -> None:
    if not len(diagnosis.matching):
        diagnosis.never = Reason.NO_MATCHING_NODE
    elif diagnosis.ever == 0:
        diagnosis.never = Reason.EXCEEDS_EVERY_NODE
    elif diagnosis.ever < diagnosis.wanted + diagnosis.held:
        diagnosis.never = Reason.EXCEEDS_CLUSTER
    elif diagnosis.fitting < diagnosis.wanted:
        diagnosis.now = _present_reason(diagnosis, table, findings)


def _transient_reason(
    diagnosis: NodeDiagnosis, state: ClusterState, live: NDArray[np.int64]
) -> Reason | None:
    """Return the reason that blocks now, if nodes that are cordoned or not ready would suffice."""
    cls = diagnosis.cls
    result = blockers_by(state.plugins.static_blockers, cls.needs, view_of(state.table, live))
    for code, nodes in recoverable(result, len(live)):
        if not nodes.any():
            continue
        rows = np.union1d(diagnosis.matching, live[nodes])
        counts = capacity_if_empty(state, cls, rows)
        limit = exclusion(state, cls, rows, counts)
        if (int(counts.sum()) if limit is None else limit.most) >= diagnosis.wanted + diagnosis.held:
            return code
    return None


def _present_reason(diagnosis: NodeDiagnosis, table: NodeTable, findings: list[NodeBlocker]) -> Reason:
    """Return the reason of suitable nodes: resources, fragmentation, or other pods."""
    cls = diagnosis.cls
    if any(f.code is Reason.CLAIM_UNAVAILABLE for f in findings):
        return Reason.CLAIM_UNAVAILABLE
    if cls.total >= diagnosis.wanted:
        codes = [f.code for f in findings if not f.resource and f.blocked.any()]
        for code in (
            Reason.POD_ANTI_AFFINITY_CONFLICT,
            Reason.POD_AFFINITY_MISMATCH,
            Reason.TOPOLOGY_SPREAD_CONFLICT,
            Reason.HOST_PORT_TAKEN,
            Reason.VOLUME_UNAVAILABLE,
            Reason.NUMA_ALIGNMENT_FAILED,
        ):
            if code in codes:
                return code
    if _is_fragmented(diagnosis, table):
        return Reason.DEVICES_FRAGMENTED
    return Reason.INSUFFICIENT_RESOURCES


def _is_fragmented(diagnosis: NodeDiagnosis, table: NodeTable) -> bool:
    """Return whether the totals are sufficient, and only devices are short on each node."""
    view = view_of(table, diagnosis.matching)
    for name, units in diagnosis.cls.node_items:
        if int(np.maximum(view.available(name), 0).sum()) < units * diagnosis.wanted:
            return False
    return any(is_device(name) for name in diagnosis.short)


def _blockers(diagnosis: NodeDiagnosis, table: NodeTable, findings: list[NodeBlocker]) -> tuple[Blocker, ...]:
    """Return the overall blocker, then each blocker with its number of nodes."""
    result = [*_summary(diagnosis, table)]
    per_node = []
    for blocker in findings:
        nodes = int(blocker.blocked.sum())
        if not nodes:
            continue
        needed = available = ""
        if blocker.resource and blocker.available is not None:
            needed = from_units(blocker.resource, blocker.needed)
            available = from_units(blocker.resource, blocker.most_available)
        per_node.append(Blocker(blocker.code, nodes, blocker.resource, needed, available, blocker.detail))
    per_node.sort(key=lambda b: (-b.nodes, b.code, b.resource, b.detail))
    return (*result, *per_node)


def _summary(diagnosis: NodeDiagnosis, table: NodeTable) -> list[Blocker]:
    code = diagnosis.never or diagnosis.now
    if code is None:
        return []
    if code is Reason.NO_MATCHING_NODE:
        return [Blocker(code, diagnosis.nodes)]
    if code is Reason.EXCEEDS_EVERY_NODE:
        largest = dict(diagnosis.largest)
        exceeded = [
            Blocker(
                code,
                diagnosis.nodes,
                name,
                from_units(name, units),
                from_units(name, largest.get(name, 0)),
                "the most that one node has",
            )
            for name, units in diagnosis.cls.node_items
            if units > largest.get(name, 0)
        ]
        return exceeded or [Blocker(code, diagnosis.nodes, detail=messages.nowhere_together(diagnosis))]
    if code is Reason.EXCEEDS_CLUSTER:
        return [
            Blocker(
                code,
                diagnosis.nodes,
                "tasks",
                str(diagnosis.wanted + diagnosis.held),
                str(diagnosis.ever),
                f"by its {diagnosis.rule}"
                if diagnosis.rule
                else "what the matching nodes would hold if they were empty",
            )
        ]
    fitting = str(min(diagnosis.fitting, diagnosis.wanted))
    result = [
        Blocker(code, diagnosis.nodes, "tasks", str(diagnosis.wanted), fitting, "what the nodes hold now")
    ]
    if diagnosis.wanted > 1 and diagnosis.now is not None:
        requested = dict(diagnosis.cls.node_items)
        result += [
            Blocker(
                Reason.TOO_MANY_PODS if name == PODS else Reason.INSUFFICIENT_RESOURCES,
                len(diagnosis.matching),
                name,
                from_units(name, requested[name] * diagnosis.wanted),
                from_units(name, available),
                "what the matching nodes have available in all",
            )
            for name, available in diagnosis.scarce
        ]
    return result


def _nearest_node(
    table: NodeTable, cls: TaskClass, live: NDArray[np.int64], findings: list[NodeBlocker]
) -> tuple[str, str] | None:
    """Return the node that lacks least: fewest blockers, then the smallest missing fraction."""
    if not len(live) or not findings:
        return None
    obstacles = np.zeros(len(live))
    missing = np.zeros(len(live))
    for blocker in findings:
        if blocker.resource and blocker.available is not None and blocker.needed:
            lacking = np.where(blocker.blocked, blocker.needed - blocker.available, 0)
            missing += lacking / blocker.needed
        elif blocker.code is Reason.NUMA_ALIGNMENT_FAILED:
            missing += blocker.blocked * NUMA_MISALIGNED  # enough resources, but not on one NUMA node
        else:
            obstacles += blocker.blocked
    is_blocked = np.zeros(len(live), dtype=np.bool_)
    for blocker in findings:
        is_blocked |= blocker.blocked
    if not is_blocked.any():
        return None
    table.ranking.settle()
    order = np.lexsort((-table.ranking.tie[live], missing, obstacles, ~is_blocked))
    index = int(order[0])
    lacks = []
    for blocker in findings:
        if not blocker.blocked[index]:
            continue
        if blocker.resource and blocker.available is not None:
            missing_units = blocker.needed - int(blocker.available[index])
            lacks.append(f"{from_units(blocker.resource, missing_units)} {blocker.resource}")
        else:
            lacks.append(blocker.detail or messages.short_meaning(blocker.code))
    return table.names[int(live[index])], ", ".join(lacks)
