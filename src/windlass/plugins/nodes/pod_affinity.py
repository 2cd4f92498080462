"""Pod affinity and anti-affinity, both ways, as in Kubernetes.

* A pod is kept out of the domains in which a pod matches one of its anti-affinity terms, and out of
  those in which a pod lives whose own anti-affinity term matches it (symmetry).
* It goes only to domains in which some pod matches *all* its affinity terms. If no pod anywhere does
  and it matches them itself, it is the first of its kind and may go to any node that has the keys.
* Wishes (preferred terms) are weighed by :class:`PreferredPodAffinity`, also both ways: what a pod that runs
  prefers about a newcomer counts for the newcomer, and a required affinity of it counts 1.

A domain is the set of nodes with one value of the topology key; a node without the key is in none.
Counts per domain are kept up to date, never collected anew.
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
"""What a required affinity of a running pod counts for a pod that it matches (kube-scheduler's default)."""


@dataclass(eq=False, slots=True)
class MatchCount:
    """The classes that meet all of some conditions, and where their pods are, by topology key."""

    conditions: tuple[Condition, ...]
    tallies: dict[str, DomainTally] = field(default_factory=dict)
    members: dict[int, None] = field(default_factory=dict)
    users: int = 0
    """How many classes have a term that asks for this crowd."""
    listeners: dict[int, None] = field(default_factory=dict)
    """Those of them whose term is required."""


@dataclass(eq=False, slots=True)
class ReverseMatchCount:
    """A term seen from the others: where those are who have it, and whom it matches.

    ``weight`` 0: a required anti-affinity, which keeps its subjects out; else what it adds to the score of
    the domain for them.
    """

    condition: Condition
    weight: int
    tally: DomainTally
    owners: dict[int, None] = field(default_factory=dict)
    subjects: dict[int, None] = field(default_factory=dict)


@dataclass(slots=True)
class _Member:
    """What is known of one class."""

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
    """Those it is in."""
    asks: list[MatchCount] = field(default_factory=list)
    reverses: dict[ReverseMatchCount, None] = field(default_factory=dict)
    """Those of its own terms."""


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

    # ------------------------------------------------------------------ what is told

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
                self._drop_crowd(match_count)
        for reverse in member.reverses:
            del reverse.owners[number]
            if not reverse.owners:
                self._drop_echo(reverse)

    def _drop_crowd(self, match_count: MatchCount) -> None:
        del self._match_counts[match_count.conditions]
        self._match_count_index.drop(match_count, hooks_of(match_count.conditions[0]))
        for other in match_count.members:
            member = self._members[other]
            del member.match_counts[match_count]
            for tally in match_count.tallies.values():
                del member.counted_in[tally]

    def _drop_echo(self, reverse: ReverseMatchCount) -> None:
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

    # ------------------------------------------------------------------ what is asked

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
                return None  # a first one there, perhaps the first anywhere
        found = {}
        for tally in self._forbidding(member):
            if tally in member.counted_in:
                domain = self._domain(tally.key, row)
                if domain:
                    found[tally.key, domain] = None
        return list(found)

    def listens_to(self, number: int) -> Collection[int]:
        member = self._members[number]
        found: set[int] = set()
        for _, match_count, _ in member.anti:
            found |= match_count.members.keys()
        for reverse in member.repelled_by:
            found |= reverse.owners.keys()
        if member.wanted is not None:
            found |= member.wanted.members.keys()
        return found

    def listeners(self, number: int) -> Collection[int]:
        member = self._members.get(number)
        if member is None:
            return ()
        found: set[int] = set()
        for match_count in member.match_counts:
            found |= match_count.listeners.keys()
        for reverse in member.reverses:
            if not reverse.weight:
                found |= reverse.subjects.keys()
        return found

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
        found = []
        for tally, detail in conflicts:
            blocked = tally.occupied(nodes)
            if blocked is not None:
                found.append(NodeBlocker(Reason.POD_ANTI_AFFINITY_CONFLICT, blocked, detail=detail))
        for term, allowed in self._affinity(number, member, nodes):
            detail = f"affinity to {selector_text(term.selector)} per {term.topology_key}"
            found.append(NodeBlocker(Reason.POD_AFFINITY_MISMATCH, ~allowed, detail=detail))
        return [finding for finding in found if finding.blocked.any()]

    def has_preference(self, number: int) -> bool:
        """Whether :meth:`preferences` has anything, now or as soon as pods of the class are placed."""
        member = self._members[number]
        if member.preferences or not member.attracted_by:
            return bool(member.preferences)
        return any(reverse.tally.by_domain or number in reverse.owners for reverse in member.attracted_by)

    def preferences(self, number: int) -> list[tuple[int, DomainTally]]:
        """What pulls a pod of the class to domains (or pushes it away, below 0), by pods that are there."""
        member = self._members[number]
        found = [(weight, tally) for weight, tally in member.preferences if tally.by_domain]
        found += [
            (reverse.weight, reverse.tally) for reverse in member.attracted_by if reverse.tally.by_domain
        ]
        return found

    # ------------------------------------------------------------------ parts

    def _forbidding(self, member: _Member) -> Iterable[DomainTally]:
        """The tallies in whose domains a pod of the class may not be; a term of its own that its own kind
        has is counted in two that are equal."""
        found = {tally: None for _, _, tally in member.anti}
        found.update((reverse.tally, None) for reverse in member.repelled_by)
        return found

    def _affinity(self, number: int, member: _Member, nodes: NodeView) -> list[tuple[PodTerm, BoolArray]]:
        if member.wanted is None:
            return []
        no_match = not any(tally.by_domain for _, tally in member.wanted_tallies)
        if no_match and number in member.wanted.members:
            return [(term, nodes.label(tally.key) != 0) for term, tally in member.wanted_tallies]
        nowhere = np.zeros(nodes.size, dtype=np.bool_)
        found = []
        for term, tally in member.wanted_tallies:
            occupied = tally.occupied(nodes)
            found.append((term, nowhere if occupied is None else occupied))
        return found

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
    """Preferred terms of the pod and of those that run, scaled so that the worst candidate has 0 and the
    best 100. A view on the one :class:`PodAffinity` that counts for the engine."""

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
