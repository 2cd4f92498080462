"""Smallest changes that would let a pending group start.

Each candidate is one kind of change, as small as possible: fewer members, a smaller
request, a higher limit, more nodes, uncordoned nodes, a tolerated taint, no selector, a
coarser topology level. If all of a group has to be in one domain, capacity counts by
domain.

A candidate is stated only if the placement code confirms it: the group starts with it,
and with one unit less it does not (a property test applies the candidates). It is not
predicted what other pending groups would take first: a change to nodes or limits helps
the first in the order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from msgspec.structs import replace as altered
from numpy.typing import NDArray

from windlass.api.reasons import Reason, SuggestedChange, SuggestedChangeKind
from windlass.engine.devices.whole_device_table import WHOLE
from windlass.engine.diagnosis.device_messages import describe_need
from windlass.engine.diagnosis.empty_capacity import capacity_by_resources, capacity_if_empty
from windlass.engine.diagnosis.limit_remedies import LIMIT_CODES, exceeded_limits, raised
from windlass.engine.diagnosis.transient_blockers import blockers_by
from windlass.engine.feasibility.task_class import TaskClass
from windlass.engine.groups.entries import GroupEntry, MissingSubGroup, NextTasks
from windlass.engine.groups.next_step import Shortage, batches_of, required_tasks, whole_step_view
from windlass.engine.nodes.table import PODS
from windlass.engine.nodes.view import TableView
from windlass.engine.placement.gang_allocator import GangAllocator, PlacementAttempt
from windlass.engine.placement.placer import Placer
from windlass.engine.queueing.enqueue import closed_reason
from windlass.engine.state.cluster_state import ClusterState
from windlass.engine.state.statement import Statement
from windlass.spi.devices import DeviceNeed
from windlass.spi.objects import Needs
from windlass.spi.plugins import NodeBlocker, StepView
from windlass.spi.quantities import from_units, is_device
from windlass.spi.topology import TopologyNeed

_REMOVABLE: dict[Reason, tuple[SuggestedChangeKind, str, str]] = {
    Reason.TAINT_NOT_TOLERATED: (SuggestedChangeKind.TOLERATE, "spec.tolerations", "Tolerate the taint {}"),
    Reason.NODE_SELECTOR_MISMATCH: (
        SuggestedChangeKind.SELECTOR,
        "spec.nodeSelector",
        "Drop the node selector {}",
    ),
}
_MAX_NAMED = 8
"""Maximum number of nodes that are named in a change."""


class SmallestChange:
    """Finds the smallest changes."""

    def __init__(
        self,
        state: ClusterState,
        placer: Placer,
        gang_allocator: GangAllocator,
    ) -> None:
        self._state = state
        self._placer = placer
        self._gang_allocator = gang_allocator

    def find(
        self, statement: Statement, group: GroupEntry, step: NextTasks | Shortage | None
    ) -> tuple[SuggestedChange, ...]:
        """Return all changes that suffice on their own, the smallest first.

        ``statement`` stays unchanged.
        """
        spec = group.group
        if spec is None or spec.held or not group.pending or step is None or group.queue is None:
            return ()
        if closed_reason(group.queue) is not None:
            return ()  # nothing else helps while its queue takes no work
        if self._state.gate.is_closed(group):
            return ()  # its admission depends on what it states, not on its pods
        if isinstance(step, NextTasks) and self._try(statement, group, step).done:
            return ()  # it fits: that capacity is reserved for others, or the order is strict
        found = [self._fewer_members(statement, group, step)]
        if isinstance(step, NextTasks):
            found.append(self._higher_limit(statement, group, step))
            found.append(self._coarser_level(statement, group, step))
            found += self._with_nodes(group, step)
        changes = [change for change in found if change is not None]
        return tuple(sorted(changes, key=lambda change: (change.size, change.kind, change.target)))

    # ------------------------------------------------------------------ gang

    def _fewer_members(
        self, statement: Statement, group: GroupEntry, step: NextTasks | Shortage
    ) -> SuggestedChange | None:
        """Return the largest minimum with which the gang would start now.

        The minima of roles hold only while the gang's own minimum is at least their
        sum. If it is exactly their sum, a lower one removes them.
        """
        spec = group.spec
        if spec.subgroups or spec.min_member <= 1:
            return None
        if group.roles_enforced and spec.min_member != sum(group.roles_enforced.values()):
            return None
        if isinstance(step, Shortage):
            batches, missing = batches_of(group.waiting()), spec.min_member - group.held_members
            members = min(missing - 1, len(group.pending))
        elif step.extra:
            return None
        else:
            batches, missing = step.batches, required_tasks(step)
            members = self._try(statement, group, NextTasks(list(batches), missing, {})).reached
        while members > 0:
            attempt = self._try(statement, group, NextTasks(list(batches), members, {}))
            if attempt.done:
                break
            members = min(attempt.reached, members - 1)
        if members <= 0:
            return None
        could_be_larger = members + 1 < missing and isinstance(step, NextTasks)
        if could_be_larger and self._try(statement, group, NextTasks(list(batches), members + 1, {})).done:
            return None  # placing is not monotone here: nothing is certain
        wanted = group.held_members + members
        return SuggestedChange(
            SuggestedChangeKind.MIN_MEMBER,
            group.key,
            "minMember",
            str(spec.min_member),
            str(wanted),
            (spec.min_member - wanted) / spec.min_member,
            f"With {spec.minimum_name} {wanted} instead of {spec.min_member} it would start now.",
        )

    def _try(self, statement: Statement, group: GroupEntry, step: NextTasks) -> PlacementAttempt:
        mark = statement.checkpoint()
        attempt = self._gang_allocator.try_group(statement, group, step)
        statement.rollback(mark)
        return attempt

    # ------------------------------------------------------------------ queue

    def _higher_limit(
        self, statement: Statement, group: GroupEntry, step: NextTasks
    ) -> SuggestedChange | None:
        """Return the limits to raise, if nothing but limits blocks the group."""
        view = whole_step_view(group, step)
        rejections = self._gang_allocator.rejections_of(group, view)
        if not rejections or any(rejection.code not in LIMIT_CODES for rejection in rejections):
            return None
        exceeded = exceeded_limits(group, view.request, rejections)
        with raised(exceeded):
            fits = bool(exceeded) and self._try(statement, group, step).done
        if not fits:
            return None
        items = [(each.queue, each.resource, each.limit, each.to) for each in exceeded]
        texts = [f"{name} of queue {q.name} to {from_units(name, to)}" for q, name, _, to in items]
        return SuggestedChange(
            SuggestedChangeKind.QUEUE_LIMIT,
            ",".join(queue.name for queue, *_ in items),
            ",".join(f"capability[{name}]" for _, name, *_ in items),
            ",".join(from_units(name, limit) for _, name, limit, _ in items),
            ",".join(from_units(name, to) for _, name, _, to in items),
            max((to - limit) / max(limit, 1) for _, _, limit, to in items),
            f"Raise the limit on {' and on '.join(texts)}.",
        )

    # ------------------------------------------------------------------ topology

    def _coarser_level(
        self, statement: Statement, group: GroupEntry, step: NextTasks
    ) -> SuggestedChange | None:
        """Return the finest coarser level that suffices, or else no required level."""
        spec = group.spec
        need = spec.topology
        if need is None or need.required < 0:
            return None
        for level in range(need.required - 1, -2, -1):
            group.group = altered(spec, topology=replace(need, required=level))
            try:
                fits = self._try(statement, group, step).done
            finally:
                group.group = spec
            if fits:
                return _coarser(group.key, need, level)
        return None

    # ------------------------------------------------------------------ nodes

    def _for_subgroups(self, group: GroupEntry, step: NextTasks) -> list[SuggestedChange | None]:
        """Return node changes for a gang of required subgroups, where only the number counts."""
        (cls,) = group.pending_classes
        root = step.root
        if root is None or not _all_needed(root) or any(spec.topology for spec in group.spec.subgroups):
            return []
        if group.has_topology or self._placer.constraints(cls) or not self._state.plugins.countable:
            return []
        if self._gang_allocator.rejections_of(group, whole_step_view(group, step)):
            return []
        cls.refresh()
        missing = max(step.members, root.min_tasks()) - cls.total
        return [self._more_nodes(cls, missing), *self._without_blocker(cls, missing)] if missing > 0 else []

    def _with_nodes(self, group: GroupEntry, step: NextTasks) -> list[SuggestedChange | None]:
        """Return changes that follow from the capacity of each node, for one countable class."""
        state = self._state
        if len(group.pending_classes) != 1:
            return []
        if group.spec.subgroups:
            return self._for_subgroups(group, step)
        domains = self._gang_allocator.domain_selector.domains(group) if group.has_topology else None
        (cls,) = group.pending_classes
        if self._placer.constraints(cls) or not state.plugins.countable:
            return []
        cls.refresh()
        changes = [self._smaller_request(group, cls, step, name) for name, _ in cls.node_items]
        if cls.needs.devices:
            changes.append(self._smaller_share(group, cls, step))
        members = required_tasks(step)
        if self._gang_allocator.rejections_of(group, whole_step_view(group, step)):
            return changes
        if domains is None:
            if cls.total >= members:
                return changes
            changes.append(self._more_nodes(cls, members - cls.total))
            return changes + self._without_blocker(cls, members - cls.total)
        return changes + self._in_domains(cls, members, domains)

    def _in_domains(
        self, cls: TaskClass, members: int, domains: NDArray[np.int64]
    ) -> list[SuggestedChange | None]:
        """Return the smallest addition of nodes in a domain, and the smallest change per blocker."""
        added: list[SuggestedChange] = []
        removable: dict[SuggestedChangeKind, SuggestedChange] = {}
        for code in range(1, int(domains.max(initial=0)) + 1):
            inside = np.flatnonzero(domains == code)
            present = int(cls.count[inside].sum())
            if not len(inside):
                continue
            if present >= members:
                return []
            more_nodes = self._more_nodes(cls, members - present, inside)
            if more_nodes is not None:
                added.append(more_nodes)
            for change in self._without_blocker(cls, members - present, inside):
                if change is not None and (
                    change.kind not in removable or change.size < removable[change.kind].size
                ):
                    removable[change.kind] = change
        added.sort(key=lambda change: (change.size, change.target))
        return [*added[:1], *removable.values()]

    def _would_start(self, group: GroupEntry, cls: TaskClass, step: NextTasks, needs: Needs) -> bool:
        """Return whether the step would start now if its tasks had these needs."""
        rows = self._rows(cls)
        members = required_tasks(step)
        domains = self._gang_allocator.domain_selector.domains(group) if group.has_topology else None
        capacities = np.minimum(capacity_by_resources(self._state, needs, rows), members)
        if domains is not None:
            sums = np.zeros(int(domains.max(initial=0)) + 1, dtype=np.int64)
            np.add.at(sums, domains[rows], capacities)
            if int(sums[1:].max(initial=0)) < members:
                return False
        elif int(capacities.sum()) < members:
            return False
        whole = {name: each * members for name, each in needs.request}
        view = StepView(group.spec, whole, members, step.extra, needs=(needs,))
        return not self._gang_allocator.rejections_of(group, view)

    def _smaller_share(self, group: GroupEntry, cls: TaskClass, step: NextTasks) -> SuggestedChange | None:
        """Return the largest device share with which the step would start.

        It is a share of compute, and of memory if both are equal; or of memory if only
        that is requested.
        """
        need = cls.needs.devices[0]
        now = need.milli or need.memory_mib or need.memory_milli
        if len(cls.needs.devices) > 1 or need.whole or now <= 1:
            return None

        def with_share(n: int) -> DeviceNeed:
            if not need.milli:
                return replace(need, memory_mib=n) if need.memory_mib else replace(need, memory_milli=n)
            same = need.memory_milli == need.milli
            return replace(need, milli=n, memory_milli=n if same else need.memory_milli)

        def needs_with(n: int) -> Needs:
            charged = {need.resource: need.milli * need.count} if need.milli else {}
            request = [
                (name, n * need.count if charged.get(name) == units else units)
                for name, units in cls.request.items()
            ]
            return replace(cls.needs, request=tuple(sorted(request)), devices=(with_share(n),))

        maximum = _largest(lambda n: self._would_start(group, cls, step, needs_with(n)), now - 1)
        if not maximum:
            return None
        current, suggested = describe_need(need), describe_need(with_share(maximum))
        return SuggestedChange(
            SuggestedChangeKind.REQUEST,
            group.key,
            f"devices[{need.resource}]",
            current,
            suggested,
            (now - maximum) / now,
            f"With {suggested} per pod instead of {current} it would start now.",
        )

    def _smaller_request(
        self, group: GroupEntry, cls: TaskClass, step: NextTasks, resource: str
    ) -> SuggestedChange | None:
        """Return the largest request of one resource with which the step would start."""
        units = cls.request[resource]
        unit = WHOLE if is_device(resource) else 1
        if resource == PODS or units <= unit:
            return None

        def suffices(n: int) -> bool:
            request = {**cls.request, resource: n * unit}
            needs = replace(cls.needs, request=tuple(sorted(request.items())))
            return self._would_start(group, cls, step, needs)

        maximum = _largest(suffices, (units - 1) // unit)
        if not maximum:
            return None
        wanted, now = from_units(resource, maximum * unit), from_units(resource, units)
        return SuggestedChange(
            SuggestedChangeKind.REQUEST,
            group.key,
            f"resources.requests[{resource}]",
            now,
            wanted,
            (units - maximum * unit) / units,
            f"With {wanted} {resource} per pod instead of {now} it would start now.",
        )

    def _more_nodes(
        self, cls: TaskClass, missing: int, inside: NDArray[np.int64] | None = None
    ) -> SuggestedChange | None:
        """Return how many more empty nodes like the best matching one are needed.

        ``inside``: only these rows.
        """
        rows = self._rows(cls)
        if inside is not None:
            rows = np.intersect1d(rows, inside)
        if not len(rows):
            return None
        capacities = capacity_if_empty(self._state, cls, rows)
        each = int(capacities.max())
        if each <= 0:
            return None
        name = min(self._state.table.names[row] for row in rows[capacities == each].tolist())
        n = -(-missing // each)
        live = int(self._state.table.live.sum())
        nodes = f"{n} node" if n == 1 else f"{n} nodes"
        return SuggestedChange(
            SuggestedChangeKind.ADD_NODES,
            name,
            "nodes",
            str(live),
            str(live + n),
            n / live,
            f"With {nodes} more like {name}, empty, it would start.",
        )

    def _without_blocker(
        self, cls: TaskClass, missing: int, inside: NDArray[np.int64] | None = None
    ) -> list[SuggestedChange | None]:
        """Return changes for nodes with capacity and a single blocker: cordon, taint or selector.

        ``inside``: only these rows.
        """
        state = self._state
        live = np.flatnonzero(state.table.live[: state.table.height])
        if inside is not None:
            live = np.intersect1d(live, inside)
        view = TableView(state.table, live)
        findings = blockers_by(state.plugins.static_blockers, cls.needs, view)
        if not findings:
            return []
        obstacles = np.sum([finding.blocked for finding in findings], axis=0)
        capacities = capacity_by_resources(state, cls.needs, live)
        changes: list[SuggestedChange | None] = []
        for blocker in findings:
            single_blocker = np.flatnonzero(blocker.blocked & (obstacles == 1) & (capacities > 0))
            if not len(single_blocker) or int(capacities[single_blocker].sum()) < missing:
                continue
            if blocker.code is Reason.NODE_UNSCHEDULABLE:
                changes.append(self._uncordon(live[single_blocker], capacities[single_blocker], missing))
            elif blocker.code in _REMOVABLE:
                changes.append(_drop_blocker(blocker))
        return changes

    def _uncordon(
        self, rows: NDArray[np.int64], capacities: NDArray[np.int64], missing: int
    ) -> SuggestedChange:
        names = self._state.table.names
        order = sorted(range(len(rows)), key=lambda at: (-int(capacities[at]), names[int(rows[at])]))
        chosen, capacity = [], 0
        for index in order:
            chosen.append(names[int(rows[index])])
            capacity += int(capacities[index])
            if capacity >= missing:
                break
        shown = ", ".join(chosen[:_MAX_NAMED]) + (" …" if len(chosen) > _MAX_NAMED else "")
        return SuggestedChange(
            SuggestedChangeKind.UNCORDON,
            ",".join(chosen),
            "spec.unschedulable",
            "true",
            "false",
            len(chosen) / int(self._state.table.live.sum()),
            f"Uncordon {shown}: windlass node uncordon {chosen[0]}.",
        )

    def _rows(self, cls: TaskClass) -> NDArray[np.int64]:
        live = np.flatnonzero(self._state.table.live[: self._state.table.height])
        return live[cls.static[live]]


def _all_needed(subgroup: MissingSubGroup) -> bool:
    return subgroup.needed_children >= len(subgroup.children) and all(
        _all_needed(below) for below in subgroup.children
    )


def _coarser(group: str, need: TopologyNeed, level: int) -> SuggestedChange:
    now = need.levels[need.required].shown
    wanted = need.levels[level].shown if level >= 0 else ""
    condition = (
        f"With {wanted} instead of {now} as the level"
        if wanted
        else f"If {now} were not required as the level"
    )
    sentence = f"{condition} of {need.topology} it would start now."
    if now == need.topology and not wanted:
        sentence = f"If its pods did not have to share one value of {now} it would start now."
    return SuggestedChange(
        SuggestedChangeKind.TOPOLOGY,
        group,
        "topology",
        now,
        wanted,
        (need.required - level) / (need.required + 1),
        sentence,
    )


def _drop_blocker(blocker: NodeBlocker) -> SuggestedChange:
    kind, field, template = _REMOVABLE[blocker.code]
    sentence = template.format(blocker.detail) + ": nodes that have the room differ in nothing else."
    return SuggestedChange(kind, blocker.detail, field, "", blocker.detail, 0.5, sentence)


def _largest(suffices: Callable[[int], bool], maximum: int) -> int:
    """Return the largest n from 1 to ``maximum`` for which ``does(n)`` is true, 0 if none.

    ``suffices`` has to be monotone: true for small n only.
    """
    low, high = 0, maximum + 1
    while high - low > 1:
        middle = (low + high) // 2
        if suffices(middle):
            low = middle
        else:
            high = middle
    return low
