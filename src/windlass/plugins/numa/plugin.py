"""Filter of nodes on which the kubelet would reject a pod because of its NUMA zones.

Pods without NUMA requests, and clusters without known zones, cost nothing. Other pods
are placed one by one, since each allocation changes what the next can have.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np

from windlass.api.reasons import Reason
from windlass.plugins.numa.kubelet_allocation import ZoneLayout, serve
from windlass.plugins.numa.messages import lacking, wanting
from windlass.plugins.numa.zone_usage import NumaService, RowZones, State, service
from windlass.spi.nodes import BoolArray, NodeView
from windlass.spi.numa import NO_HOLDING, AlignmentPolicy, NumaHolding, NumaNeed, NumaTopology
from windlass.spi.objects import Dialect, Needs
from windlass.spi.plugins import NodeBlocker

_REMEMBERED = 50_000
_LOGGED = 200_000
_NOTHING = -1
"""Initial position: a new class tests all nodes."""
_MANY = 1024
"""Upper bound for the number of pods of one class on a node."""
_TEXTS = 3
"""Maximum number of different texts; further nodes get a general one."""


class _NumaClass:
    """NUMA request of one class of tasks, and the nodes that would reject it.

    ``named_policy``: the policy that the pod names, if it is binding.
    """

    __slots__ = ("known", "mask", "most", "named_policy", "need", "seen", "services", "users")

    def __init__(self, need: NumaNeed, named_policy: AlignmentPolicy | None) -> None:
        self.need = need
        self.named_policy = named_policy
        self.users = 1
        self.services: dict[ZoneLayout, NumaService] = {}
        self.most: dict[ZoneLayout, int] = {}
        self.known: dict[State, NumaHolding | None] = {}
        self.mask: BoolArray = np.ones(0, dtype=np.bool_)
        """By row: true if the node's zones fit such a task."""
        self.seen = _NOTHING


class NumaZones:
    """Filter and accounting of NUMA zones.

    :param preferences: queue APIs for which a policy that a pod names is binding
    """

    name = "numa"

    def __init__(self, preferences: Collection[Dialect] = tuple(Dialect)) -> None:
        self._binding_apis = frozenset(preferences)
        self._row_zones: dict[int, RowZones] = {}
        self._classes: dict[int, _NumaClass] = {}
        self._by_need: dict[tuple[NumaNeed, AlignmentPolicy | None], _NumaClass] = {}
        self._restrictive_nodes = 0
        """Number of nodes that may reject a pod because of its zones."""
        self._log: list[int] = []
        """Rows in the order in which their allocations changed."""

    def ignore_policies_of(self, dialect: Dialect) -> None:
        """Treat policies named by pods of a queue API as not binding (before any class
        is known)."""
        self._binding_apis -= {dialect}

    # ------------------------------------------------------------------ accounting
    # (ZoneBooks)

    def open(self, row: int, zones: NumaTopology | None) -> None:
        old = self._row_zones.pop(row, None)
        if old is not None:
            self._restrictive_nodes -= _restricts(old.layout.node)
        if zones is not None and zones.zones:
            self._row_zones[row] = RowZones(zones)
            self._restrictive_nodes += _restricts(zones)
        self._record_change(row)

    def plan(self, number: int, row: int) -> NumaHolding | None:
        numa_class, row_zones = self._classes.get(number), self._row_zones.get(row)
        if numa_class is None or row_zones is None:
            return NO_HOLDING
        return self._served(numa_class, row_zones)

    def most(self, number: int, row: int) -> int | None:
        numa_class, row_zones = self._classes.get(number), self._row_zones.get(row)
        if numa_class is None:
            return None
        if row_zones is None:
            return None if numa_class.named_policy is None else 0
        if not _follows(numa_class, row_zones.layout.node):
            return 0
        most = numa_class.most.get(row_zones.layout)
        if most is None:
            most = numa_class.most[row_zones.layout] = _served_in_all(
                _service(numa_class, row_zones.layout), row_zones.layout
            )
        return most

    def take(
        self, number: int, row: int, cards: tuple[tuple[str, int], ...], reported: NumaHolding | None
    ) -> NumaHolding:
        row_zones = self._row_zones.get(row)
        if row_zones is None:
            return reported or NO_HOLDING
        numa_class = self._classes.get(number)
        holding = reported
        if holding is None and numa_class is not None:
            holding = row_zones.estimated(_service(numa_class, row_zones.layout))
        holding = row_zones.with_devices(holding or NO_HOLDING, cards)
        self.hold(row, holding)
        return holding

    def hold(self, row: int, holding: NumaHolding) -> None:
        row_zones = self._row_zones.get(row)
        if row_zones is not None and holding is not NO_HOLDING:
            row_zones.change(holding, 1)
            self._record_change(row)

    def give(self, row: int, holding: NumaHolding) -> None:
        row_zones = self._row_zones.get(row)
        if row_zones is not None and holding is not NO_HOLDING:
            row_zones.change(holding, -1)
            self._record_change(row)

    def zones_used(self, number: int, row: int) -> int:
        """Return the number of zones that serve a task of the class there; 0 if there
        are none or it is rejected."""
        holding = self.plan(number, row)
        return 0 if holding is None else len(holding.zones)

    # ------------------------------------------------------------------ domain (Domain)

    def attach(self, nodes: NodeView) -> None:
        return

    def learn(self, number: int, needs: Needs, placed: Iterable[tuple[int, Mapping[int, int]]]) -> None:
        if needs.zones is None:
            return
        named_policy = needs.zones.policy if needs.dialect in self._binding_apis else None
        if named_policy is AlignmentPolicy.NONE:
            named_policy = None
        key = (needs.zones, named_policy)
        numa_class = self._by_need.get(key)
        if numa_class is None:
            numa_class = self._by_need[key] = _NumaClass(needs.zones, named_policy)
        else:
            numa_class.users += 1
        self._classes[number] = numa_class

    def forget(self, number: int) -> None:
        numa_class = self._classes.pop(number, None)
        if numa_class is not None:
            numa_class.users -= 1
            if not numa_class.users:
                del self._by_need[numa_class.need, numa_class.named_policy]

    def add(self, number: int, row: int, count: int) -> None:
        return

    def is_interested(self, number: int) -> bool:
        return number in self._classes

    def constrains(self, number: int) -> bool:
        numa_class = self._classes.get(number)
        return numa_class is not None and (self._restrictive_nodes > 0 or numa_class.named_policy is not None)

    def verdict(self, number: int, nodes: NodeView) -> BoolArray | None:
        numa_class = self._classes.get(number)
        if numa_class is None:
            return None
        rows = nodes.rows
        self._update_mask(numa_class, int(rows.max(initial=-1)) + 1)
        return numa_class.mask[rows]

    def touched(self, number: int, row: int) -> Sequence[tuple[str, int]] | None:
        return [("", row)] if number in self._classes else []

    def listens_to(self, number: int) -> Collection[int]:
        return self.listeners(number)

    def listeners(self, number: int) -> Collection[int]:
        """Return the classes that may fit after changes by this class: all with NUMA requests."""
        return tuple(self._classes) if number in self._classes else ()

    def relabelled(self, placed: Iterable[tuple[int, Mapping[int, int]]]) -> None:
        return

    # ------------------------------------------------------------------ blockers
    # (Findings)

    def blockers(self, needs: Needs, nodes: NodeView) -> Sequence[NodeBlocker]:
        if needs.zones is None:
            return []
        named_policy = needs.zones.policy if needs.dialect in self._binding_apis else None
        numa_class = self._by_need.get(
            (needs.zones, None if named_policy is AlignmentPolicy.NONE else named_policy)
        )
        if numa_class is None or not (self._restrictive_nodes or numa_class.named_policy):
            return []
        rows = nodes.rows
        self._update_mask(numa_class, int(rows.max(initial=-1)) + 1)
        blocked = ~numa_class.mask[rows]
        by_text: dict[str, list[int]] = {}
        for index in np.flatnonzero(blocked).tolist():
            by_text.setdefault(self._why(numa_class, int(rows[index])), []).append(index)
        texts = sorted(by_text.items(), key=lambda item: (-len(item[1]), item[0]))
        blockers = [_blocker(blocked, places, text) for text, places in texts[:_TEXTS]]
        rest = [index for _, places in texts[_TEXTS:] for index in places]
        if rest:
            blockers.append(_blocker(blocked, rest, "no zones serve it as the node's policy demands"))
        return blockers

    def _why(self, numa_class: _NumaClass, row: int) -> str:
        row_zones = self._row_zones.get(row)
        if row_zones is None:
            return wanting(numa_class.named_policy or AlignmentPolicy.NONE, None)
        if not _follows(numa_class, row_zones.layout.node):
            return wanting(numa_class.named_policy or AlignmentPolicy.NONE, row_zones.layout.node)
        return lacking(row_zones, _service(numa_class, row_zones.layout))

    # ------------------------------------------------------------------ helpers

    def _update_mask(self, numa_class: _NumaClass, height: int) -> None:
        """Update a class's mask by the changed rows."""
        if len(numa_class.mask) < height:
            numa_class.mask = np.full(max(64, 2 * height), numa_class.named_policy is None, dtype=np.bool_)
            numa_class.seen = _NOTHING
        log = self._log
        if numa_class.seen == len(log):
            return
        if numa_class.seen == _NOTHING:
            numa_class.mask[:] = numa_class.named_policy is None
            rows: Iterable[int] = self._row_zones
        else:
            rows = set(log[numa_class.seen :])
        for row in rows:
            if row < len(numa_class.mask):
                numa_class.mask[row] = self._fits(numa_class, row)
        numa_class.seen = len(log)

    def _record_change(self, row: int) -> None:
        """Record a change of a row's allocations."""
        if len(self._log) >= _LOGGED:
            self._log.clear()
            for numa_class in self._by_need.values():
                numa_class.seen = _NOTHING
        self._log.append(row)

    def _fits(self, numa_class: _NumaClass, row: int) -> bool:
        row_zones = self._row_zones.get(row)
        if row_zones is None:
            return numa_class.named_policy is None
        return _follows(numa_class, row_zones.layout.node) and self._served(numa_class, row_zones) is not None

    def _served(self, numa_class: _NumaClass, row_zones: RowZones) -> NumaHolding | None:
        state = row_zones.state()
        known = numa_class.known
        if state in known:
            return known[state]
        requested = _service(numa_class, row_zones.layout)
        if len(known) > _REMEMBERED:
            known.clear()
        holding = known[state] = serve(
            requested.need, row_zones.layout, row_zones.allocation(), requested.policy
        )
        return holding


def _service(numa_class: _NumaClass, layout: ZoneLayout) -> NumaService:
    cached = numa_class.services.get(layout)
    if cached is None:
        need = numa_class.need
        if numa_class.named_policy is None and need.policy is not None:
            need = NumaNeed(need.containers, need.guaranteed)
        cached = numa_class.services[layout] = service(need, layout.node)
    return cached


def _served_in_all(requested: NumaService, layout: ZoneLayout) -> int:
    """Return the number of such pods that an empty node serves, one after the other."""
    allocation = RowZones(layout.node).allocation()
    count = 0
    while count < _MANY:
        holding = serve(requested.need, layout, allocation, requested.policy)
        if holding is None:
            return count
        if not holding.zones:
            return _MANY  # such pods use no zone
        count += 1
    return count


def _follows(numa_class: _NumaClass, node: NumaTopology) -> bool:
    """Return whether the node applies the policy that the class names."""
    if numa_class.named_policy is None or node.obeys:
        return True
    return node.policy is numa_class.named_policy and node.exclusive_cpus


def _restricts(node: NumaTopology) -> bool:
    """Return whether the node may reject pods because of their zones, or pins memory."""
    return node.policy is not AlignmentPolicy.NONE or node.pinned_memory


def _blocker(blocked: BoolArray, places: Sequence[int], text: str) -> NodeBlocker:
    mask = np.zeros(len(blocked), dtype=np.bool_)
    mask[list(places)] = True
    return NodeBlocker(Reason.NUMA_ALIGNMENT_FAILED, mask, detail=text)
