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
from windlass.engine.diagnosis import messages
from windlass.engine.diagnosis.device_messages import device_blockers
from windlass.engine.diagnosis.transient_blockers import found_by, returning
from windlass.engine.feasibility.task_class import UNLIMITED, TaskClass
from windlass.engine.nodes.table import NodeTable
from windlass.engine.nodes.view import view_of
from windlass.engine.placement.placer import Placer
from windlass.engine.state.cluster_state import ClusterState
from windlass.spi.objects import Needs
from windlass.spi.plugins import NodeBlocker
from windlass.spi.quantities import from_units, is_device

PODS = "pods"
ASTRIDE = 0.5
"""Missing fraction of a node with enough resources, but not in the required NUMA nodes.

Below 1.
"""


@dataclass(frozen=True, slots=True)
class DiagnosedRequest:
    """Request to diagnose: ``tasks`` more tasks, in addition to ``held`` running ones.

    ``role``: role of the tasks.
    ``lasting``: only blockers that last until the nodes change, independent of other
    pods.
    """

    tasks: int
    held: int = 0
    role: str = ""
    lasting: bool = False


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
    by_zones: bool = False
    """True if NUMA makes this number smaller."""
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
    by_amounts = int(room_for(state, cls.needs, matching, empty=True).sum())
    ever = held_empty(state, cls, matching)
    verdict = NodeDiagnosis(
        cls,
        request.tasks,
        request.held,
        request.role,
        nodes=len(live),
        matching=matching,
        fitting=int(count.sum()),
        ever=int(ever.sum()),
        by_zones=int(ever.sum()) < by_amounts,
        largest=_largest(table, cls, matching),
    )
    asked = state.plugins.static_findings if request.lasting else state.plugins.findings
    findings = found_by(asked, cls.needs, view)
    if cls.needs.devices:
        findings += device_blockers(cls, live, lasting=request.lasting)
    verdict.short = tuple(
        dict.fromkeys(f.resource for f in findings if f.resource and bool(f.blocked[cls.static[live]].any()))
    )
    verdict.scarce = _scarce(verdict, table)
    _decide(verdict, table, findings)
    if verdict.never is not None:
        verdict.never = _what_passes(verdict, state, live) or verdict.never
    verdict.blockers = _blockers(verdict, table, findings)
    if verdict.never is not None or verdict.now is not None:
        verdict.nearest = _nearest(table, cls, live, findings)
        verdict.sentence = messages.nodes_sentence(verdict, findings)
    return verdict


def held_empty(state: ClusterState, cls: TaskClass, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return how many tasks of the class each row holds if empty, by resources and NUMA."""
    found = room_for(state, cls.needs, rows, empty=True)
    books = state.plugins.zone_books
    if books is None or cls.needs.zones is None:
        return found
    most = [books.most(cls.number, row) for row in rows.tolist()]
    by_zones = np.array([UNLIMITED if count is None else count for count in most], dtype=np.int64)
    return np.minimum(found, by_zones)


def room_for(
    state: ClusterState, needs: Needs, rows: NDArray[np.int64], *, empty: bool = False
) -> NDArray[np.int64]:
    """Return how many tasks with these needs each row holds, by resources only.

    ``empty``: as if nothing ran there.
    """
    view = view_of(state.table, rows, empty=empty)
    count = np.full(len(rows), UNLIMITED, dtype=np.int64)
    for plugin in state.plugins.capacities:
        limit = plugin.capacity(needs, view)
        if limit is not None:
            np.minimum(count, limit, out=count)
    np.maximum(count, 0, out=count)
    if needs.devices:
        state.classes.allocator.limit_counts(count, view, needs)
    return count


def _largest(table: NodeTable, cls: TaskClass, matching: NDArray[np.int64]) -> tuple[tuple[str, int], ...]:
    if not len(matching):
        return ()
    view = view_of(table, matching)
    return tuple((name, int(view.allocatable(name).max())) for name, _ in cls.node_items)


def _scarce(verdict: NodeDiagnosis, table: NodeTable) -> tuple[tuple[str, int], ...]:
    view = view_of(table, verdict.matching)
    found = []
    for name, units in verdict.cls.node_items:
        available = np.maximum(view.available(name), 0)
        if int((available // units).sum()) < verdict.wanted:
            found.append((name, int(available.sum())))
    return tuple(found)


def _decide(verdict: NodeDiagnosis, table: NodeTable, findings: list[NodeBlocker]) -> None:
    if not len(verdict.matching):
        verdict.never = Reason.NO_MATCHING_NODE
    elif verdict.ever == 0:
        verdict.never = Reason.EXCEEDS_EVERY_NODE
    elif verdict.ever < verdict.wanted + verdict.held:
        verdict.never = Reason.EXCEEDS_CLUSTER
    elif verdict.fitting < verdict.wanted:
        verdict.now = _present_reason(verdict, table, findings)


def _what_passes(verdict: NodeDiagnosis, state: ClusterState, live: NDArray[np.int64]) -> Reason | None:
    """Return the reason that blocks now, if nodes that are cordoned or not ready would suffice."""
    cls, there = verdict.cls, verdict.ever
    found = found_by(state.plugins.static_findings, cls.needs, view_of(state.table, live))
    for code, nodes in returning(found, len(live)):
        if (
            nodes.any()
            and there + int(held_empty(state, cls, live[nodes]).sum()) >= verdict.wanted + verdict.held
        ):
            return code
    return None


def _present_reason(verdict: NodeDiagnosis, table: NodeTable, findings: list[NodeBlocker]) -> Reason:
    """Return the reason of suitable nodes: resources, fragmentation, or other pods."""
    cls = verdict.cls
    if any(f.code is Reason.CLAIM_UNAVAILABLE for f in findings):
        return Reason.CLAIM_UNAVAILABLE
    if cls.total >= verdict.wanted:
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
    if _scattered(verdict, table):
        return Reason.DEVICES_FRAGMENTED
    return Reason.INSUFFICIENT_RESOURCES


def _scattered(verdict: NodeDiagnosis, table: NodeTable) -> bool:
    """Return whether the totals are sufficient, and only devices are short on each node."""
    view = view_of(table, verdict.matching)
    for name, units in verdict.cls.node_items:
        if int(np.maximum(view.available(name), 0).sum()) < units * verdict.wanted:
            return False
    return any(is_device(name) for name in verdict.short)


def _blockers(verdict: NodeDiagnosis, table: NodeTable, findings: list[NodeBlocker]) -> tuple[Blocker, ...]:
    """Return the overall blocker, then each blocker with its number of nodes."""
    found = [*_summary(verdict, table)]
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
    return (*found, *per_node)


def _summary(verdict: NodeDiagnosis, table: NodeTable) -> list[Blocker]:
    code = verdict.never or verdict.now
    if code is None:
        return []
    if code is Reason.NO_MATCHING_NODE:
        return [Blocker(code, verdict.nodes)]
    if code is Reason.EXCEEDS_EVERY_NODE:
        largest = dict(verdict.largest)
        over = [
            Blocker(
                code,
                verdict.nodes,
                name,
                from_units(name, units),
                from_units(name, largest.get(name, 0)),
                "the most that one node has",
            )
            for name, units in verdict.cls.node_items
            if units > largest.get(name, 0)
        ]
        return over or [Blocker(code, verdict.nodes, detail=messages.nowhere_together(verdict))]
    if code is Reason.EXCEEDS_CLUSTER:
        return [
            Blocker(
                code,
                verdict.nodes,
                "tasks",
                str(verdict.wanted + verdict.held),
                str(verdict.ever),
                "what the matching nodes would hold if they were empty",
            )
        ]
    fitting = str(min(verdict.fitting, verdict.wanted))
    found = [Blocker(code, verdict.nodes, "tasks", str(verdict.wanted), fitting, "what the nodes hold now")]
    if verdict.wanted > 1 and verdict.now is not None:
        requested = dict(verdict.cls.node_items)
        found += [
            Blocker(
                Reason.TOO_MANY_PODS if name == PODS else Reason.INSUFFICIENT_RESOURCES,
                len(verdict.matching),
                name,
                from_units(name, requested[name] * verdict.wanted),
                from_units(name, available),
                "what the matching nodes have available in all",
            )
            for name, available in verdict.scarce
        ]
    return found


def _nearest(
    table: NodeTable, cls: TaskClass, live: NDArray[np.int64], findings: list[NodeBlocker]
) -> tuple[str, str] | None:
    """Return the node that lacks least: fewest blockers, then the smallest missing fraction."""
    if not len(live) or not findings:
        return None
    obstacles = np.zeros(len(live))
    missing = np.zeros(len(live))
    for blocker in findings:
        if blocker.resource and blocker.available is not None and blocker.needed:
            lack = np.where(blocker.blocked, blocker.needed - blocker.available, 0)
            missing += lack / blocker.needed
        elif blocker.code is Reason.NUMA_ALIGNMENT_FAILED:
            missing += blocker.blocked * ASTRIDE  # enough resources, but not on one NUMA node
        else:
            obstacles += blocker.blocked
    blocked = np.zeros(len(live), dtype=np.bool_)
    for blocker in findings:
        blocked |= blocker.blocked
    if not blocked.any():
        return None
    table.ranking.settle()
    order = np.lexsort((-table.ranking.tie[live], missing, obstacles, ~blocked))
    at = int(order[0])
    lacks = []
    for blocker in findings:
        if not blocker.blocked[at]:
            continue
        if blocker.resource and blocker.available is not None:
            short = blocker.needed - int(blocker.available[at])
            lacks.append(f"{from_units(blocker.resource, short)} {blocker.resource}")
        else:
            lacks.append(blocker.detail or messages.short_meaning(blocker.code))
    return table.names[int(live[at])], ", ".join(lacks)
