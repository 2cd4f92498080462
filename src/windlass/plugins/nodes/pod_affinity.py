"""Pod affinity and anti-affinity in both directions, as in Kubernetes.

* Anti-affinity: a pod cannot be placed in a domain that has a pod which matches one of
  its terms. Because of symmetry, neither can it be placed in a domain that has a pod
  with an anti-affinity term which matches it.
* Affinity: a pod can only be placed in domains that have a pod which matches *all* its
  terms. If no pod in the cluster does, and the pod matches the terms itself, it is the
  first of its kind: any node that has the keys will do.
* Preferred terms are weighed by :class:`PreferredPodAffinity`, also in both directions:
  the preferences of a running pod about an incoming one count for the incoming pod, and
  each required affinity of a running pod counts 1.

A domain is the set of nodes with one value of the topology key. A node without the key
is in no domain. Counts per domain are updated with every placement, never computed
again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from windlass.api.reasons import Reason
from windlass.plugins.nodes.pod_class_index import (
    ClassLocations,
    Condition,
    DomainTally,
    HookIndex,
    carried,
    condition_of,
    hooks_of,
    meets,
    selector_text,
)
from windlass.spi.nodes import BoolArray, FloatArray, NodeView
from windlass.spi.objects import Dialect, Needs, PodTerm
from windlass.spi.plugins import NodeBlocker

Placed = Iterable[tuple[int, Mapping[int, int]]]
HARD_WEIGHT = 1
"""Score of a running pod's required affinity for a matching pod (kube-scheduler's default)."""


@dataclass(eq=False, slots=True)
class MatchCount:
    """Number of pods that match a set of conditions, by topology key and domain.

    ``members``: the classes that meet all conditions.
    """

    conditions: tuple[Condition, ...]
    tallies: dict[str, DomainTally] = field(default_factory=dict)
    members: dict[int, None] = field(default_factory=dict)
    users: int = 0
    """Number of classes with a term that uses these counts."""
    listeners: dict[int, None] = field(default_factory=dict)
    """The classes among them for which the term is required."""


@dataclass(eq=False, slots=True)
class ReverseMatchCount:
    """Number of pods with one term, by domain, for the pods that the term matches.

    ``weight`` 0: a required anti-affinity, which keeps matching pods out. Any other
    weight is added to the domain's score for matching pods.

    ``owners``: classes with the term. ``subjects``: classes that the term matches.
    """

    condition: Condition
    weight: int
    tally: DomainTally
    owners: dict[int, None] = field(default_factory=dict)
    subjects: dict[int, None] = field(default_factory=dict)


@dataclass(slots=True)
class _Member:
    """State of one class."""

    needs: Needs
    labels: Mapping[str, str]
    anti: list[tuple[PodTerm, MatchCount, DomainTally]] = field(default_factory=list)
    wanted: MatchCount | None = None
    wanted_tallies: list[tuple[PodTerm, DomainTally]] = field(default_factory=list)
    preferences: list[tuple[int, DomainTally]] = field(default_factory=list)
    repelled_by: dict[ReverseMatchCount, None] = field(default_factory=dict)
    attracted_by: dict[ReverseMatchCount, None] = field(default_factory=dict)
    counted_in: dict[DomainTally, None] = field(default_factory=dict)
    match_counts: dict[MatchCount, None] = field(default_factory=dict)
    """The counts that the class's pods are part of."""
    asks: list[MatchCount] = field(default_factory=list)
    reverses: dict[ReverseMatchCount, None] = field(default_factory=dict)
    """The counts of the class's own terms."""


class PodAffinity:
    name = "pod-affinity"

    def __init__(self) -> None:
        self._nodes: NodeView | None = None
        self._members: dict[int, _Member] = {}
        self._numbers: dict[Needs, int] = {}
        self._match_counts: dict[tuple[Condition, ...], MatchCount] = {}
        self._reverse_counts: dict[tuple[Condition, str, int], ReverseMatchCount] = {}
        self._member_index = HookIndex[int]()
        self._match_count_index = HookIndex[MatchCount]()
        self._reverse_index = HookIndex[ReverseMatchCount]()

    # ------------------------------------------------------------------ updates

    def attach(self, nodes: NodeView) -> None:
        self._nodes = nodes

    def learn(self, number: int, needs: Needs, placed: Placed) -> None:
        member = _Member(needs, dict(needs.labels))
        self._members[number] = member
        self._numbers[needs] = number
        hooks = carried(needs)
        self._member_index.put(number, hooks)
        for match_count in self._match_count_index.find(hooks):
            if meets(needs, member.labels, match_count.conditions):
                match_count.members[number] = None
                member.match_counts[match_count] = None
                member.counted_in.update(dict.fromkeys(match_count.tallies.values()))
        for reverse in self._reverse_index.find(hooks):
            if meets(needs, member.labels, (reverse.condition,)):
                self._subject(number, member, reverse)
        if needs.anti_affinity or needs.affinity or needs.preferred_affinity or needs.preferred_anti_affinity:
            self._learn_terms(number, member, ClassLocations(number, placed))

    def gathered(self, numbers: Collection[int], *, first: bool = False) -> dict[str, set[int]]:
        """Return which classes required affinity ties together, by topology key.

        ``first``: leave out classes that may already go next to a placed pod.
        """
        by_key: dict[str, set[int]] = {}
        for number in numbers:
            member = self._members.get(number)
            if member is None or member.wanted is None:
                continue
            if first and any(tally.by_domain for _, tally in member.wanted_tallies):
                continue
            matching = member.wanted.members.keys() & set(numbers)
            for term, _ in member.wanted_tallies if matching else ():
                by_key.setdefault(term.topology_key, set()).update(matching, (number,))
        return by_key

    def _learn_terms(self, number: int, member: _Member, where: ClassLocations) -> None:
        needs = member.needs
        for term in needs.anti_affinity:
            condition = condition_of(term, needs)
            match_count = self._match_count_of(member, (condition,))
            tally = self._tally(match_count, term.topology_key, where)
            member.anti.append((term, match_count, tally))
            match_count.listeners[number] = None
            self._add_reverse(number, member, condition, term.topology_key, 0)
        if needs.affinity:
            conditions = tuple(condition_of(term, needs) for term in needs.affinity)
            member.wanted = self._match_count_of(member, conditions)
            member.wanted.listeners[number] = None
            for term, condition in zip(needs.affinity, conditions, strict=True):
                tally = self._tally(member.wanted, term.topology_key, where)
                member.wanted_tallies.append((term, tally))
                self._add_reverse(number, member, condition, term.topology_key, HARD_WEIGHT)
        weighted = [(w.weight, w.term) for w in needs.preferred_affinity]
        weighted += [(-w.weight, w.term) for w in needs.preferred_anti_affinity]
        for weight, term in weighted:
            condition = condition_of(term, needs)
            match_count = self._match_count_of(member, (condition,))
            member.preferences.append((weight, self._tally(match_count, term.topology_key, where)))
            self._add_reverse(number, member, condition, term.topology_key, weight)

    def forget(self, number: int) -> None:
        member = self._members.pop(number, None)
        if member is None:
            return
        del self._numbers[member.needs]
        self._member_index.drop(number, carried(member.needs))
        for match_count in member.match_counts:
            del match_count.members[number]
        for reverse in (*member.repelled_by, *member.attracted_by):
            del reverse.subjects[number]
        for match_count in member.asks:
            match_count.listeners.pop(number, None)
            match_count.users -= 1
            if not match_count.users:
                self._drop_match_count(match_count)
        for reverse in member.reverses:
            del reverse.owners[number]
            if not reverse.owners:
                self._drop_reverse(reverse)

    def _drop_match_count(self, match_count: MatchCount) -> None:
        del self._match_counts[match_count.conditions]
        self._match_count_index.drop(match_count, hooks_of(match_count.conditions[0]))
        for other in match_count.members:
            member = self._members[other]
            del member.match_counts[match_count]
            for tally in match_count.tallies.values():
                del member.counted_in[tally]

    def _drop_reverse(self, reverse: ReverseMatchCount) -> None:
        del self._reverse_counts[reverse.condition, reverse.tally.key, reverse.weight]
        self._reverse_index.drop(reverse, hooks_of(reverse.condition))
        for other in reverse.subjects:
            member = self._members[other]
            (member.attracted_by if reverse.weight else member.repelled_by).pop(reverse)

    def add(self, number: int, row: int, count: int) -> None:
        for tally in self._members[number].counted_in:
            tally.add(self._domain(tally.key, row), count)

    def relabelled(self, placed: Placed) -> None:
        for match_count in self._match_counts.values():
            for tally in match_count.tallies.values():
                tally.by_domain.clear()
        for reverse in self._reverse_counts.values():
            reverse.tally.by_domain.clear()
        for number, rows in placed:
            for row, count in rows.items():
                self.add(number, row, count)

    # ------------------------------------------------------------------ queries

    def is_interested(self, number: int) -> bool:
        member = self._members[number]
        asks = member.anti or member.wanted is not None or member.preferences
        return bool(asks or member.counted_in or member.repelled_by or member.attracted_by)

    def constrains(self, number: int) -> bool:
        member = self._members[number]
        if member.anti or member.wanted is not None:
            return True
        return bool(member.repelled_by) and any(reverse.tally.by_domain for reverse in member.repelled_by)

    def verdict(self, number: int, nodes: NodeView) -> BoolArray | None:
        member = self._members[number]
        mask: BoolArray | None = None
        for tally in self._forbidding(member):
            occupied = tally.occupied(nodes)
            if occupied is not None:
                mask = ~occupied if mask is None else mask & ~occupied
        for _, allowed in self._affinity(number, member, nodes):
            mask = allowed if mask is None else mask & allowed
        return mask

    def touched(self, number: int, row: int) -> Sequence[tuple[str, int]] | None:
        member = self._members[number]
        for _, tally in member.wanted_tallies:
            domain = self._domain(tally.key, row)
            if tally in member.counted_in and tally.by_domain.get(domain) == 1:
                return None  # the first pod there, perhaps the first in the cluster
        domains = {}
        for tally in self._forbidding(member):
            if tally in member.counted_in:
                domain = self._domain(tally.key, row)
                if domain:
                    domains[tally.key, domain] = None
        return list(domains)

    def listens_to(self, number: int) -> Collection[int]:
        member = self._members[number]
        classes: set[int] = set()
        for _, match_count, _ in member.anti:
            classes |= match_count.members.keys()
        for reverse in member.repelled_by:
            classes |= reverse.owners.keys()
        if member.wanted is not None:
            classes |= member.wanted.members.keys()
        return classes

    def listeners(self, number: int) -> Collection[int]:
        member = self._members.get(number)
        if member is None:
            return ()
        classes: set[int] = set()
        for match_count in member.match_counts:
            classes |= match_count.listeners.keys()
        for reverse in member.reverses:
            if not reverse.weight:
                classes |= reverse.subjects.keys()
        return classes

    def blockers(self, needs: Needs, nodes: NodeView) -> Sequence[NodeBlocker]:
        number = self._numbers.get(needs)
        if number is None:
            return []
        member = self._members[number]
        conflicts = [
            (tally, f"anti-affinity to {selector_text(term.selector)} per {tally.key}")
            for term, _, tally in member.anti
        ]
        conflicts += [
            (
                reverse.tally,
                f"a pod there has anti-affinity to {selector_text(reverse.condition[0])} per {reverse.tally.key}",
            )
            for reverse in member.repelled_by
        ]
        blockers = []
        for tally, detail in conflicts:
            blocked = tally.occupied(nodes)
            if blocked is not None:
                blockers.append(NodeBlocker(Reason.POD_ANTI_AFFINITY_CONFLICT, blocked, detail=detail))
        for term, allowed in self._affinity(number, member, nodes):
            detail = f"affinity to {selector_text(term.selector)} per {term.topology_key}"
            blockers.append(NodeBlocker(Reason.POD_AFFINITY_MISMATCH, ~allowed, detail=detail))
        return [blocker for blocker in blockers if blocker.blocked.any()]

    def has_preference(self, number: int) -> bool:
        """Return whether preferences exist, now or as soon as pods of the class are placed."""
        member = self._members[number]
        if member.preferences or not member.attracted_by:
            return bool(member.preferences)
        return any(reverse.tally.by_domain or number in reverse.owners for reverse in member.attracted_by)

    def preferences(self, number: int) -> list[tuple[int, DomainTally]]:
        """Return the weights and counts of terms that attract pods of the class (negative: repel).

        Only terms that match a placed pod are returned.
        """
        member = self._members[number]
        preferences = [(weight, tally) for weight, tally in member.preferences if tally.by_domain]
        preferences += [
            (reverse.weight, reverse.tally) for reverse in member.attracted_by if reverse.tally.by_domain
        ]
        return preferences

    # ------------------------------------------------------------------ helpers

    def _forbidding(self, member: _Member) -> Iterable[DomainTally]:
        """Return the counts of the domains where no pod of the class may be placed.

        A term that matches its own class appears twice, in two equal counts.
        """
        tallies = {tally: None for _, _, tally in member.anti}
        tallies.update((reverse.tally, None) for reverse in member.repelled_by)
        return tallies

    def _affinity(self, number: int, member: _Member, nodes: NodeView) -> list[tuple[PodTerm, BoolArray]]:
        if member.wanted is None:
            return []
        no_match = not any(tally.by_domain for _, tally in member.wanted_tallies)
        if no_match and number in member.wanted.members:
            return [(term, nodes.label(tally.key) != 0) for term, tally in member.wanted_tallies]
        nowhere = np.zeros(nodes.size, dtype=np.bool_)
        allowed = []
        for term, tally in member.wanted_tallies:
            occupied = tally.occupied(nodes)
            allowed.append((term, nowhere if occupied is None else occupied))
        return allowed

    def _domain(self, key: str, row: int) -> int:
        if self._nodes is None:
            raise RuntimeError("the plugin is not attached to an engine")
        return int(self._nodes.label(key)[row])

    def _match_count_of(self, member: _Member, conditions: tuple[Condition, ...]) -> MatchCount:
        match_count = self._match_counts.get(conditions)
        if match_count is None:
            match_count = self._match_counts[conditions] = MatchCount(conditions)
            hooks = hooks_of(conditions[0])
            self._match_count_index.put(match_count, hooks)
            for other in self._member_index.find(hooks):
                them = self._members[other]
                if meets(them.needs, them.labels, conditions):
                    match_count.members[other] = None
                    them.match_counts[match_count] = None
        match_count.users += 1
        member.asks.append(match_count)
        return match_count

    def _tally(self, match_count: MatchCount, key: str, where: ClassLocations) -> DomainTally:
        tally = match_count.tallies.get(key)
        if tally is None:
            tally = match_count.tallies[key] = DomainTally(key)
            for number in match_count.members:
                self._members[number].counted_in[tally] = None
                for row, count in where.of(number).items():
                    tally.add(self._domain(key, row), count)
        return tally

    def _subject(self, number: int, member: _Member, reverse: ReverseMatchCount) -> None:
        reverse.subjects[number] = None
        (member.attracted_by if reverse.weight else member.repelled_by)[reverse] = None

    def _add_reverse(self, number: int, member: _Member, condition: Condition, key: str, weight: int) -> None:
        reverse = self._reverse_counts.get((condition, key, weight))
        if reverse is None:
            reverse = self._reverse_counts[condition, key, weight] = ReverseMatchCount(
                condition, weight, DomainTally(key)
            )
            hooks = hooks_of(condition)
            self._reverse_index.put(reverse, hooks)
            for other in self._member_index.find(hooks):
                them = self._members[other]
                if meets(them.needs, them.labels, (condition,)):
                    self._subject(other, them, reverse)
        reverse.owners[number] = None
        member.reverses[reverse] = None
        member.counted_in[reverse.tally] = None


class PreferredPodAffinity:
    """Score of preferred terms, both of the pod and of running pods.

    Scaled so that the worst candidate has 0 and the best 100. It reads the counts of
    the one
    :class:`PodAffinity` of the engine.
    """

    def __init__(
        self, counts: PodAffinity, weight: float = 2.0, dialects: Collection[Dialect] = tuple(Dialect)
    ) -> None:
        self.name = "podaffinity"
        self.weight = weight
        self.dialects = dialects
        self.outranks_vacancy = False
        self._counts = counts

    def is_interested(self, number: int) -> bool:
        return self._counts.is_interested(number)

    def has_preference(self, number: int, needs: Needs, nodes: NodeView) -> bool:
        return self._counts.has_preference(number)

    def relative(self, number: int, needs: Needs, nodes: NodeView, candidates: BoolArray) -> FloatArray:
        raw = np.zeros(nodes.size, dtype=np.int64)
        for weight, tally in self._counts.preferences(number):
            by_code = np.zeros(len(nodes.label_values(tally.key)), dtype=np.int64)
            by_code[list(tally.by_domain)] = list(tally.by_domain.values())
            raw += weight * by_code[nodes.label(tally.key)]
        worst, best = int(raw[candidates].min()), int(raw[candidates].max())
        if best == worst:
            return np.zeros(nodes.size)
        return (100 * (raw - worst) // (best - worst)).astype(np.float64)
