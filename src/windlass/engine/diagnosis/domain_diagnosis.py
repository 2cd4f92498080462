"""Diagnosis of topology domains for a group: tried domains, and what each of them lacks.

There is a result if a level is required and no domain of that level holds all missing
tasks, by counting. Tighter levels cannot hold them either. The capacity of their best
domain is reported as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from windlass.api.reasons import Blocker, NearMiss, Reason
from windlass.engine.diagnosis.domain_obstacles import (
    DomainObstacle,
    held_entries,
    label_sentence,
    missing_labels,
    obstacles_in,
)
from windlass.engine.diagnosis.domain_obstacles import returning as recoverable_rows
from windlass.engine.diagnosis.empty_capacity import capacity_beside, one_per_host
from windlass.engine.diagnosis.transient_blockers import TRANSIENT
from windlass.engine.feasibility.task_class import TaskClass
from windlass.engine.groups.entries import GroupEntry, MissingSubGroup, NextTasks, TaskEntry
from windlass.engine.nodes.table import PODS
from windlass.engine.placement.domain_selector import DomainDemand, DomainSelector
from windlass.engine.placement.gang_allocator import GangAllocator
from windlass.engine.placement.topology_domains import DomainSums, DomainTree
from windlass.engine.state.cluster_state import ClusterState
from windlass.spi.nodes import IntArray
from windlass.spi.quantities import from_units
from windlass.spi.topology import NODE_NAME, TopologyNeed

MAX_NAMED = 8
"""Maximum number of domains that are named, those that lack least."""
_MAX_TEXTS = 4
"""Maximum number of domains that are named in the sentence."""

_NEVER = Reason.EXCEEDS_EVERY_DOMAIN


@dataclass(frozen=True, slots=True)
class DomainDiagnosis:
    """Result of a domain diagnosis.

    ``fitting``: largest number of tasks that one domain holds now.
    ``ever``: the same for empty domains.
    ``coarser``: domain of a coarser level that would hold all tasks now, and the name
    of that level.
    """

    code: Reason
    sentence: str
    blockers: tuple[Blocker, ...]
    nearest: NearMiss | None
    need: TopologyNeed
    wanted: int
    fitting: int
    ever: int
    coarser: tuple[str, str] | None = None
    returning: tuple[tuple[Reason, str], ...] = ()
    """Nodes that are cordoned or not ready in the domains that would hold all tasks with them."""
    held: int = 0
    """Number of tasks that run and stay."""
    labels: tuple[str, ...] = ()
    """Labels that keep nodes out of all domains."""
    subgroup: str = ""
    """Sub-group with the constraint; empty for the group."""


def diagnose_domains(
    state: ClusterState, gang_allocator: GangAllocator, group: GroupEntry, step: NextTasks
) -> DomainDiagnosis | None:
    """Diagnose the topology constraints of a group's next step, and of its subgroups.

    Required pod affinity of a gang to itself is such a constraint, too. ``None`` if
    counts are not the problem.
    """
    domain_selector, gathering = gang_allocator.domain_selector, gang_allocator.gathering
    need = group.spec.topology
    if need is not None and need.required >= 0:
        demand = DomainDemand.of(step.batches, max(step.members, 1))
        result = _DomainDiagnoser(state, domain_selector, need, demand, held_entries(group)).diagnose("")
        if result is not None:
            return result
    if not group.has_topology and not step.extra and (tied := gathering.constraint(step)) is not None:
        return _DomainDiagnoser(state, domain_selector, *tied, held_entries(group)).diagnose("")
    if not group.subgroup_topologies:
        return None
    subgroups = SubGroupDiagnoser(state, domain_selector, group)
    if step.root is None:
        return subgroups.diagnose(step.options[0]) if step.options else None
    return subgroups.diagnose(step.root) or subgroups.diagnose_pool(step)


class SubGroupDiagnoser:
    """Diagnosis of the sub-groups of a step, down the tree."""

    def __init__(self, state: ClusterState, domain_selector: DomainSelector, group: GroupEntry) -> None:
        self._state = state
        self._domain_selector = domain_selector
        self._group = group

    def diagnose(self, subgroup: MissingSubGroup) -> DomainDiagnosis | None:
        """Return the diagnosis of a sub-group, or of one of those that it needs."""
        constraint = self._group.subgroup_topologies.get(subgroup.name)
        if constraint is not None and constraint.required >= 0 and subgroup.min_tasks():
            demand = DomainDemand.of_subgroup(subgroup)
            held = held_entries(self._group, subgroup.name)
            diagnoser = _DomainDiagnoser(self._state, self._domain_selector, constraint, demand, held)
            result = diagnoser.diagnose(subgroup.name)
            if result is not None:
                return result
        if not subgroup.needed_children:
            return None
        found = [(1, self.diagnose(child)) for child in subgroup.children]
        return _decisive(found, subgroup.needed_children)

    def diagnose_pool(self, step: NextTasks) -> DomainDiagnosis | None:
        """Return a diagnosis if too few tasks are in sub-groups with a domain."""
        found: list[tuple[int, DomainDiagnosis | None]] = []
        for subgroup in step.pool:
            tasks = sum(len(batch.entries) for batch in subgroup.batches)
            if subgroup.members <= tasks:
                found.append((tasks, self.diagnose(subgroup)))
        return _decisive(found, step.members)


def _decisive(found: Sequence[tuple[int, DomainDiagnosis | None]], wanted: int) -> DomainDiagnosis | None:
    """Return the diagnosis that decides, of alternatives with their numbers.

    ``None`` if the alternatives without one suffice for ``wanted``. A diagnosis that
    says "never" decides only if the others do not suffice.
    """
    fitting = sum(n for n, diagnosis in found if diagnosis is None)
    if fitting >= wanted:
        return None
    now = [each for each in found if each[1] is not None and each[1].code is not _NEVER]
    never = [each[1] for each in found if each[1] is not None and each[1].code is _NEVER]
    if never and fitting + sum(n for n, _ in now) < wanted:
        return never[0]
    return now[0][1] if now else None


class _DomainDiagnoser:
    def __init__(
        self,
        state: ClusterState,
        domain_selector: DomainSelector,
        need: TopologyNeed,
        demand: DomainDemand,
        held: list[TaskEntry],
    ) -> None:
        self._state = state
        self._domain_selector = domain_selector
        self._need = need
        self._demand = demand
        self._held = [entry.row for entry in held]
        self._held_entries = held
        self._tree: DomainTree = domain_selector.trees.of(need)

    def diagnose(self, subgroup: str) -> DomainDiagnosis | None:
        need, demand = self._need, self._demand
        level = need.required
        codes = self._codes(level)
        capacity = self._capacity(level)
        if len(codes) and int(capacity[codes].max()) >= demand.members:
            return None
        if_empty = self._capacity_if_empty(level)
        fitting = int(capacity[codes].max()) if len(codes) else 0
        best_if_empty = int(if_empty[codes].max()) if len(codes) else 0
        code, back = Reason.TOPOLOGY_PLACEMENT_FAILED, np.array([], dtype=np.int64)
        if best_if_empty < demand.members:
            code, back = self._transient(level, codes)
        never = code is Reason.EXCEEDS_EVERY_DOMAIN
        order = codes[np.lexsort((codes, -if_empty[codes] if never else -capacity[codes]))][:MAX_NAMED]
        if len(back):
            order = np.concatenate([back, order[~np.isin(order, back)]])[:MAX_NAMED]
        obstacles = {domain: self._obstacles(level, domain) for domain in order.tolist()}
        labels = missing_labels(self._state, self._tree, need) if never and not self._held else []
        summary = code if never else Reason.TOPOLOGY_PLACEMENT_FAILED
        return DomainDiagnosis(
            code,
            self._sentence(
                subgroup, codes, order, if_empty if never else capacity, obstacles, labels, never=never
            ),
            (
                *self._summary(summary, codes, fitting),
                *self._each(summary, order, capacity, if_empty),
                *self._named(obstacles),
            ),
            self._nearest(order, capacity) if len(order) else None,
            need,
            demand.members,
            fitting,
            best_if_empty,
            self._coarser(),
            tuple(
                (obstacle.code, name)
                for domain in back.tolist()
                for obstacle in obstacles.get(domain, ())
                if obstacle.code in TRANSIENT
                for name in obstacle.nodes
            ),
            len(self._held),
            tuple(label for label, _ in labels),
            subgroup=subgroup,
        )

    def _transient(self, level: int, codes: IntArray) -> tuple[Reason, IntArray]:
        """Return the code if no empty domain holds the tasks, and the domains that nodes would help.

        These hold the tasks if their nodes that are cordoned or not ready return.
        """
        for code in (Reason.NODE_NOT_READY, Reason.NODE_UNSCHEDULABLE):
            if len(self._holding_with(level, codes, code)):
                return code, self._holding_with(level, codes, Reason.NODE_UNSCHEDULABLE)
        return Reason.EXCEEDS_EVERY_DOMAIN, codes[:0]

    def _holding_with(self, level: int, codes: IntArray, code: Reason) -> IntArray:
        """Return the domains that hold the tasks once nodes return; see :meth:`_capacity_if_empty`."""
        capacity = self._capacity_if_empty(level, code)
        return codes[capacity[codes] >= self._demand.members] if len(codes) else codes

    def _obstacles(self, level: int, domain: int) -> list[DomainObstacle]:
        return obstacles_in(self._state, self._demand.classes, self._tree.scope(level, domain).rows)

    def _named(self, obstacles: Mapping[int, Sequence[DomainObstacle]]) -> list[Blocker]:
        """Return one blocker per domain and state of its nodes."""
        level, names = self._need.levels[self._need.required].shown, self._tree.names[self._need.required]
        return [
            Blocker(obstacle.code, detail=f"{level} {names[domain]}: {obstacle.text}")
            for domain, found in obstacles.items()
            for obstacle in found
        ]

    def _codes(self, level: int) -> IntArray:
        """Return the possible domains; at most one if the group has placed members."""
        if self._held:
            common = self._tree.common(level, self._held)
            return np.array([common] if common else [], dtype=np.int64)
        return np.arange(1, len(self._tree.names[level]), dtype=np.int64)

    def _capacity(self, level: int) -> IntArray:
        """Return the current capacity per domain, at most that of empty nodes if NUMA matters."""
        capacity = self._domain_selector.capacity(self._tree, level, self._demand)
        if any(
            cls.needs.zones is not None or cls.needs.host_ports or cls.needs.anti_affinity
            for cls in self._demand.classes
        ):
            # Counted by resources only so far.
            capacity = np.minimum(capacity, self._capacity_if_empty(level))
        return self._limited_by_resources(level, capacity, used=True)

    def _capacity_if_empty(self, level: int, returning: Reason | None = None) -> IntArray:
        """Return the capacity per domain if nothing but members of the group ran there.

        ``returning``: with the nodes that are not ready, or cordoned as well.
        """
        result = np.zeros(len(self._tree.names[level]), dtype=np.int64)
        for cls, requested in self._demand.classes.items():
            rows = self._matching(cls)
            if returning is not None:
                back = [nodes for code, nodes in recoverable_rows(self._state, cls) if code is returning]
                rows = np.unique(np.concatenate([rows, *back])).astype(np.int64)
                rows = rows[rows < self._tree.height]
            counts = self._tree.sums(level, self._without_held(cls, rows), rows)
            result += counts if len(self._demand.classes) == 1 else np.minimum(counts, requested)
        return self._limited_by_resources(level, result, used=False)

    def _without_held(self, cls: TaskClass, rows: IntArray) -> IntArray:
        """Return how many tasks each row holds in addition to the members that run there."""
        counts = capacity_beside(self._state, cls, rows, self._held_entries)
        return one_per_host(self._state, cls, rows, counts)

    def _limited_by_resources(self, level: int, capacity: IntArray, *, used: bool) -> IntArray:
        """Limit counts of several classes by the resources that all of them request.

        The counts are for each class alone. Together the tasks fit no more often than
        the smallest request.
        ``used``: take running tasks into account.
        """
        if len(self._demand.classes) == 1:
            return capacity
        requests = [dict(cls.needs.node_request) for cls in self._demand.classes]
        sums = DomainSums(self._state.table, self._tree, level, np.arange(1, len(capacity), dtype=np.int64))
        result = capacity.copy()
        for name in set[str](requests[0]).intersection(*requests[1:]):
            units = min(request[name] for request in requests)
            if units > 0:
                free = sums.allocatable(name) - (sums.used(name) if used else 0)
                result[1:] = np.minimum(result[1:], np.maximum(free // units, 0))
        return result

    def _matching(self, cls: TaskClass) -> IntArray:
        cls.refresh()
        table = self._state.table
        return np.flatnonzero(table.live[: self._tree.height] & cls.static[: self._tree.height])

    # ------------------------------------------------------------------ messages

    def _sentence(
        self,
        subgroup: str,
        codes: IntArray,
        order: IntArray,
        capacity: IntArray,
        obstacles: Mapping[int, Sequence[DomainObstacle]],
        labels: Sequence[tuple[str, int]],
        *,
        never: bool,
    ) -> str:
        tree, need, members = self._tree, self._need, self._demand.members
        level = need.levels[need.required].shown
        full = level if level == need.topology else f"{level} ({need.topology})"
        single = need.levels[need.required].label == NODE_NAME
        of_subgroup = f" of sub-group {subgroup}" if subgroup else ""
        if single and subgroup:  # named after the claim that ties the pods to one node
            of_subgroup = f" that share {subgroup}"
        pods = f"{members} {'pod' if members == 1 else 'pods'}{of_subgroup}"
        more = f" in addition to the {len(self._held)} that run" if self._held else ""
        where = "on one node" if single else f"in one domain of {full}"
        if not len(codes) and self._held:
            running = f"Its {len(self._held)} running pods{of_subgroup}"
            return f"{running} lie in no one domain of {level}, which is required."
        if not len(codes):
            if level == need.topology:
                return f"No node carries the label {level}, by which its pods must lie together."
            because = f": {label_sentence(labels)}" if labels else ""
            return f"No node is in a domain of {full}, which is required{because}."
        names = tree.names[need.required]
        if never:
            best = int(order[0])
            best_text = f"{names[best]} would hold {int(capacity[best])}"
            texts = [
                f"In {names[domain]}, {' and '.join(each.text for each in found)}."
                for domain, found in list(obstacles.items())[:_MAX_TEXTS]
                if found
            ]
            texts += [f"{label_sentence(labels)}.".capitalize()] if labels else []
            empty = "even if empty" if not self._held else "in addition, even if nothing else ran there"
            sentence = (
                f"{pods}{more} must lie {where}; of {len(codes)} none would hold them {empty}: {best_text}."
            )
            return " ".join([sentence, *texts])
        listed = ", ".join(
            f"{names[domain]} holds {int(capacity[domain])}"
            + (f" ({' and '.join(each.text for each in obstacles[domain])})" if obstacles[domain] else "")
            for domain in order[:_MAX_TEXTS].tolist()
        )
        rest = f", {len(codes) - _MAX_TEXTS} others hold no more" if len(codes) > _MAX_TEXTS else ""
        return f"{pods}{more} must lie {where}; of {len(codes)} none holds them now: {listed}{rest}."

    def _summary(self, code: Reason, codes: IntArray, fitting: int) -> list[Blocker]:
        """Return the blockers of the required level, then of the tighter levels that were tried."""
        need, tree = self._need, self._tree
        result = []
        for level in sorted(need.tried()):
            inside = codes if level == need.required else self._codes(level)
            nodes = int((tree.codes[level] > 0).sum())
            best = fitting
            if level != need.required:
                capacity = self._capacity(level)
                best = int(capacity[inside].max()) if len(inside) else 0
            detail = f"the most that one domain of {need.levels[level].shown} takes, of {len(inside)}"
            result.append(Blocker(code, nodes, "tasks", str(self._demand.members), str(best), detail))
        return result

    def _each(self, code: Reason, order: IntArray, capacity: IntArray, if_empty: IntArray) -> list[Blocker]:
        tree, level = self._tree, self._need.required
        shown = if_empty if code is Reason.EXCEEDS_EVERY_DOMAIN else capacity
        return [
            Blocker(
                code,
                len(tree.scope(level, domain).rows),
                "tasks",
                str(self._demand.members),
                str(int(shown[domain])),
                f"{self._need.levels[level].shown} {tree.names[level][domain]}",
            )
            for domain in order.tolist()
        ]

    def _nearest(self, order: IntArray, capacity: IntArray) -> NearMiss:
        """Return the best domain and what it lacks.

        It lacks total resources, or else capacity on single nodes.
        """
        tree, level, code = self._tree, self._need.required, int(order[0])
        sums = DomainSums(self._state.table, tree, level, np.array([code], dtype=np.int64))
        missing = []
        for name, units in self._demand.request().items():
            lacking_units = units - int(sums.allocatable(name)[0] - sums.used(name)[0])
            if name != PODS and lacking_units > 0:
                missing.append(f"{from_units(name, lacking_units)} {name}")
        remaining = self._demand.members - int(capacity[code])
        pods = "1 pod" if remaining == 1 else f"{remaining} pods"
        return NearMiss(tree.names[level][code], ", ".join(missing) or f"nodes with capacity for {pods} more")

    def _coarser(self) -> tuple[str, str] | None:
        need, tree = self._need, self._tree
        for level in range(need.required - 1, -1, -1):
            codes = self._codes(level)
            capacity = self._capacity(level)
            fitting = codes[capacity[codes] >= self._demand.members] if len(codes) else codes
            if len(fitting):
                return tree.names[level][int(fitting[0])], need.levels[level].shown
        return None
