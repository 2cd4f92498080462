"""Diagnosis of topology domains for a group: tried domains, and what each of them lacks.

There is a result if a level is required and no domain of that level holds all missing
tasks, by counting. Tighter levels cannot hold them either. The capacity of their best
domain is reported as well.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from windlass.api.reasons import Blocker, NearMiss, Reason
from windlass.engine.diagnosis.node_diagnosis import held_empty
from windlass.engine.feasibility.task_class import TaskClass
from windlass.engine.groups.entries import GroupEntry
from windlass.engine.groups.next_step import MissingSubGroup, NextTasks
from windlass.engine.nodes.table import PODS
from windlass.engine.placement.domain_selector import DomainDemand, DomainSelector, held_rows
from windlass.engine.placement.topology_domains import DomainSums, DomainTree
from windlass.engine.state.cluster_state import ClusterState
from windlass.spi.nodes import IntArray
from windlass.spi.quantities import from_units
from windlass.spi.topology import NODE_NAME, TopologyNeed

NAMED = 8
"""Maximum number of domains that are named, those that lack least."""


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


def diagnose_domains(
    state: ClusterState, domain_selector: DomainSelector, group: GroupEntry, step: NextTasks
) -> DomainDiagnosis | None:
    """Diagnose the topology constraints of a group's next step, and of its subgroups.

    ``None`` if counts are not the problem.
    """
    need = group.spec.topology
    if need is not None and need.required >= 0:
        demand = DomainDemand.of(step.batches, max(step.members, 1))
        found = _Judge(state, domain_selector, need, demand, held_rows(group)).verdict("")
        if found is not None:
            return found
    for part in _lacking(step):
        below = group.near_parts.get(part.name)
        if below is None or below.required < 0:
            continue
        held = held_rows(group, part.name)
        found = _Judge(state, domain_selector, below, DomainDemand.of_part(part), held).verdict(part.name)
        if found is not None and (step.root is not None or step.options[:1] == [part]):
            return found
    return None


def _lacking(step: NextTasks) -> list[MissingSubGroup]:
    """Return all subgroups of a step, from the top."""
    found: list[MissingSubGroup] = []
    left = [step.root] if step.root is not None else list(step.options)
    while left:
        part = left.pop(0)
        found.append(part)
        if part.needed == len(part.parts):
            left += part.parts
    return found


class _Judge:
    def __init__(
        self,
        state: ClusterState,
        domain_selector: DomainSelector,
        need: TopologyNeed,
        demand: DomainDemand,
        held: list[int],
    ) -> None:
        self._state = state
        self._domain_selector = domain_selector
        self._need = need
        self._demand = demand
        self._held = held
        self._tree: DomainTree = domain_selector.forest.of(need)

    def verdict(self, part: str) -> DomainDiagnosis | None:
        need, demand = self._need, self._demand
        level = need.required
        codes = self._codes(level)
        room = self._room(level)
        if len(codes) and int(room[codes].max()) >= demand.members:
            return None
        ever = self._ever(level)
        fitting = int(room[codes].max()) if len(codes) else 0
        most = int(ever[codes].max()) if len(codes) else 0
        never = most < demand.members + len(self._held)
        code = Reason.EXCEEDS_EVERY_DOMAIN if never else Reason.TOPOLOGY_PLACEMENT_FAILED
        order = codes[np.lexsort((codes, -ever[codes] if never else -room[codes]))][:NAMED]
        return DomainDiagnosis(
            code,
            self._sentence(part, codes, order, room, ever, never=never),
            (*self._summary(code, codes, fitting), *self._each(code, order, room, ever)),
            self._nearest(order, room) if len(order) else None,
            need,
            demand.members,
            fitting,
            most,
            self._coarser(),
        )

    def _codes(self, level: int) -> IntArray:
        """Return the possible domains; at most one if the group has placed members."""
        if self._held:
            common = self._tree.common(level, self._held)
            return np.array([common] if common else [], dtype=np.int64)
        return np.arange(1, len(self._tree.names[level]), dtype=np.int64)

    def _room(self, level: int) -> IntArray:
        """Return the current capacity per domain, at most that of empty nodes if NUMA matters."""
        room = self._domain_selector.room(self._tree, level, self._demand)
        if any(
            cls.needs.zones is not None for cls in self._demand.classes
        ):  # counted by resources only so far
            room = np.minimum(room, self._ever(level))
        return self._by_amounts(level, room, used=True)

    def _ever(self, level: int) -> IntArray:
        """Return the capacity per domain if it were empty."""
        found = np.zeros(len(self._tree.names[level]), dtype=np.int64)
        for cls, there in self._demand.classes.items():
            most = self._tree.sums(level, self._empty(cls), self._matching(cls))
            found += most if len(self._demand.classes) == 1 else np.minimum(most, there + len(self._held))
        return self._by_amounts(level, found, used=False)

    def _by_amounts(self, level: int, room: IntArray, *, used: bool) -> IntArray:
        """Limit counts of several classes by the resources that all of them request.

        The counts are for each class alone. Together the tasks fit no more often than
        the smallest request.
        ``used``: take running tasks into account.
        """
        if len(self._demand.classes) == 1:
            return room
        requests = [dict(cls.needs.node_request) for cls in self._demand.classes]
        sums = DomainSums(self._state.table, self._tree, level, np.arange(1, len(room), dtype=np.int64))
        found = room.copy()
        for name in set[str](requests[0]).intersection(*requests[1:]):
            units = min(request[name] for request in requests)
            if units > 0:
                free = sums.allocatable(name) - (sums.used(name) if used else 0)
                found[1:] = np.minimum(found[1:], np.maximum(free // units, 0))
        return found

    def _matching(self, cls: TaskClass) -> IntArray:
        cls.refresh()
        table = self._state.table
        return np.flatnonzero(table.live[: self._tree.height] & cls.static[: self._tree.height])

    def _empty(self, cls: TaskClass) -> IntArray:
        return held_empty(self._state, cls, self._matching(cls))

    # ------------------------------------------------------------------ messages

    def _sentence(
        self, part: str, codes: IntArray, order: IntArray, room: IntArray, ever: IntArray, *, never: bool
    ) -> str:
        tree, need, members = self._tree, self._need, self._demand.members
        level = need.levels[need.required].shown
        full = level if level == need.topology else f"{level} ({need.topology})"
        whose = f" of sub-group {part}" if part else ""
        pods = f"{members} {'pod' if members == 1 else 'pods'}{whose}"
        more = f" more beside the {len(self._held)} that run" if self._held else ""
        single = need.levels[need.required].label == NODE_NAME
        where = "on one node" if single else f"in one domain of {full}"
        if not len(codes) and self._held:
            return f"Its {len(self._held)} running pods{whose} lie in no one domain of {level}, which is required."
        if not len(codes):
            if level == need.topology:
                return f"No node carries the label {level}, by which its pods must lie together."
            return f"No node is in a domain of {full}, which is required."
        names = tree.names[need.required]
        if never:
            best = int(order[0])
            return (
                f"{pods}{more} must lie {where}; of {len(codes)} none would "
                f"hold them even if empty: {names[best]} would hold {int(ever[best])}."
            )
        listed = ", ".join(f"{names[code]} holds {int(room[code])}" for code in order[:4].tolist())
        rest = f", {len(codes) - 4} others hold no more" if len(codes) > 4 else ""
        return f"{pods}{more} must lie {where}; of {len(codes)} none holds them now: {listed}{rest}."

    def _summary(self, code: Reason, codes: IntArray, fitting: int) -> list[Blocker]:
        """Return the blockers of the required level, then of the tighter levels that were tried."""
        need, tree = self._need, self._tree
        found = []
        for level in sorted(need.tried()):
            inside = codes if level == need.required else self._codes(level)
            nodes = int((tree.codes[level] > 0).sum())
            best = fitting
            if level != need.required:
                room = self._room(level)
                best = int(room[inside].max()) if len(inside) else 0
            words = f"the most that one domain of {need.levels[level].shown} takes, of {len(inside)}"
            found.append(Blocker(code, nodes, "tasks", str(self._demand.members), str(best), words))
        return found

    def _each(self, code: Reason, order: IntArray, room: IntArray, ever: IntArray) -> list[Blocker]:
        tree, level = self._tree, self._need.required
        shown = ever if code is Reason.EXCEEDS_EVERY_DOMAIN else room
        return [
            Blocker(
                code,
                len(tree.scope(level, one).rows),
                "tasks",
                str(self._demand.members),
                str(int(shown[one])),
                f"{self._need.levels[level].shown} {tree.names[level][one]}",
            )
            for one in order.tolist()
        ]

    def _nearest(self, order: IntArray, room: IntArray) -> NearMiss:
        """Return the best domain and what it lacks.

        It lacks total resources, or else capacity on single nodes.
        """
        tree, level, code = self._tree, self._need.required, int(order[0])
        sums = DomainSums(self._state.table, tree, level, np.array([code], dtype=np.int64))
        lacks = []
        for name, units in self._demand.request().items():
            short = units - int(sums.allocatable(name)[0] - sums.used(name)[0])
            if name != PODS and short > 0:
                lacks.append(f"{from_units(name, short)} {name}")
        left = self._demand.members - int(room[code])
        pods = "1 pod" if left == 1 else f"{left} pods"
        return NearMiss(tree.names[level][code], ", ".join(lacks) or f"nodes with room for {pods} more")

    def _coarser(self) -> tuple[str, str] | None:
        need, tree = self._need, self._tree
        for level in range(need.required - 1, -1, -1):
            codes = self._codes(level)
            room = self._room(level)
            able = codes[room[codes] >= self._demand.members] if len(codes) else codes
            if len(able):
                return tree.names[level][int(able[0])], need.levels[level].shown
        return None
