"""What the nodes say to a class of tasks: every obstacle on every node, counted.

``never``: why even the empty nodes do not hold it, be it for as long as some are cordoned or not ready; ``now``: why
they do not at present. At most one of the two is set; neither if enough tasks of the class fit, taken on their own.
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
"""What a node lacks whose amounts would do, but not from the zones that have to serve a pod: less than all of it."""


@dataclass(frozen=True, slots=True)
class DiagnosedRequest:
    """What is asked of the nodes: ``tasks`` more beside ``held`` that already run; whose role it is.

    ``lasting``: only what holds until the nodes change, whatever comes and goes on them.
    """

    tasks: int
    held: int = 0
    role: str = ""
    lasting: bool = False


@dataclass(slots=True)
class NodeDiagnosis:
    cls: TaskClass
    wanted: int
    held: int
    role: str
    nodes: int
    """Live nodes."""
    matching: NDArray[np.int64]
    """Rows that pass every static policy."""
    fitting: int
    """How many tasks of the class fit now."""
    ever: int
    """How many would fit on the matching nodes if they were empty."""
    by_zones: bool = False
    """Whether that is fewer for the nodes' NUMA zones."""
    short: tuple[str, ...] = ()
    """The resources that are too scarce, on some matching node."""
    scarce: tuple[tuple[str, int], ...] = ()
    """The resources of which all matching nodes together hold too little for what is wanted, taken
    alone, with the amount that they have available."""
    largest: tuple[tuple[str, int], ...] = ()
    """Per requested resource, the most that a matching node has in all."""
    blockers: tuple[Blocker, ...] = ()
    nearest: tuple[str, str] | None = None
    never: Reason | None = None
    now: Reason | None = None
    sentence: str = ""
    held_by: dict[str, int] | None = None
    """Kept by ``holders``."""


def diagnose_nodes(
    state: ClusterState, placer: Placer, cls: TaskClass, request: DiagnosedRequest
) -> NodeDiagnosis:
    """Judge tasks of a class, as if nothing else wanted to be placed."""
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
    """How many tasks of the class each row would hold if it were empty, by amounts and by NUMA zones."""
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
    """How many tasks of such needs each row takes, on amounts alone; ``empty``: if nothing ran there."""
    view = view_of(state.table, rows, empty=empty)
    count = np.full(len(rows), UNLIMITED, dtype=np.int64)
    for plugin in state.plugins.capacities:
        limit = plugin.capacity(needs, view)
        if limit is not None:
            np.minimum(count, limit, out=count)
    np.maximum(count, 0, out=count)
    if needs.devices:
        state.classes.allocator.limit(count, view, needs)
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
    """What keeps the class waiting if nodes that are cordoned or not ready would do, with those that match."""
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
    """The reason of those nodes that could serve: amounts, scattered devices, or other pods."""
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
    """Whether there is enough free of everything in sum, and only devices are short on each node."""
    view = view_of(table, verdict.matching)
    for name, units in verdict.cls.node_items:
        if int(np.maximum(view.available(name), 0).sum()) < units * verdict.wanted:
            return False
    return any(is_device(name) for name in verdict.short)


def _blockers(verdict: NodeDiagnosis, table: NodeTable, findings: list[NodeBlocker]) -> tuple[Blocker, ...]:
    """The reason as a whole, then each obstacle with the number of nodes it holds on."""
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
    """The node that lacks least: fewest obstacles, then the smallest share of the request missing."""
    if not len(live) or not findings:
        return None
    obstacles = np.zeros(len(live))
    missing = np.zeros(len(live))
    for blocker in findings:
        if blocker.resource and blocker.available is not None and blocker.needed:
            lack = np.where(blocker.blocked, blocker.needed - blocker.available, 0)
            missing += lack / blocker.needed
        elif blocker.code is Reason.NUMA_ALIGNMENT_FAILED:
            missing += blocker.blocked * ASTRIDE  # the amounts are there, but not in one zone
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
