"""Nodes whose kubelet would refuse a pod for its NUMA zones are not offered to it.

Pods that want nothing of zones, and clusters of which no zones are known, cost nothing. Others are placed one
by one, since each takes of a zone what the next cannot have.
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
"""A class that has seen nothing yet looks at all nodes."""
_MANY = 1024
"""So many pods no node holds."""
_TEXTS = 3
"""So many different texts are told; nodes beyond have a general one."""


class _Asking:
    """One class of tasks: what it asks for, and where it would be refused. ``named_policy``: the policy that it names,
    where that counts."""

    __slots__ = ("known", "mask", "most", "named_policy", "need", "seen", "services", "users")

    def __init__(self, need: NumaNeed, named_policy: AlignmentPolicy | None) -> None:
        self.need = need
        self.named_policy = named_policy
        self.users = 1
        self.services: dict[ZoneLayout, NumaService] = {}
        self.most: dict[ZoneLayout, int] = {}
        self.known: dict[State, NumaHolding | None] = {}
        self.mask: BoolArray = np.ones(0, dtype=np.bool_)
        """By row: whether the zones of the node let such a task in."""
        self.seen = _NOTHING


class NumaZones:
    """``preferences``: in whose dialects a policy that a pod names binds it to nodes that follow it."""

    name = "numa"

    def __init__(self, preferences: Collection[Dialect] = tuple(Dialect)) -> None:
        self._binding_apis = frozenset(preferences)
        self._row_zones: dict[int, RowZones] = {}
        self._asking: dict[int, _Asking] = {}
        self._by_need: dict[tuple[NumaNeed, AlignmentPolicy | None], _Asking] = {}
        self._restrictive_nodes = 0
        """How many nodes may refuse a pod for its zones."""
        self._log: list[int] = []
        """Rows in the order in which their books changed."""

    def ignore_policies_of(self, dialect: Dialect) -> None:
        """Policies that pods of a dialect name bind them to nothing (before any class is known)."""
        self._binding_apis -= {dialect}

    # ------------------------------------------------------------------ the books (ZoneBooks)

    def open(self, row: int, zones: NumaTopology | None) -> None:
        old = self._row_zones.pop(row, None)
        if old is not None:
            self._restrictive_nodes -= _minds(old.layout.node)
        if zones is not None and zones.zones:
            self._row_zones[row] = RowZones(zones)
            self._restrictive_nodes += _minds(zones)
        self._note(row)

    def plan(self, number: int, row: int) -> NumaHolding | None:
        asking, row_zones = self._asking.get(number), self._row_zones.get(row)
        if asking is None or row_zones is None:
            return NO_HOLDING
        return self._served(asking, row_zones)

    def most(self, number: int, row: int) -> int | None:
        asking, row_zones = self._asking.get(number), self._row_zones.get(row)
        if asking is None:
            return None
        if row_zones is None:
            return None if asking.named_policy is None else 0
        if not _follows(asking, row_zones.layout.node):
            return 0
        found = asking.most.get(row_zones.layout)
        if found is None:
            found = asking.most[row_zones.layout] = _served_in_all(
                _service(asking, row_zones.layout), row_zones.layout
            )
        return found

    def take(
        self, number: int, row: int, cards: tuple[tuple[str, int], ...], reported: NumaHolding | None
    ) -> NumaHolding:
        row_zones = self._row_zones.get(row)
        if row_zones is None:
            return reported or NO_HOLDING
        asking = self._asking.get(number)
        holding = reported
        if holding is None and asking is not None:
            holding = row_zones.guessed(_service(asking, row_zones.layout))
        holding = row_zones.with_cards(holding or NO_HOLDING, cards)
        self.hold(row, holding)
        return holding

    def hold(self, row: int, holding: NumaHolding) -> None:
        row_zones = self._row_zones.get(row)
        if row_zones is not None and holding is not NO_HOLDING:
            row_zones.change(holding, 1)
            self._note(row)

    def give(self, row: int, holding: NumaHolding) -> None:
        row_zones = self._row_zones.get(row)
        if row_zones is not None and holding is not NO_HOLDING:
            row_zones.change(holding, -1)
            self._note(row)

    def zones_used(self, number: int, row: int) -> int:
        """From how many zones a task of the class would be served there; 0 if from none, or refused."""
        found = self.plan(number, row)
        return 0 if found is None else len(found.zones)

    # ------------------------------------------------------------------ a policy about pods (Domain)

    def attach(self, nodes: NodeView) -> None:
        return

    def learn(self, number: int, needs: Needs, placed: Iterable[tuple[int, Mapping[int, int]]]) -> None:
        if needs.zones is None:
            return
        named_policy = needs.zones.policy if needs.dialect in self._binding_apis else None
        if named_policy is AlignmentPolicy.NONE:
            named_policy = None
        key = (needs.zones, named_policy)
        asking = self._by_need.get(key)
        if asking is None:
            asking = self._by_need[key] = _Asking(needs.zones, named_policy)
        else:
            asking.users += 1
        self._asking[number] = asking

    def forget(self, number: int) -> None:
        asking = self._asking.pop(number, None)
        if asking is not None:
            asking.users -= 1
            if not asking.users:
                del self._by_need[asking.need, asking.named_policy]

    def add(self, number: int, row: int, count: int) -> None:
        return

    def is_interested(self, number: int) -> bool:
        return number in self._asking

    def constrains(self, number: int) -> bool:
        asking = self._asking.get(number)
        return asking is not None and (self._restrictive_nodes > 0 or asking.named_policy is not None)

    def verdict(self, number: int, nodes: NodeView) -> BoolArray | None:
        asking = self._asking.get(number)
        if asking is None:
            return None
        rows = nodes.rows
        self._renew(asking, int(rows.max(initial=-1)) + 1)
        return asking.mask[rows]

    def touched(self, number: int, row: int) -> Sequence[tuple[str, int]] | None:
        return [("", row)] if number in self._asking else []

    def listens_to(self, number: int) -> Collection[int]:
        return self.listeners(number)

    def listeners(self, number: int) -> Collection[int]:
        """Whoever holds anything of zones holds what another may wait for."""
        return tuple(self._asking) if number in self._asking else ()

    def relabelled(self, placed: Iterable[tuple[int, Mapping[int, int]]]) -> None:
        return

    # ------------------------------------------------------------------ why not (Findings)

    def blockers(self, needs: Needs, nodes: NodeView) -> Sequence[NodeBlocker]:
        if needs.zones is None:
            return []
        named_policy = needs.zones.policy if needs.dialect in self._binding_apis else None
        asking = self._by_need.get(
            (needs.zones, None if named_policy is AlignmentPolicy.NONE else named_policy)
        )
        if asking is None or not (self._restrictive_nodes or asking.named_policy):
            return []
        rows = nodes.rows
        self._renew(asking, int(rows.max(initial=-1)) + 1)
        blocked = ~asking.mask[rows]
        by_text: dict[str, list[int]] = {}
        for at in np.flatnonzero(blocked).tolist():
            by_text.setdefault(self._why(asking, int(rows[at])), []).append(at)
        told = sorted(by_text.items(), key=lambda item: (-len(item[1]), item[0]))
        found = [_finding(blocked, places, text) for text, places in told[:_TEXTS]]
        rest = [at for _, places in told[_TEXTS:] for at in places]
        if rest:
            found.append(_finding(blocked, rest, "no zones serve it as the node's policy demands"))
        return found

    def _why(self, asking: _Asking, row: int) -> str:
        row_zones = self._row_zones.get(row)
        if row_zones is None:
            return wanting(asking.named_policy or AlignmentPolicy.NONE, None)
        if not _follows(asking, row_zones.layout.node):
            return wanting(asking.named_policy or AlignmentPolicy.NONE, row_zones.layout.node)
        return lacking(row_zones, _service(asking, row_zones.layout))

    # ------------------------------------------------------------------ parts

    def _renew(self, asking: _Asking, height: int) -> None:
        """Bring a class's mask up to date with the books."""
        if len(asking.mask) < height:
            asking.mask = np.full(max(64, 2 * height), asking.named_policy is None, dtype=np.bool_)
            asking.seen = _NOTHING
        log = self._log
        if asking.seen == len(log):
            return
        if asking.seen == _NOTHING:
            asking.mask[:] = asking.named_policy is None
            rows: Iterable[int] = self._row_zones
        else:
            rows = set(log[asking.seen :])
        for row in rows:
            if row < len(asking.mask):
                asking.mask[row] = self._lets_in(asking, row)
        asking.seen = len(log)

    def _note(self, row: int) -> None:
        """The books of a row changed."""
        if len(self._log) >= _LOGGED:
            self._log.clear()
            for asking in self._by_need.values():
                asking.seen = _NOTHING
        self._log.append(row)

    def _lets_in(self, asking: _Asking, row: int) -> bool:
        row_zones = self._row_zones.get(row)
        if row_zones is None:
            return asking.named_policy is None
        return _follows(asking, row_zones.layout.node) and self._served(asking, row_zones) is not None

    def _served(self, asking: _Asking, row_zones: RowZones) -> NumaHolding | None:
        state = row_zones.state()
        known = asking.known
        if state in known:
            return known[state]
        requested = _service(asking, row_zones.layout)
        if len(known) > _REMEMBERED:
            known.clear()
        found = known[state] = serve(
            requested.need, row_zones.layout, row_zones.allocation(), requested.policy
        )
        return found


def _service(asking: _Asking, layout: ZoneLayout) -> NumaService:
    found = asking.services.get(layout)
    if found is None:
        need = asking.need
        if asking.named_policy is None and need.policy is not None:
            need = NumaNeed(need.containers, need.guaranteed)
        found = asking.services[layout] = service(need, layout.node)
    return found


def _served_in_all(requested: NumaService, layout: ZoneLayout) -> int:
    """How many such pods an empty node serves, one after the other."""
    allocation = RowZones(layout.node).allocation()
    count = 0
    while count < _MANY:
        found = serve(requested.need, layout, allocation, requested.policy)
        if found is None:
            return count
        if not found.zones:
            return _MANY  # they take nothing of any zone
        count += 1
    return count


def _follows(asking: _Asking, node: NumaTopology) -> bool:
    """Return whether the node serves pods by the policy that the class names."""
    if asking.named_policy is None or node.obeys:
        return True
    return node.policy is asking.named_policy and node.exclusive_cpus


def _minds(node: NumaTopology) -> bool:
    """Return whether the node may refuse any pod for its zones, or serves some in whole zones."""
    return node.policy is not AlignmentPolicy.NONE or node.pinned_memory


def _finding(blocked: BoolArray, places: Sequence[int], text: str) -> NodeBlocker:
    here = np.zeros(len(blocked), dtype=np.bool_)
    here[list(places)] = True
    return NodeBlocker(Reason.NUMA_ALIGNMENT_FAILED, here, detail=text)
