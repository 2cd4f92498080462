"""Required pod affinity and anti-affinity, both ways, as in Kubernetes.

* A pod is kept out of the domains in which a pod matches one of its anti-affinity terms, and out of
  those in which a pod lives whose own anti-affinity term matches it (symmetry).
* It goes only to domains in which some pod matches *all* its affinity terms. If no pod anywhere does
  and it matches them itself, it is the first of its kind and may go to any node that has the keys.

A domain is the set of nodes with one value of the topology key; a node without the key is in none.
Counts per domain are kept up to date, never collected anew.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from windlass.api.reasons import Reason
from windlass.plugins.matching import describe, labels_match
from windlass.spi.nodes import BoolArray, NodeView
from windlass.spi.objects import Expression, Needs, PodTerm
from windlass.spi.plugins import Finding

Placed = Iterable[tuple[int, Mapping[int, int]]]
Condition = tuple[tuple[Expression, ...] | None, tuple[str, ...]]
"""(selector, namespaces)."""


@dataclass(slots=True)
class Tally:
    """Pods by domain of one topology key."""

    key: str
    by_domain: dict[int, int] = field(default_factory=dict)

    def add(self, domain: int, count: int) -> None:
        if not domain:
            return
        left = self.by_domain.get(domain, 0) + count
        if left:
            self.by_domain[domain] = left
        else:
            self.by_domain.pop(domain, None)

    def occupied(self, nodes: NodeView) -> BoolArray:
        """The nodes in whose domain such a pod lives."""
        flags = np.zeros(len(nodes.label_values(self.key)), dtype=np.bool_)
        flags[list(self.by_domain)] = True
        return flags[nodes.label(self.key)]


@dataclass(eq=False, slots=True)
class Crowd:
    """The classes that meet all of some conditions, and where their pods are, by topology key."""

    conditions: tuple[Condition, ...]
    tallies: dict[str, Tally] = field(default_factory=dict)
    members: set[int] = field(default_factory=set)
    users: set[int] = field(default_factory=set)
    """Classes with a term that asks for this crowd."""


@dataclass(eq=False, slots=True)
class Repulsion:
    """An anti-affinity term seen from the others: who has it, where those are, whom it matches."""

    condition: Condition
    tally: Tally
    owners: set[int] = field(default_factory=set)
    subjects: set[int] = field(default_factory=set)


@dataclass(slots=True)
class _Member:
    """What is known of one class."""

    needs: Needs
    labels: Mapping[str, str]
    anti: list[tuple[PodTerm, Crowd, Tally]] = field(default_factory=list)
    wanted: Crowd | None = None
    wanted_tallies: list[tuple[PodTerm, Tally]] = field(default_factory=list)
    repelled_by: list[Repulsion] = field(default_factory=list)
    feeds: list[Tally] = field(default_factory=list)


class PodAffinity:
    name = "pod-affinity"

    def __init__(self) -> None:
        self._nodes: NodeView | None = None
        self._members: dict[int, _Member] = {}
        self._numbers: dict[Needs, int] = {}
        self._crowds: dict[tuple[Condition, ...], Crowd] = {}
        self._repulsions: dict[tuple[Condition, str], Repulsion] = {}

    # ------------------------------------------------------------------ what is told

    def attach(self, nodes: NodeView) -> None:
        self._nodes = nodes

    def learn(self, number: int, needs: Needs, placed: Placed) -> None:
        member = _Member(needs, dict(needs.labels))
        self._members[number] = member
        self._numbers[needs] = number
        for crowd in self._crowds.values():
            if _meets(member, crowd.conditions):
                crowd.members.add(number)
                member.feeds += crowd.tallies.values()
        for repulsion in self._repulsions.values():
            if _meets(member, (repulsion.condition,)):
                repulsion.subjects.add(number)
                member.repelled_by.append(repulsion)
        if not needs.anti_affinity and not needs.affinity:
            return
        where = dict(placed)
        for term in needs.anti_affinity:
            condition = _condition(term, needs)
            crowd = self._crowd(number, (condition,), where)
            tally = self._tally(crowd, term.topology_key, where)
            member.anti.append((term, crowd, tally))
            self._repel(number, member, condition, term.topology_key)
        if needs.affinity:
            conditions = tuple(_condition(term, needs) for term in needs.affinity)
            member.wanted = self._crowd(number, conditions, where)
            member.wanted_tallies = [
                (term, self._tally(member.wanted, term.topology_key, where)) for term in needs.affinity
            ]

    def forget(self, number: int) -> None:
        member = self._members.pop(number, None)
        if member is None:
            return
        del self._numbers[member.needs]
        for crowd in self._crowds.values():
            crowd.members.discard(number)
            crowd.users.discard(number)
        for repulsion in self._repulsions.values():
            repulsion.owners.discard(number)
            repulsion.subjects.discard(number)
        unused = [crowd for crowd in self._crowds.values() if not crowd.users]
        idle = [(k, r) for k, r in self._repulsions.items() if not r.owners]
        for crowd in unused:
            del self._crowds[crowd.conditions]
        for key, _ in idle:
            del self._repulsions[key]
        dead = {id(t) for crowd in unused for t in crowd.tallies.values()} | {id(r.tally) for _, r in idle}
        gone = {id(repulsion) for _, repulsion in idle}
        if dead or gone:
            for other in self._members.values():
                other.feeds = [tally for tally in other.feeds if id(tally) not in dead]
                other.repelled_by = [r for r in other.repelled_by if id(r) not in gone]

    def add(self, number: int, row: int, count: int) -> None:
        feeds = self._members[number].feeds
        for tally in feeds:
            tally.add(self._domain(tally.key, row), count)

    def relabelled(self, placed: Placed) -> None:
        for crowd in self._crowds.values():
            for tally in crowd.tallies.values():
                tally.by_domain.clear()
        for repulsion in self._repulsions.values():
            repulsion.tally.by_domain.clear()
        for number, rows in placed:
            for row, count in rows.items():
                self.add(number, row, count)

    # ------------------------------------------------------------------ what is asked

    def constrains(self, number: int) -> bool:
        member = self._members[number]
        if member.anti or member.wanted is not None:
            return True
        return any(repulsion.tally.by_domain for repulsion in member.repelled_by)

    def verdict(self, number: int, nodes: NodeView) -> BoolArray | None:
        member = self._members[number]
        mask = np.ones(nodes.size, dtype=np.bool_)
        for _, _, tally in member.anti:
            mask &= ~tally.occupied(nodes)
        for repulsion in member.repelled_by:
            mask &= ~repulsion.tally.occupied(nodes)
        for _, allowed in self._affinity(number, member, nodes):
            mask &= allowed
        return mask

    def listens(self, number: int) -> Collection[int]:
        member = self._members[number]
        found: set[int] = set()
        for _, crowd, _ in member.anti:
            found |= crowd.members
        for repulsion in member.repelled_by:
            found |= repulsion.owners
        if member.wanted is not None:
            found |= member.wanted.members
        return found

    def findings(self, needs: Needs, nodes: NodeView) -> Sequence[Finding]:
        number = self._numbers.get(needs)
        if number is None:
            return []
        member = self._members[number]
        found = []
        for term, _, tally in member.anti:
            detail = f"anti-affinity to {_text(term.selector)} per {term.topology_key}"
            found.append(Finding(Reason.POD_ANTI_AFFINITY_CONFLICT, tally.occupied(nodes), detail=detail))
        for repulsion in member.repelled_by:
            key = repulsion.tally.key
            detail = f"a pod there has anti-affinity to {_text(repulsion.condition[0])} per {key}"
            blocked = repulsion.tally.occupied(nodes)
            found.append(Finding(Reason.POD_ANTI_AFFINITY_CONFLICT, blocked, detail=detail))
        for term, allowed in self._affinity(number, member, nodes):
            detail = f"affinity to {_text(term.selector)} per {term.topology_key}"
            found.append(Finding(Reason.POD_AFFINITY_MISMATCH, ~allowed, detail=detail))
        return [finding for finding in found if finding.blocked.any()]

    # ------------------------------------------------------------------ parts

    def _affinity(self, number: int, member: _Member, nodes: NodeView) -> list[tuple[PodTerm, BoolArray]]:
        if member.wanted is None:
            return []
        nobody = not any(tally.by_domain for _, tally in member.wanted_tallies)
        if nobody and number in member.wanted.members:
            return [(term, nodes.label(tally.key) != 0) for term, tally in member.wanted_tallies]
        return [(term, tally.occupied(nodes)) for term, tally in member.wanted_tallies]

    def _domain(self, key: str, row: int) -> int:
        if self._nodes is None:
            raise RuntimeError("the plugin is not attached to an engine")
        return int(self._nodes.label(key)[row])

    def _crowd(self, number: int, conditions: tuple[Condition, ...], where: Mapping[int, object]) -> Crowd:
        crowd = self._crowds.get(conditions)
        if crowd is None:
            crowd = self._crowds[conditions] = Crowd(conditions)
            crowd.members = {n for n, m in self._members.items() if _meets(m, conditions)}
        crowd.users.add(number)
        return crowd

    def _tally(self, crowd: Crowd, key: str, where: Mapping[int, Mapping[int, int]]) -> Tally:
        tally = crowd.tallies.get(key)
        if tally is None:
            tally = crowd.tallies[key] = Tally(key)
            for number in crowd.members:
                self._members[number].feeds.append(tally)
                for row, count in where.get(number, {}).items():
                    tally.add(self._domain(key, row), count)
        return tally

    def _repel(self, number: int, member: _Member, condition: Condition, key: str) -> None:
        repulsion = self._repulsions.get((condition, key))
        if repulsion is None:
            repulsion = self._repulsions[condition, key] = Repulsion(condition, Tally(key))
            for other, them in self._members.items():
                if _meets(them, (condition,)):
                    repulsion.subjects.add(other)
                    them.repelled_by.append(repulsion)
        if number not in repulsion.owners:
            repulsion.owners.add(number)
            member.feeds.append(repulsion.tally)


def _condition(term: PodTerm, needs: Needs) -> Condition:
    return (term.selector, term.namespaces or (needs.namespace,))


def _meets(member: _Member, conditions: tuple[Condition, ...]) -> bool:
    namespace, labels = member.needs.namespace, member.labels
    return all(
        selector is not None and namespace in namespaces and labels_match(selector, labels)
        for selector, namespaces in conditions
    )


def _text(selector: tuple[Expression, ...] | None) -> str:
    if selector is None:
        return "no pod"
    return ", ".join(describe(expression) for expression in selector) or "any pod"
