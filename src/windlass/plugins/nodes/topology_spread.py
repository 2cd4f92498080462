"""Topology spread constraints, as in Kubernetes.

A *hard* constraint keeps a pod out of a domain if the domain would then have over
``max_skew`` matching pods more than the emptiest domain. Domains are the values of the
topology key on *eligible* nodes. A node is eligible if it has the keys of all hard
constraints of the pod. Where the constraint says so, it must also satisfy the pod's
node selector and affinity, or have only tolerated taints. Only pods on eligible nodes
count.

With fewer domains than ``min_domains``, the emptiest domain counts as empty. As in
kube-scheduler, a terminating pod does not count. Nodes without the key are filtered by
:mod:`windlass.plugins.nodes.spread_label_filter`.

*Soft* constraints are weighed by :class:`SoftTopologySpread`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from windlass.api.reasons import Reason
from windlass.plugins.nodes.node_affinity import NodeAffinity
from windlass.plugins.nodes.pod_class_index import (
    ClassLocations,
    Condition,
    HookIndex,
    carried,
    hooks_of,
    meets,
    selector_text,
)
from windlass.plugins.nodes.taints import TaintToleration
from windlass.spi.nodes import BoolArray, FloatArray, IntArray, NodeView
from windlass.spi.objects import Dialect, Needs, SpreadTerm
from windlass.spi.plugins import NodeBlocker

Placed = Iterable[tuple[int, Mapping[int, int]]]
HOST = "kubernetes.io/hostname"
NO_DOMAIN_COUNT = 1 << 40
"""Pods in the emptiest domain if there is no domain: no skew is too large."""


@dataclass(frozen=True, slots=True)
class SpreadScope:
    """Nodes on which pods and domains count: they have all keys and satisfy the needs below."""

    keys: tuple[str, ...]
    affinity: Needs | None
    taints: Needs | None


@dataclass(eq=False, slots=True)
class SpreadCounts:
    """Number of matching pods by domain of one key, on the nodes of one scope."""

    condition: Condition
    key: str
    scope: SpreadScope
    members: dict[int, None] = field(default_factory=dict)
    """The classes of matching pods."""
    users: int = 0
    listeners: dict[int, None] = field(default_factory=dict)
    """The classes with a hard constraint that uses these counts."""
    version: int = -1
    """Version of the node table for which the fields below are valid."""
    eligible: BoolArray = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))
    domains: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """Codes of the existing domains."""
    counts: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """Number of pods by code of the domain."""

    def emptiest(self, min_domains: int | None) -> int:
        """Return the number of pods in the domain that has the fewest."""
        if min_domains is not None and len(self.domains) < min_domains:
            return 0
        return int(self.counts[self.domains].min()) if len(self.domains) else NO_DOMAIN_COUNT


@dataclass(eq=False, slots=True)
class _Constraint:
    term: SpreadTerm
    counts: SpreadCounts
    own: int
    """1 if the pod matches its own selector."""
    emptiest: int = -1
    """Number of pods in the emptiest domain at the last query."""

    def limit(self) -> int:
        """Return the maximum number of pods in a domain for one more to be admitted."""
        self.emptiest = self.counts.emptiest(self.term.min_domains)
        return self.term.max_skew + self.emptiest - self.own


@dataclass(slots=True)
class _Member:
    needs: Needs
    labels: Mapping[str, str]
    hard: list[_Constraint] = field(default_factory=list)
    soft: list[_Constraint] = field(default_factory=list)
    counted_in: dict[SpreadCounts, None] = field(default_factory=dict)
    rows: dict[int, int] = field(default_factory=dict)
    """Pods of the class by row, maintained only while some counts include the class."""


class TopologySpread:
    name = "topology-spread"
    counts_terminating = False

    def __init__(self) -> None:
        self._nodes: NodeView | None = None
        self._members: dict[int, _Member] = {}
        self._numbers: dict[Needs, int] = {}
        self._spread_counts: dict[tuple[Condition, str, SpreadScope], SpreadCounts] = {}
        self._member_index = HookIndex[int]()
        self._counts_index = HookIndex[SpreadCounts]()
        self._affinity = NodeAffinity()
        self._taints = TaintToleration()

    # ------------------------------------------------------------------ updates

    def attach(self, nodes: NodeView) -> None:
        self._nodes = nodes

    def learn(self, number: int, needs: Needs, placed: Placed) -> None:
        member = _Member(needs, dict(needs.labels))
        self._members[number] = member
        self._numbers[needs] = number
        hooks = carried(needs)
        self._member_index.put(number, hooks)
        for counts in self._counts_index.find(hooks):
            if meets(needs, member.labels, (counts.condition,)):
                counts.members[number] = None
                member.counted_in[counts] = None
        if not needs.spread:
            return
        where = ClassLocations(number, placed)
        for terms, constraints in ((_hard(needs), member.hard), (_soft(needs), member.soft)):
            keys = tuple(sorted({term.topology_key for term in terms}))
            for term in terms:
                counts = self._counts_of(needs, term, keys, where)
                counts.users += 1
                constraints.append(_Constraint(term, counts, int(number in counts.members)))
                if term.hard:
                    counts.listeners[number] = None

    def forget(self, number: int) -> None:
        member = self._members.pop(number, None)
        if member is None:
            return
        del self._numbers[member.needs]
        self._member_index.drop(number, carried(member.needs))
        for counts in member.counted_in:
            del counts.members[number]
        for constraint in (*member.hard, *member.soft):
            counts = constraint.counts
            counts.listeners.pop(number, None)
            counts.users -= 1
            if counts.users:
                continue
            del self._spread_counts[counts.condition, counts.key, counts.scope]
            self._counts_index.drop(counts, hooks_of(counts.condition))
            for other in counts.members:
                counted_in = self._members[other].counted_in
                del counted_in[counts]
                if not counted_in:
                    self._members[other].rows = {}

    def add(self, number: int, row: int, count: int) -> None:
        member = self._members[number]
        if not member.counted_in:
            return
        left = member.rows.get(row, 0) + count
        if left:
            member.rows[row] = left
        else:
            del member.rows[row]
        for counts in member.counted_in:  # outdated counts are computed again at the next query
            if counts.version == self._all.version and counts.eligible[row]:
                counts.counts[self._all.label(counts.key)[row]] += count

    def relabelled(self, placed: Placed) -> None:
        for counts in self._spread_counts.values():
            counts.version = -1

    # ------------------------------------------------------------------ queries

    def is_interested(self, number: int) -> bool:
        member = self._members[number]
        return bool(member.counted_in or member.hard or member.soft)

    def constrains(self, number: int) -> bool:
        return bool(self._members[number].hard)

    def verdict(self, number: int, nodes: NodeView) -> BoolArray | None:
        mask: BoolArray | None = None
        for constraint in self._members[number].hard:
            allowed = self._allowed(constraint, nodes)
            mask = allowed if mask is None else mask & allowed
        return mask

    def touched(self, number: int, row: int) -> Sequence[tuple[str, int]] | None:
        domains: list[tuple[str, int]] = []
        for constraint in self._members[number].hard:
            if not constraint.own:
                continue
            before, counts = constraint.emptiest, constraint.counts
            self._update(counts)
            limit = constraint.limit()
            if constraint.emptiest != before:
                return None
            domain = int(self._all.label(counts.key)[row])
            if domain and counts.counts[domain] > limit:
                domains.append((counts.key, domain))
        return domains

    def listens_to(self, number: int) -> Collection[int]:
        classes: set[int] = set()
        for constraint in self._members[number].hard:
            classes |= constraint.counts.members.keys()
        return classes

    def listeners(self, number: int) -> Collection[int]:
        member = self._members.get(number)
        classes: set[int] = set()
        for counts in member.counted_in if member is not None else ():
            classes |= counts.listeners.keys()
        return classes

    def blockers(self, needs: Needs, nodes: NodeView) -> Sequence[NodeBlocker]:
        number = self._numbers.get(needs)
        if number is None:
            return []
        blockers = []
        for constraint in self._members[number].hard:
            blocked = ~self._allowed(constraint, nodes)
            if blocked.any():
                term = constraint.term
                detail = (
                    f"spread of {selector_text(term.selector)} per {term.topology_key}, "
                    f"at most {term.max_skew} apart"
                )
                if term.min_domains is not None:
                    detail += f", over at least {term.min_domains}"
                blockers.append(NodeBlocker(Reason.TOPOLOGY_SPREAD_CONFLICT, blocked, detail=detail))
        return blockers

    # ------------------------------------------------------------------ soft constraints

    def preferences(self, number: int) -> list[tuple[SpreadTerm, SpreadCounts]]:
        """Return the soft constraints of a class, with up-to-date counts."""
        preferences = []
        for constraint in self._members[number].soft:
            self._update(constraint.counts)
            preferences.append((constraint.term, constraint.counts))
        return preferences

    def on_row(self, spread_counts: SpreadCounts) -> IntArray:
        """Return the number of pods that the counts include, by row."""
        counts = np.zeros(self._all.size, dtype=np.int64)
        for number in spread_counts.members:
            for row, count in self._members[number].rows.items():
                counts[row] += count
        return counts

    # ------------------------------------------------------------------ helpers

    @property
    def _all(self) -> NodeView:
        if self._nodes is None:
            raise RuntimeError("the plugin is not attached to an engine")
        return self._nodes

    def _allowed(self, constraint: _Constraint, nodes: NodeView) -> BoolArray:
        counts = constraint.counts
        self._update(counts)
        codes = nodes.label(counts.key)
        return (codes == 0) | (counts.counts[codes] <= constraint.limit())

    def _counts_of(
        self,
        needs: Needs,
        term: SpreadTerm,
        keys: tuple[str, ...],
        where: ClassLocations,
    ) -> SpreadCounts:
        condition: Condition = (term.selector, (needs.namespace,))
        scope = SpreadScope(
            keys,
            Needs(node_selector=needs.node_selector, node_terms=needs.node_terms)
            if term.honor_affinity and (needs.node_selector or needs.node_terms is not None)
            else None,
            Needs(tolerations=needs.tolerations) if term.honor_taints else None,
        )
        key = (condition, term.topology_key, scope)
        counts = self._spread_counts.get(key)
        if counts is None:
            counts = self._spread_counts[key] = SpreadCounts(condition, term.topology_key, scope)
            hooks = hooks_of(condition)
            self._counts_index.put(counts, hooks)
            for number in self._member_index.find(hooks):
                member = self._members[number]
                if meets(member.needs, member.labels, (condition,)):
                    if not member.counted_in:
                        member.rows = dict(where.of(number))
                    counts.members[number] = None
                    member.counted_in[counts] = None
        return counts

    def _update(self, counts: SpreadCounts) -> None:
        """Compute the counts again if the nodes changed."""
        nodes = self._all
        if counts.version == nodes.version:
            return
        counts.version = nodes.version
        scope = counts.scope
        eligible = np.ones(nodes.size, dtype=np.bool_)
        for key in scope.keys:
            eligible &= nodes.label(key) != 0
        for needs, plugin in ((scope.affinity, self._affinity), (scope.taints, self._taints)):
            mask = plugin.filter(needs, nodes) if needs is not None else None
            if mask is not None:
                eligible &= mask
        codes = nodes.label(counts.key)
        size = len(nodes.label_values(counts.key))
        counts.eligible = eligible
        counts.domains = np.flatnonzero(np.bincount(codes[eligible], minlength=size))
        counts.counts = np.zeros(size, dtype=np.int64)
        for number in counts.members:
            for row, count in self._members[number].rows.items():
                if eligible[row]:
                    counts.counts[codes[row]] += count


class SoftTopologySpread:
    """Score of soft constraints as in kube-scheduler.

    The fewer matching pods a domain has, the higher is the score of its nodes. It reads
    the counts of the one :class:`TopologySpread` of the engine.
    """

    name = "podtopologyspread"

    def __init__(
        self, counts: TopologySpread, weight: float = 2.0, dialects: Collection[Dialect] = tuple(Dialect)
    ) -> None:
        self.weight = weight
        self.dialects = dialects
        self._counts = counts

    def is_interested(self, number: int) -> bool:
        return self._counts.is_interested(number)

    def has_preference(self, number: int, needs: Needs, nodes: NodeView) -> bool:
        return bool(needs.spread) and any(not term.hard for term in needs.spread)

    def relative(self, number: int, needs: Needs, nodes: NodeView, candidates: BoolArray) -> FloatArray:
        preferences = self._counts.preferences(number)
        carries = np.ones(nodes.size, dtype=np.bool_)
        for term, _ in preferences:
            carries &= nodes.label(term.topology_key) != 0
        counted = candidates & carries
        if not counted.any():
            return np.zeros(nodes.size)
        raw = np.zeros(nodes.size)
        for term, counts in preferences:
            codes = nodes.label(term.topology_key)
            if term.topology_key == HOST:
                pods, domains = self._counts.on_row(counts)[nodes.rows], int(counted.sum())
            else:
                pods, domains = counts.counts[codes], int(np.count_nonzero(np.bincount(codes[counted])))
            raw += pods * np.log(domains + 2) + (term.max_skew - 1)
        points = np.rint(raw).astype(np.int64)
        worst, best = int(points[counted].max()), int(points[counted].min())
        if worst == 0:
            return np.where(carries, 100.0, 0.0)
        return np.where(carries, np.clip(100 * (worst + best - points) // worst, 0, 100), 0).astype(
            np.float64
        )


def _hard(needs: Needs) -> list[SpreadTerm]:
    return [term for term in needs.spread if term.hard]


def _soft(needs: Needs) -> list[SpreadTerm]:
    return [term for term in needs.spread if not term.hard]
